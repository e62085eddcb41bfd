"""Starts vLLM through Ray's `LLMServer`, and attaches the runners of operations.

Only this module and `submit` use parts of the engine's interface that are not public.
"""

import asyncio
from contextlib import nullcontext
from typing import Any

from ray.serve.llm.deployment import LLMServer

from deployments.channel.server import Runner
from deployments.models.config import ModelConfig
from deployments.operations import ENGINE_OPERATIONS
from deployments.replica.adapters import adapters_of
from deployments.replica.engine_metrics import gather_engine_metrics
from deployments.replica.long_prompts import cut_long_prompts
from deployments.replica.malloc import keep_freed_memory
from deployments.replica.options import llm_config_of, runs_in_one_process
from deployments.replica.quiet_libraries import quiet_libraries
from deployments.replica.runners import RunnerContext, create_runner
from deployments.replica.scheduling.notice import Notice
from deployments.replica.scheduling.preparing import Preparing
from deployments.replica.schemas.budget import SchemaCompiler, describe_tokenizer
from deployments.replica.short_prompts import prepare_short_at_once
from deployments.replica.submit import StallWatch
from deployments.replica.template_arguments import keep_named_arguments

# CPU time per new schema: length bounds over a vocabulary of 100,000 tokens take 2 s, hostile schemas far more.
SCHEMA_CPU_S = 5
# How long a replica that starts waits for what tries schemas out: two to ten seconds, more on a machine that is busy.
_WARM_S = 60.0

_SCHEDULERS = {
    ("generate", False): "deployments.replica.scheduling.scheduler.InteractiveFirst",
    ("generate", True): "deployments.replica.scheduling.scheduler.AsyncInteractiveFirst",
    ("pooling", False): "deployments.replica.scheduling.fair.FairScheduler",
    ("pooling", True): "deployments.replica.scheduling.fair.AsyncFairScheduler",
}
"""Ours by what vLLM's runner does, and whether it plans a step while the previous one runs."""
_ONE_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"


class ReplicaEngine:
    """The engine of one replica, running; `runners` are by operation."""

    def __init__(self, server: LLMServer, model: ModelConfig, notice: Notice) -> None:
        self._server = server
        self._engine = server.engine  # Ray's engine holds vLLM's serving classes under these names.
        self._watch = StallWatch(self._engine._engine_client, model.stall_s)
        self._schemas: SchemaCompiler | None = None
        self._schemas_start: asyncio.Task[None] | None = None
        self.runners: dict[str, Runner] = {}
        renderer = self._engine._engine_client.renderer
        cut_long_prompts(renderer, least_answer=int(model.task == "generate"))
        prepare_short_at_once(renderer)
        keep_named_arguments(renderer)
        preparing = Preparing(notice)
        client = self._engine._engine_client
        context = RunnerContext(
            model.id, client, self._find_serving, self._start_compiler, preparing, adapters_of(client, model)
        )
        for operation in ENGINE_OPERATIONS:
            if (runner := create_runner(operation, context)) is not None:
                self.runners[operation] = runner

    async def until_warm(self) -> None:
        """Return when a first request with a schema need not wait for the process that tries it out.

        Where that process does not start, or takes too long, such a request starts it again or waits for it.
        """
        if self._schemas_start is not None:
            await asyncio.wait({self._schemas_start}, timeout=_WARM_S)

    async def check_health(self) -> None:
        """Raise when the engine must be replaced."""
        await self._server.check_health()
        self._watch.check()

    async def stop(self) -> None:
        """End the engine and the processes beside it."""
        if self._schemas is not None:
            await self._schemas.aclose()
        await self._engine.shutdown()
        await asyncio.to_thread(self._engine._engine_client.shutdown)

    def _find_serving(self, name: str) -> Any:
        if name == "tokenization":  # Ray looks for it under a name that vLLM no longer uses.
            return self._engine._app_state.serving_tokenization
        return getattr(self._engine, f"_oai_serving_{name}")

    def _start_compiler(self) -> SchemaCompiler:
        """Return the compiler that tries schemas with this engine's vocabulary; started once."""
        if self._schemas is not None:
            return self._schemas
        config = self._engine._engine_client.vllm_config
        tokenizer = self._engine._oai_serving_chat.renderer.tokenizer
        self._schemas = SchemaCompiler(
            describe_tokenizer(tokenizer, config.model_config.get_vocab_size()),
            any_whitespace=not config.structured_outputs_config.disable_any_whitespace,
            cpu_s=SCHEMA_CPU_S,
        )
        self._schemas_start = asyncio.create_task(self._schemas.start())
        return self._schemas


async def start_engine(model: ModelConfig) -> ReplicaEngine:
    """Return the model's engine, ready for requests.

    Raises:
        Exception: vLLM's own, where it does not start; its log says why.
    """
    quiet_libraries()
    gather_engine_metrics()
    server = LLMServer.sync_init(llm_config_of(model))
    # As `server.start()` does, but for the report on usage, for which it would start a process of its own.
    server.engine = _tuned(server._engine_cls, runs_in_one_process(model))(server._llm_config)
    memory = keep_freed_memory() if model.device == "cpu" else nullcontext()
    with Notice.offer() as notice, memory:
        await server.engine.start()
    engine = ReplicaEngine(server, model, notice)
    await engine.until_warm()
    return engine


def _tuned(engine_class: type[Any], in_one_process: bool) -> type[Any]:
    """Return Ray's engine class with our scheduler and, if asked, the worker inside the engine's process."""

    class TunedEngine(engine_class):  # type: ignore[misc]
        def _start_async_llm_engine(self, engine_args: Any, engine_config: Any, placement_group: Any) -> Any:
            if in_one_process:
                engine_config.parallel_config.distributed_executor_backend = _ONE_PROCESS
            scheduling = engine_config.scheduler_config
            if scheduling.policy == "priority" and scheduling.scheduler_cls is None:
                runner = engine_config.model_config.runner_type
                scheduling.scheduler_cls = _SCHEDULERS[runner, bool(scheduling.async_scheduling)]
            return super()._start_async_llm_engine(engine_args, engine_config, placement_group)

    return TunedEngine
