"""From a model's configuration to its Serve deployment, over `ray.serve.llm`."""

from typing import Any

from ray.serve.deployment import Application
from ray.serve.llm import LLMConfig, build_llm_deployment

from deployments.models.config import ModelConfig
from deployments.models.demo import resolve_source
from deployments.models.replica.server import ModelServer

# What the replica gets on top of the time to drain: to stop the engine.
STOP_S = 20.0


def build_model_deployment(model: ModelConfig) -> Application:
    """Return the Serve deployment of one model, not yet deployed."""
    bounds = (model.max_concurrent_requests, model.max_queued_requests)
    return build_llm_deployment(
        llm_config_of(model),
        name_prefix="model:",
        bind_kwargs={"bounds": bounds, "drain_s": model.drain_s, "stall_s": model.stall_s},
        deployment_cls=ModelServer,
    )


def llm_config_of(model: ModelConfig) -> LLMConfig:
    """Return Ray's configuration for a model of ours."""
    options: dict[str, Any] = {
        "model_loading_config": {"model_id": model.id, "model_source": resolve_source(model.source)},
        "engine_kwargs": _engine_kwargs(model),
        "deployment_config": _deployment_config(model),
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
    return LLMConfig(**options)


def _engine_kwargs(model: ModelConfig) -> dict[str, Any]:
    """Return vLLM's options: ours, which the operator's own replace, beside the few that are not theirs to set."""
    options: dict[str, Any] = {
        "enable_prefix_caching": True,
        "enable_prompt_tokens_details": True,
        "scheduling_policy": "priority",  # So that batches can stand behind interactive requests.
        "max_num_seqs": model.max_concurrent_requests,
        "max_model_len": model.context_tokens,
        **model.engine_kwargs,
        # Schemas are tried out with this compiler before the engine sees them; another one would meet them unprepared.
        "structured_outputs_config": {
            "backend": "xgrammar",
            **model.engine_kwargs.get("structured_outputs_config", {}),
        },
        "enable_log_requests": False,
    }
    if model.task == "embed":
        options.setdefault("runner", "pooling")
        options["enable_prefix_caching"] = model.engine_kwargs.get("enable_prefix_caching", False)
        options.pop("scheduling_policy")
    if model.tool_parser is not None:
        options.update(enable_auto_tool_choice=True, tool_call_parser=model.tool_parser)
    if model.reasoning_parser is not None:
        options["reasoning_parser"] = model.reasoning_parser
    if model.chat_template is not None:
        options["chat_template"] = model.chat_template
    return options


def _deployment_config(model: ModelConfig) -> dict[str, Any]:
    return {
        "autoscaling_config": {
            "target_ongoing_requests": max(1, model.max_concurrent_requests // 2),
            **model.autoscaling_config,
            "policy": {"policy_function": "deployments.models.autoscaling:desired_replicas"},
        },
        "request_router_config": {"request_router_class": "deployments.models.prefix_router:PrefixRouter"},
        # The engine's bundle is what the replica needs; Ray would ask for another CPU for the replica itself.
        "ray_actor_options": {"num_cpus": 0, **model.ray_actor_options},
        "max_ongoing_requests": 1_000_000,  # Nothing comes over handles; the replica's channel has the real bound.
        "graceful_shutdown_timeout_s": model.drain_s + STOP_S,
        "health_check_period_s": 5.0,
        "health_check_timeout_s": 30.0,
    }
