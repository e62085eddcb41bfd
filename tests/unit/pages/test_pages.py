"""The pages hold what the code has: languages, commands, settings, paths, links, codes, and the generated pages."""

import ast
import itertools
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from ray.scripts.scripts import cli as ray_command_line

from serve_app.asgi import ROUTES
from serve_app.checks.check import check_file
from serve_app.checks.rules import OF_THE_FILE
from serve_app.cli import main as command_line
from serve_app.config import ServiceConfig
from serve_app.console import routes as console
from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.responses.request import ResponseRequest
from serve_app.schemas.scoring import ScoreRequest
from serve_app.validation.batch_lines import parse_line
from tests.tools.bench import __main__ as bench
from tests.tools.pages import codes, reference
from tests.tools.pages.blocks import ROOT, Block, blocks, blocks_in, pages

LANGUAGES = {"json", "mermaid", "python", "sh", "text", "toml", "yaml"}
PROGRAMS = {
    "apt-get",
    "cd",
    "export",
    "git",
    "kubectl",
    "make",
    "podman",
    ".venv/bin/manta",
    ".venv/bin/python",
    ".venv/bin/ray",
    ".venv/bin/serve",
    ".ci/nightly",
    ".ci/run",
}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
TOP = "serve_app|deployments|batch|configs|tests|docs"
PATH = re.compile(rf"`((?:{TOP})/[\w./-]*)`|\]\(([^)#\s]+)(#[^)]*)?\)")
MODEL = {"id": "m", "source": "demo:chat", "device": "cpu", "engine_kwargs": {"max_model_len": 4096}}
EMBEDDER = {**MODEL, "id": "all-minilm-l6-v2", "task": "embed"}


def test_readme_stays_short() -> None:
    assert pages()["README.md"].count("\n") < 200


def test_every_block_has_a_language_that_a_test_reads() -> None:
    assert [str(block) for block in blocks() if block.language not in LANGUAGES] == []
    fences = {page: len(re.findall(r"^ *```", text, re.MULTILINE)) for page, text in pages().items()}
    assert {page: 2 * len(blocks_in(page, text)) for page, text in pages().items()} == fences


def test_configurations_of_clients_can_be_read() -> None:
    assert [tomllib.loads(block.code) for block in blocks("toml")]


def test_a_block_without_a_language_is_found() -> None:
    (block,) = blocks_in("a.md", "# A\n\n```\nx\n```\n")
    assert (block.language, block.line) == ("", 3)


def test_every_program_names_how_it_is_run() -> None:
    assert [str(block) for block in blocks("python") if block.name is None] == []
    assert [str(block) for block in blocks() if block.name is not None and block.language != "python"] == []


def commands_of(block: Block) -> Iterator[list[str]]:
    for line in block.code.replace("\\\n", "").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_commands_exist(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "requests.jsonl").touch()
    for words in commands_of(block):
        program, *arguments = words
        assert program in PROGRAMS, words
        for word in arguments:
            if word.startswith("configs/"):
                assert (ROOT / word).exists(), word
        if program == "make":
            for word in arguments:
                assert "=" in word or word in TARGETS, word
                if word.startswith("CONFIG="):
                    assert (ROOT / word.removeprefix("CONFIG=")).exists()
        elif program == ".venv/bin/manta":
            monkeypatch.chdir(tmp_path)
            check_command(arguments)
        elif program == ".venv/bin/serve":
            assert arguments[0] in ("run", "deploy")
            assert check_file(ROOT / arguments[1], OF_THE_FILE) == []
        elif program == ".venv/bin/ray":
            known = {
                option for parameter in ray_command_line.commands[arguments[0]].params for option in parameter.opts
            }
            assert {word for word in arguments if word.startswith("-")} <= known
        elif program == ".venv/bin/python":
            assert arguments[0] == "-m"
            assert (ROOT / (arguments[1].replace(".", "/") + ".py")).exists()


def check_command(arguments: list[str]) -> None:
    """Parse a command of `manta`, without running it; raises what the command line would refuse it with."""
    command: Any = typer.main.get_command(command_line)
    while hasattr(command, "commands"):
        name, *arguments = arguments
        command = command.commands[name]
    command.make_context(command.name, [word.replace("...", "1") for word in arguments])


def test_a_command_that_does_not_exist_is_refused() -> None:
    with pytest.raises(KeyError):
        check_command(["keys", "forge"])
    with pytest.raises(Exception, match="--colour"):
        check_command(["keys", "list", "--colour"])


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_settings_are_accepted(block: Block, tmp_path: Path) -> None:
    document = yaml.safe_load(block.code)
    if "applications" in document:
        (tmp_path / "serve.yaml").write_text(block.code)
        assert check_file(tmp_path / "serve.yaml") == []
    elif "schema" in document:  # Of Continue, which `tests/contract/http/agents` runs with it.
        assert document["models"]
    elif "models" in document:
        assert ServiceConfig.model_validate(document).models
    else:
        assert set(document) == {"args"}
        ServiceConfig.model_validate({"models": [MODEL, EMBEDDER], **document["args"]})


def test_yaml_in_a_line_of_text_is_accepted_too() -> None:
    text = " ".join(pages().values())
    for section in re.findall(r"`((?:state|tools|batches): \{[^`]*\})`", text):
        ServiceConfig.model_validate({"models": [MODEL, EMBEDDER], **yaml.safe_load(section)})


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_is_what_it_is_shown_as(block: Block) -> None:
    value = json.loads(block.code)
    if "custom_id" in value:
        request = parse_line(block.code.strip().encode(), "/v1/chat/completions")
        assert ChatRequest.model_validate(request.body).messages
    elif "provider" in value:  # Of opencode, which `tests/contract/http/agents` runs with it.
        assert value["model"]
    elif "text_1" in value:
        assert ScoreRequest.model_validate(value).right_texts()
    elif "type" in value:
        is_item = value["type"] in ("additional_tools", "configuration_update")
        fields = {"input": [value]} if is_item else {"input": "x", "tools": [value]}
        assert ResponseRequest.model_validate({"model": "m", **fields})
    elif "tools" in value:
        assert ResponseRequest.model_validate(value).tools
    else:
        assert set(value["error"]) == {"message", "type", "param", "code"}


def measuring_commands() -> list[str]:
    text = "\n".join(pages().values())
    make = re.findall(r"make (bench(?:-batches)?) ARGS=\"([^\"]*)\"", text)
    modules = {"bench": "tests.tools.bench", "bench-batches": "tests.tools.bench.batches"}
    commands = [f"{modules[target]} {arguments}" for target, arguments in make]
    found = {*commands, *re.findall(r"`python -m (tests\.bench[^`]*)`", text)}
    return sorted(found - {"tests.tools.bench --help"})


@pytest.mark.parametrize("command", measuring_commands())
def test_measurements_name_commands_that_exist(command: str) -> None:
    module, *arguments = shlex.split(command)
    if module == "tests.tools.bench":
        assert bench.parse_arguments(arguments).rounds >= 1
    else:
        source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
        assert [word for word in arguments if word.startswith("--") and f'"{word}"' not in source] == []


def test_routes_in_the_readme_exist() -> None:
    paths = {route.path for route in (*ROUTES, *console.ROUTES)}
    section = pages()["README.md"].split("## What it can do", 1)[1].split("\n## ", 1)[0]
    named = re.findall(r"(?:GET |POST |`)(/[\w/{}.]+)", section)
    assert len(named) > 10
    assert [path for path in named if not any(known.startswith(path) for known in paths)] == []


def test_every_path_and_link_leads_to_a_file() -> None:
    missing = []
    for page, text in pages().items():
        for path, link, _ in PATH.findall(text):
            if path and not (ROOT / path).exists():
                missing.append(f"{page}: {path}")
            elif link and "://" not in link and not (ROOT / page).parent.joinpath(link).exists():
                missing.append(f"{page}: {link}")
    assert missing == []


def test_files_that_answer_a_question_hold_what_the_page_says_to_look_for() -> None:
    text = pages()["docs/explain/architecture.md"].split("## Five questions, five files", 1)[1].split("\n## ", 1)[0]
    named = re.findall(r"^\| [^|]+ \| `([^`]+)` \| `(\w+)` \|", text, re.MULTILINE)
    assert len(named) == 5
    assert [(path, word) for path, word in named if word not in (ROOT / path).read_text()] == []


def test_every_package_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = itertools.chain(project["dependencies"], *project["optional-dependencies"].values())
    section = pages()["docs/contribute/development.md"].split("## Dependencies", 1)[1]
    _, *rows = re.findall(r"^\| ([a-z][^|]+) \|", section, re.MULTILINE)
    explained = {name.partition("[")[0] for row in rows for name in row.split(", ")}
    assert explained == {re.split(r"[\[=<>]", package)[0] for package in listed}


@pytest.mark.parametrize("page", ["tests/README.md", "tests/serve/README.md"])
def test_links_and_folders_of_the_tests_pages_exist(page: str) -> None:
    text, folder = (ROOT / page).read_text(), (ROOT / page).parent
    linked = re.findall(r"\]\(([^)#\s]+)\)", text)
    named = re.findall(r"^\| `([\w/.]+)`[:|]? ", text, re.MULTILINE) if page == "tests/README.md" else []
    assert linked
    assert [path for path in (*linked, *named) if not (folder / path).exists()] == []


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"- ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.removeprefix("docs/") for page in pages() if page.startswith("docs/"))


def test_reference_pages_are_what_the_code_generates() -> None:
    assert reference.find_stale() == [], "run `make docs`"


def test_a_reference_page_that_was_edited_or_is_missing_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "render_pages", lambda: dict.fromkeys(("api.md", "errors.md", "new.md"), "# Page\n"))
    (tmp_path / "api.md").write_text("# Page\n")
    (tmp_path / "errors.md").write_text("# Errors\n")
    assert reference.find_stale(tmp_path) == ["errors.md", "new.md"]


def test_every_error_code_has_its_cause_and_remedy() -> None:
    text = pages()["docs/operate/troubleshooting.md"]
    entries = re.findall(r"^### `(\w+)`\n\n\*\*Cause:\*\* \S(?:.*\n)+?\n\*\*Remedy:\*\* \S", text, re.MULTILINE)
    assert len(entries) == len(set(entries)) == text.count("\n### ")
    assert set(entries) == {found.code for found in codes.find_codes()}


def test_every_alert_has_its_section_in_the_runbook_and_every_section_its_alert() -> None:
    groups = yaml.safe_load((ROOT / "configs" / "prometheus" / "manta.rules.yaml").read_text())["groups"]
    alerts = {rule["alert"]: rule["labels"]["severity"] for group in groups for rule in group["rules"]}
    sections = re.findall(
        r"^## (\w+)\n\n`(\w+)`\.", (ROOT / "docs" / "operate" / "runbook.md").read_text(), re.MULTILINE
    )
    assert dict(sections) == alerts
    assert len(sections) == len(alerts)


def test_codes_are_found_in_every_form() -> None:
    source = """
class Gone(NotFound):
    def __init__(self, code: str = "long_gone"): ...

EXPIRED = "thing_expired"
raise BadRequest("x", code="not_right" if a else "not_left")
raise NotFound("x", code=EXPIRED)
raise BadRequest("x", code=f"empty_{noun}")
raise refusal("too_odd", "x")
exchange.status, exchange.code = 499, "went_away"
"""
    found = {each.code for each in codes.codes_in(source)}
    assert found == {
        "long_gone",
        "thing_expired",
        "not_right",
        "not_left",
        "empty_string",
        "empty_array",
        "too_odd",
        "went_away",
    }
    with pytest.raises(KeyError):
        codes.codes_in('raise BadRequest("x", code=f"{what}_is_wrong")')


def test_pages_name_no_machine() -> None:
    for page, text in pages().items():
        assert re.search(r"/(home|root|work|opt/wheels)/", text.replace("/home/manta", "")) is None, page


def test_pages_keep_to_the_words_of_the_glossary() -> None:
    avoided = re.compile(r"\b(whoever|nobody|somebody|told|(is|are) to be|what it says|as (much|many) again)\b", re.I)
    found = [
        f"{page}: {match[0]}"
        for page, text in pages().items()
        if page != "docs/explain/glossary.md" and not page.startswith("docs/reference/")
        for match in avoided.finditer(text)
    ]
    assert found == []


AVOIDED = re.compile(
    r"\b(whoever|somebody|of which|of whom|so many|spoken for|(is|are) told|most tokens|as (much|many) again)\b", re.I
)
COINED = {
    "door",
    "standing",
    "presence",
    "introduction",
    "arrears",
    "foreign",
    "believed",
    "whoever",
    "told",
    "thoughts",
}


@pytest.mark.parametrize("top", ["serve_app", "deployments", "batch"])
def test_code_keeps_to_the_words_of_the_glossary(top: str) -> None:
    """In docstrings, comments, messages and log lines, and in the names of what it defines."""
    found = []
    for path in (ROOT / top).rglob("*.py"):
        text = path.read_text()
        found += [f"{path.name}: {match[0]}" for match in AVOIDED.finditer(text)]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                words = {word.lower() for word in re.findall(r"[a-z]+|[A-Z][a-z]*", node.name)}
                found += [f"{path.name}: {node.name}" for _ in words & COINED]
    assert found == []


def test_tests_keep_to_the_words_of_the_glossary() -> None:
    """In docstrings and comments; prompts and documents of tests may say anything."""
    found = []
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text()
        prose = re.findall(r"#.*", text) + [
            ast.get_docstring(node) or ""
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        found += [f"{path.name}: {match[0]}" for one in prose for match in AVOIDED.finditer(one)]
    assert found == []


def test_documentation_loads_nothing_from_the_network() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    settings = yaml.safe_load(text)
    assert settings["theme"]["font"] is False
    assert settings["plugins"] == ["search"]  # The theme's plugin for reading offline loads a script from a CDN.
    assert re.findall(r"https?://", text) == []
    assert [str(block) for block in blocks("mermaid") if block.page.startswith("docs/")] == []  # So does a drawing.
    tracked = subprocess.run(["git", "ls-files", "site"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert tracked == ""
