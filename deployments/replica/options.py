"""Translates a model's configuration into options of Ray and vLLM."""

import os
from typing import Any

from ray.serve.llm import LLMConfig

from deployments.models.config import ModelConfig, deployment_name
from deployments.models.demo.sources import resolve_source

_MAX_LORAS, _MAX_CPU_LORAS = 4, 32
"""How many adapters run at once and are in memory, at most, where `engine_kwargs` does not say it."""
_WORKER_EXTENSION = "deployments.replica.resume.worker.ResumingWorker"


def llm_config_of(model: ModelConfig) -> LLMConfig:
    """Return Ray's configuration for a model; makes a demo model first where this node has none."""
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
        # The files are here already; the task that would fetch them imports vLLM only to find that out.
        config.get_or_create_callback().ctx.run_init_node = False
    return config


def runs_in_one_process(model: ModelConfig) -> bool:
    """Return whether the engine's only worker can be a part of the engine's own process.

    On CPUs vLLM gives a worker a process of its own, to bind its threads to cores. Without binding, that only costs one
    more import of vLLM (ten seconds), 0.7 GB of memory, and an engine that spins while it waits for the worker.
    """
    is_free = "distributed_executor_backend" not in model.engine_kwargs
    unbound = os.environ.get("VLLM_CPU_OMP_THREADS_BIND") == "nobind"
    return model.device == "cpu" and model.num_workers == 1 and is_free and unbound


def _engine_kwargs(model: ModelConfig) -> dict[str, Any]:
    """Return vLLM's options: defaults, the operator's own, and those that the service always sets."""
    options: dict[str, Any] = {
        "enable_prefix_caching": True,
        "enable_prompt_tokens_details": True,
        "scheduling_policy": "priority",  # So that interactive requests go before batches.
        "max_num_seqs": model.max_concurrent_requests,
        "max_model_len": model.context_tokens,
        **model.engine_kwargs,
        # Schemas are tried with this compiler before the engine gets them; another might fail on them. A model that is
        # unsure would fill an answer with white space where that is allowed.
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
