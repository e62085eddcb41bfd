"""What the table of vLLM's options says of an option is what the check accepts for it."""

from typing import Any

import pytest
from pydantic import ValidationError

from deployments.models import vllm_options
from deployments.models.vllm_options import engine_options, known_parsers, other_version, table_version


@pytest.mark.parametrize(
    ("options", "is_accepted"),
    [
        ({"max_model_len": 4096, "dtype": "float32", "enforce_eager": True}, True),
        ({"hf_overrides": {"is_matryoshka": True}, "compilation_config": {"level": 3}}, True),
        ({"max_model_len": None}, True),
        ({"default_chat_template_kwargs": {"enable_thinking": False}}, True),
        ({"gpu_memory_utilization": 1}, True),
        ({"gpu_memory_utilization": 0}, False),
        ({"dtype": "float33"}, False),
        ({"max_model_len": "many"}, False),
        ({"tensor_parallel_size": "4"}, False),
        ({"enforce_eager": "yes"}, False),
        ({"no_such_option": 1}, False),
        ({"_api_process_count": 1}, False),
    ],
)
def test_options_are_accepted_as_vllm_would(options: dict[str, Any], is_accepted: bool) -> None:
    if is_accepted:
        engine_options().model_validate(options)
    else:
        with pytest.raises(ValidationError):
            engine_options().model_validate(options)


def test_parsers_are_listed() -> None:
    assert {"hermes", "llama3_json", "openai"} <= set(known_parsers("tool_parsers"))
    assert {"qwen3", "openai_gptoss"} <= set(known_parsers("reasoning_parsers"))


def test_the_table_fits_the_locked_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_options.importlib.metadata, "version", lambda package: table_version())
    assert other_version() is None
    monkeypatch.setattr(vllm_options.importlib.metadata, "version", lambda package: f"{table_version()}+cpu")
    assert other_version() is None
    monkeypatch.setattr(vllm_options.importlib.metadata, "version", lambda package: "0.99.0")
    assert other_version() == "0.99.0"


def test_without_vllm_the_table_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise vllm_options.importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(vllm_options.importlib.metadata, "version", missing)
    assert other_version() is None
