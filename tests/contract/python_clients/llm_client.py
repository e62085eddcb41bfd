"""The command line program `llm`, told of the service in its file of models."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from asks import API_KEY, BASE_URL, HELLO, MODEL


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of its settings that knows the service's model as `manta`."""
    model = {"model_id": "manta", "model_name": MODEL, "api_base": BASE_URL, "api_key_name": "manta"}
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps([model | {"supports_schema": True}]))
    (tmp_path / "keys.json").write_text(json.dumps({"manta": API_KEY}))
    return tmp_path


def run(home: Path, *words: str) -> str:
    command = [str(Path(sys.executable).with_name("llm")), *words]
    environment = {**os.environ, "LLM_USER_PATH": str(home)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("options", [[], ["--no-stream"]], ids=["streamed", "whole"])
def test_a_prompt_is_answered(home: Path, options: list[str]) -> None:
    assert run(home, "-m", "manta", *options, "hello") == HELLO


def test_a_conversation_goes_on(home: Path) -> None:
    run(home, "-m", "manta", "hello")
    assert run(home, "-m", "manta", "-c", "hello") == HELLO


def test_an_object_is_filled_in(home: Path) -> None:
    assert json.loads(run(home, "-m", "manta", "--schema", "city string", "object")) == {"city": "Kiel"}
