"""Starts vLLM through Ray's `LLMServer`, and creates the runners of operations.

Only this module and `submit` use private parts of the engine's interface.
"""

import asyncio
import os
from contextlib import nullcontext
from typing import Any

from ray.serve.llm import LLMConfig
from ray.serve.llm.deployment import LLMServer

from deployments.channel.server import Runner
from deployments.models.config import ModelConfig, deployment_name
from deployments.models.demo.sources import resolve_source
from deployments.operations import ENGINE_OPERATIONS
from deployments.replica.engine_metrics import gather_engine_metrics
from deployments.replica.processes import keep_freed_memory, quiet_libraries
from deployments.replica.renderers import (
    cut_long_prompts,
    keep_named_arguments,
    place_instructions,
    prepare_short_at_once,
)
from deployments.replica.runners import Adapters, RunnerContext, create_runner
from deployments.replica.scheduling.preparing import Notice, Preparing
from deployments.replica.schemas.budget import SchemaCompiler, describe_tokenizer
from deployments.replica.submit import StallWatch
from deployments.replica.tokenized import remember_parts

# CPU time per new schema: length bounds over a vocabulary of 100,000 tokens take 2 s, hostile schemas far more.
SCHEMA_CPU_S = 5
# How long a starting replica waits for the schema compiler: it takes two to ten seconds, more on a busy machine.
_WARM_S = 60.0

_SCHEDULERS = {
    ("generate", False): "deployments.replica.scheduling.scheduler.InteractiveFirst",
    ("generate", True): "deployments.replica.scheduling.scheduler.AsyncInteractiveFirst",
    ("pooling", False): "deployments.replica.scheduling.fair.FairScheduler",
    ("pooling", True): "deployments.replica.scheduling.fair.AsyncFairScheduler",
}
"""Our schedulers by the type of vLLM's runner, and whether it plans a step while the previous one runs."""
_MAX_LORAS, _MAX_CPU_LORAS = 4, 32
"""How many adapters run at once and are in memory, unless `engine_kwargs` sets it."""
_WORKER_EXTENSION = "deployments.replica.resume.worker.ResumingWorker"
_ONE_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"


class ReplicaEngine:
    """The engine of one replica, running; `runners` are by operation."""

    def __init__(self, server: LLMServer, model: ModelConfig, notice: Notice) -> None:
        self._server = server
        self._engine = server.engine  # Ray's engine holds vLLM's serving classes under these names.
        client = self._engine._engine_client
        self._watch = StallWatch(client, model.stall_s)
        self._schemas: SchemaCompiler | None = None
        self._schemas_start: asyncio.Task[None] | None = None
        self.runners: dict[str, Runner] = {}
        remember_parts(client.renderer)  # Before the others, which decide what it gets.
        cut_long_prompts(client.renderer, least_answer=int(model.task == "generate"))
        prepare_short_at_once(client.renderer)
        keep_named_arguments(client.renderer)
        place_instructions(client.renderer)
        adapters = Adapters(client, model.id, {name: model.adapter_source(name) for name in model.adapters})
        context = RunnerContext(
            model.id,
            client,
            self._find_serving,
            self._start_compiler,
            Preparing(notice),
            adapters,
            fill_in_middle=model.fill_in_middle,
            budgets=model.budgets,
        )
        for operation in ENGINE_OPERATIONS:
            if (runner := create_runner(operation, context)) is not None:
                self.runners[operation] = runner

    async def until_warm(self) -> None:
        """Wait until the process that tries schemas is warm, at most a minute.

        If it has not started by then, the first request with a schema starts it or waits for it.
        """
        if self._schemas_start is not None:
            await asyncio.wait({self._schemas_start}, timeout=_WARM_S)

    async def check_health(self) -> None:
        """Raise if the engine must be replaced."""
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
        """Return the compiler that tries schemas with this engine's vocabulary; it starts once."""
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
    """Return the model's engine, ready for requests; raises vLLM's own errors."""
    quiet_libraries()
    gather_engine_metrics()
    server = LLMServer.sync_init(llm_config_of(model))
    # What `server.start()` does, without its usage report, which would start another process.
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


def llm_config_of(model: ModelConfig) -> LLMConfig:
    """Return Ray's configuration for a model; builds a demo model that this node does not have yet."""
    source = resolve_source(model.source)
    options: dict[str, Any] = {
        "model_loading_config": {"model_id": model.id, "model_source": source},
        "engine_kwargs": _engine_kwargs(model),
        "deployment_config": {"name": deployment_name(model.id)},
        "runtime_env": {"env_vars": dict(model.env)},
        "log_engine_metrics": not model.engine_kwargs.get("disable_log_stats", False),
    }
    if model.device == "cpu":
        options["accelerator_config"] = {"kind": "cpu"}
        options["placement_group_config"] = model.placement_group_config or {"bundles": [{"CPU": 1}]}
    else:
        options["accelerator_type"] = model.accelerator_type
        if model.placement_group_config is not None:
            options["placement_group_config"] = model.placement_group_config
    config = LLMConfig(**options)
    if os.path.isdir(source):
        # The files are here. Ray's task that fetches them would import vLLM only to find that out.
        config.get_or_create_callback().ctx.run_init_node = False
    return config


def runs_in_one_process(model: ModelConfig) -> bool:
    """Return whether the engine's only worker can run in the engine's own process.

    On CPUs vLLM gives a worker its own process, to bind its threads to cores. Without binding, that only costs another
    import of vLLM (10 s), 0.7 GB of memory, and an engine that spins while it waits for the worker.
    """
    is_free = "distributed_executor_backend" not in model.engine_kwargs
    unbound = os.environ.get("VLLM_CPU_OMP_THREADS_BIND") == "nobind"
    return model.device == "cpu" and model.num_workers == 1 and is_free and unbound


def _engine_kwargs(model: ModelConfig) -> dict[str, Any]:
    """Return vLLM's options: defaults, then the operator's, then the service's own."""
    options: dict[str, Any] = {
        "enable_prefix_caching": True,
        "enable_prompt_tokens_details": True,
        "scheduling_policy": "priority",  # Interactive requests go before batches.
        "max_num_seqs": model.max_concurrent_requests,
        "max_model_len": model.context_tokens,
        **model.engine_kwargs,
        # Schemas are tried with this compiler before the engine gets them; another might fail on them. An unsure model
        # would fill an answer with white space if that were allowed.
        "structured_outputs_config": {
            "backend": "xgrammar",
            "disable_any_whitespace": True,
            **model.engine_kwargs.get("structured_outputs_config", {}),
        },
        "enable_log_requests": False,
    }
    if model.adapters:
        options["enable_lora"] = True
        options.setdefault("max_loras", min(len(model.adapters), _MAX_LORAS))
        options.setdefault("max_cpu_loras", max(options["max_loras"], min(len(model.adapters), _MAX_CPU_LORAS)))
    if model.task == "generate":
        options["worker_extension_cls"] = _WORKER_EXTENSION
    if model.task in ("embed", "score"):
        options.setdefault("runner", "pooling")
        options["enable_prefix_caching"] = model.engine_kwargs.get("enable_prefix_caching", False)
    if model.tool_parser is not None:
        options.update(enable_auto_tool_choice=True, tool_call_parser=model.tool_parser)
    if model.reasoning_parser is not None:
        options["reasoning_parser"] = model.reasoning_parser
    if model.chat_template is not None:
        options["chat_template"] = model.chat_template
    return options
