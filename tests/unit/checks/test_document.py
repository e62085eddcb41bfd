"""Each setting has the line on which it stands, also where it comes from an anchor, a merge or a RayService."""

from pathlib import Path

import pytest

from deployments.config import ConfigError
from serve_app.checks.document import ANY, Document, read_document

TEXT = """\
shared: &shared
  dtype: float32
  eager: true
models:
- id: a
  options: *shared
- id: b
  options:
    <<: *shared
    length: 5
    eager: false
"""


def document(folder: Path, text: str) -> Document:
    path = folder / "file.yaml"
    path.write_text(text)
    return read_document(path)


def test_lines_follow_anchors_and_merges(tmp_path: Path) -> None:
    found = document(tmp_path, TEXT)
    assert found.line_of(()) == 1
    assert found.line_of(("models", 1)) == 7
    assert found.line_of(("models", 0, "options")) == 6
    assert found.line_of(("models", 0, "options", "dtype")) == 2
    assert found.line_of(("models", 1, "options", "dtype")) == 2
    assert found.line_of(("models", 1, "options", "eager")) == 11
    assert found.line_of(("models", 1, "options", "nothing", "below")) == 8


def test_a_name_that_stands_twice_is_found_and_a_merge_is_no_repetition(tmp_path: Path) -> None:
    assert list(document(tmp_path, TEXT).repeated()) == []
    twice = document(tmp_path, "a: 1\nb:\n- c: 1\n  d: 2\n  c: 3\n")
    assert list(twice.repeated()) == [(("b", 0, "c"), 3)]
    assert twice.line_of(("b", 0, "c")) == 5


def test_a_pattern_finds_entries_of_lists_and_mappings(tmp_path: Path) -> None:
    found = document(tmp_path, TEXT)
    assert list(found.find(("models", ANY, "id"))) == [(("models", 0, "id"), "a"), (("models", 1, "id"), "b")]
    assert list(found.find(("models", 7, "id"))) == []
    assert list(found.find(("shared", ANY))) == [(("shared", "dtype"), "float32"), (("shared", "eager"), True)]


def test_the_file_in_a_ray_service_has_the_lines_of_the_whole(tmp_path: Path) -> None:
    text = "kind: RayService\nspec:\n  serveConfigV2: |\n    http_options:\n      port: 1\n"
    found = document(tmp_path, text)
    assert found.content == {"http_options": {"port": 1}}
    assert found.line_of(("http_options", "port")) == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": the file has no settings"),
        ("# text\n", ": the file has no settings"),
        ("a: 1\nb: [1\nc: 2\n", ":3: not valid YAML: a comma or a ] is missing here, or above"),
        ("a:\n\tb: 1\n", ":2: not valid YAML: a tab, where YAML needs spaces"),
        ("a: @b\n", ":1: not valid YAML: text that begins with @ needs quotes"),
        ("a: b: c\n", ":1: not valid YAML: indented too far, or text with a colon that needs quotes"),
        ("a:\n   b: 1\n  c: 2\n", ":3: not valid YAML: does not fit the lines above"),
        ("a: 1\nb\nc: 1\n", ":3: not valid YAML: a name without a colon, on this line or the one before"),
        ('a: "b\n', ":2: not valid YAML: a quotation mark is never closed"),
        ("a: *b\n", ":1: not valid YAML: *b is used, but &b is not defined above it"),
        ("a: &b 1\nc: &b 2\n", ":2: not valid YAML: &b is defined a second time"),
        ("a: 1\n---\nb: 2\n", ":2: not valid YAML: --- begins a second document"),
        ("kind: RayService\nspec: {}\n", ":2: this RayService has no spec.serveConfigV2"),
        ("kind: RayService\nspec:\n  serveConfigV2: {a: 1}\n", ":3: spec.serveConfigV2 should be text"),
    ],
)
def test_a_file_that_cannot_be_read_has_a_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        document(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path}/file.yaml{message}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        read_document(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not a text file"):
        read_document(tmp_path / "bytes.yaml")
