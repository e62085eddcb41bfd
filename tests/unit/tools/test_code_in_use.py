"""The code interpreter within one response: which files a message cites, and how many figures are shown."""

import re

from hypothesis import given
from hypothesis import strategies as st

from deployments.tools.code_interpreter.messages import CodeRun, ContainerFile
from serve_app.operations.containers import tool as module
from serve_app.operations.containers.tool import CodeInUse
from serve_app.operations.responses.tools.contract import ToolContext
from serve_app.schemas.responses.code_interpreter import AutoContainer
from tests.twins.keys import principal_of_key

WHO = principal_of_key(account="acct_1")
FOLDER = "/mnt/data/"


def in_use(*paths: str) -> CodeInUse:
    used = CodeInUse(None, ToolContext(WHO, ()), AutoContainer(type="auto"), None, [])  # type: ignore[arg-type]
    for path in paths:
        used._written.add("cntr_1", [ContainerFile(f"cfile_{path}", path, 1, 0.0, "assistant")])
    return used


def cited(used: CodeInUse, text: str) -> list[tuple[str, int, int]]:
    return [(one["file_id"].removeprefix("cfile_"), one["start_index"], one["end_index"]) for one in used.cite(text)]


def test_links_are_cited_where_they_stand_and_other_files_once_at_the_start():
    used = in_use("a.txt", "a.txt.gz", "b c.csv", "d/a.txt")
    text = "See [a](sandbox:/mnt/data/a.txt), /mnt/data/a.txt.gz, /mnt/data/a.text and /mnt/data/d/a.txt."
    first, second, third = (text.index(part) for part in ("sandbox:", "/mnt/data/a.txt.gz", "/mnt/data/d"))
    assert cited(used, text) == [
        ("b c.csv", 0, 0),
        ("a.txt", first, first + 23),
        ("a.txt.gz", second, second + 18),
        ("d/a.txt", third, third + 17),
    ]
    assert cited(used, "No more of them.") == []
    assert cited(used, "/mnt/data/b c.csv") == [("b c.csv", 0, 17)]


PATHS = st.sets(st.text("ab./- ", min_size=1, max_size=4), min_size=1, max_size=6)
TEXTS = st.lists(st.sampled_from([FOLDER, "sandbox:", "a", "b", ".", "/", " ", "-"]), max_size=20).map("".join)


@given(paths=PATHS, text=TEXTS)
def test_a_place_is_cited_if_one_of_the_names_stands_there_whole(paths, text):
    used = in_use(*paths)
    expected = {}
    for path in sorted(paths, key=len):  # Of two that fit, the longer one.
        place = re.compile(rf"(?:sandbox:)?{re.escape(FOLDER + path)}(?![\w/-]|\.\w)")
        expected |= {found.start(): (path, *found.span()) for found in place.finditer(text)}
    found = [one for one in cited(used, text) if one[1:] != (0, 0)]
    assert found == [expected[start] for start in sorted(expected)]


def test_a_thousand_files_are_looked_for_in_a_long_text_at_once():
    used = in_use(*(f"{number}.txt" for number in range(1000)))
    text = "word " * 200_000 + "/mnt/data/7.txt"
    assert cited(used, text)[-1] == ("7.txt", 1_000_000, 1_000_015)


def test_figures_are_shown_up_to_a_size_in_all_calls_together(monkeypatch):
    monkeypatch.setattr(module, "_MAX_SHOWN_IMAGE_BYTES", 10)
    used = in_use()
    result = CodeRun("ok", "Drawn.", None, [("a.png", b"x" * 4), ("b.png", b"x" * 4), ("c.png", b"x" * 4)], [])
    assert [output["type"] for output in used._outputs(result)] == ["logs", "image", "image"]
    assert [output["type"] for output in used._outputs(result)] == ["logs"]
