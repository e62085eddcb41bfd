"""The lines for an operator to paste are complete and correct."""

import ast
import json
import shlex
from pathlib import Path

from deployments.models.config import ModelConfig
from serve_app.cli.supervise.welcome import render_welcome

CHAT = ModelConfig(id="manta/demo-chat", source="demo:chat", max_model_len=4096)
EMBEDDING = ModelConfig(id="all-minilm-l6-v2", source="package:x", task="embed", max_model_len=256)
RANKER = ModelConfig(id="ranker", source="demo:rank", task="score", max_model_len=256)
URL = "http://127.0.0.1:8000"


def python_of(text: str) -> str:
    return text[text.index("from openai") : text.index("Ctrl-C")]


def curl_of(text: str) -> list[str]:
    return shlex.split(next(line for line in text.splitlines() if line.startswith("curl ")))


def test_welcome_names_address_key_and_models() -> None:
    text = render_welcome(URL, [CHAT, EMBEDDING], "sk-manta-1", Path("/state/logs/serve.log"))
    assert f"{URL}/v1\n" in text
    assert "sk-manta-1\n" in text
    assert "manta/demo-chat, all-minilm-l6-v2" in text
    assert "/state/logs/serve.log" in text


def test_python_is_six_lines_that_parse() -> None:
    for models in ([CHAT, EMBEDDING], [EMBEDDING], [RANKER]):
        code = python_of(render_welcome(URL, models, "sk-manta-1", Path("log")))
        assert len(code.strip().splitlines()) == 6
        ast.parse(code)
        assert "sk-manta-1" in code
        assert models[0].id in code


def test_curl_carries_key_and_body() -> None:
    for model, path in ((CHAT, "chat/completions"), (EMBEDDING, "embeddings"), (RANKER, "rerank")):
        words = curl_of(render_welcome(URL, [model], "sk-manta-1", Path("log")))
        assert words[1] == f"{URL}/v1/{path}"
        assert "Authorization: Bearer sk-manta-1" in words
        assert json.loads(words[-1])["model"] == model.id


def test_welcome_says_how_to_get_a_key_when_one_was_issued_before() -> None:
    text = render_welcome(URL, [CHAT], None, Path("log"))
    assert "manta keys create" in text
    assert "YOUR_KEY" in curl_of(text)[3]


def test_welcome_says_how_to_get_another_key_at_the_first_start_too() -> None:
    assert ".venv/bin/manta keys create --tier standard" in render_welcome(URL, [CHAT], "sk-manta-1", Path("log"))


def test_a_code_interpreter_that_is_off_is_told_of_with_the_reason() -> None:
    reason = "bubblewrap is not installed: apt-get install bubblewrap"
    text = render_welcome(URL, [CHAT], None, Path("log"), interpreter_problem=reason)
    assert f"\nOff        Code interpreter: {reason}\n" in text
    assert "Off " not in render_welcome(URL, [CHAT], None, Path("log"))


def test_the_console_is_shown_with_its_link_where_there_is_one() -> None:
    without = render_welcome(URL, [CHAT], None, Path("log"))
    assert f"Console    {URL}/console\n" in without
    assert "sign-in" not in without
    assert f"{URL}/console/sign-in?link=token\n" in render_welcome(URL, [CHAT], None, Path("log"), "token")
