"""Which engine a replica starts: vLLM, or the function that the configuration names."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from deployments.models.config import ModelConfig
from deployments.replica.server import find_engine

MODEL = {"id": "demo/chat", "source": "demo:chat", "max_model_len": 4096}


async def start_engine(model: ModelConfig) -> str:
    return f"an engine for {model.id}"


def test_the_engine_is_vllm_unless_another_is_named() -> None:
    assert ModelConfig.model_validate(MODEL).engine == "vllm"


async def test_a_named_function_starts_the_engine() -> None:
    model = ModelConfig.model_validate({**MODEL, "engine": f"{__name__}:start_engine"})
    assert await find_engine(model.engine)(model) == "an engine for demo/chat"  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    "name", ["", "sglang", "package.module", "package.module:", ":start", "a b:c", "a:b:c", "vllm\n"]
)
def test_a_name_of_another_shape_is_refused_with_the_configuration(name: str) -> None:
    with pytest.raises(ValidationError) as refused:
        ModelConfig.model_validate({**MODEL, "engine": name})
    assert refused.value.errors()[0]["loc"] == ("engine",)


def test_a_function_that_is_not_there_is_an_error_of_its_own() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        find_engine("no_such_package.engine:start")
    with pytest.raises(AttributeError, match="no_such_function"):
        find_engine(f"{__name__}:no_such_function")


def test_a_replica_with_an_engine_of_its_own_loads_no_vllm() -> None:
    code = """
import sys
from deployments.replica.server import ModelReplica, find_engine
find_engine("asyncio:sleep")
assert not {"vllm", "torch"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
