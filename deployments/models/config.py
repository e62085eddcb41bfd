"""The settings of a model: a few lines of YAML, checked when the application is deployed."""

import math
from typing import Annotated, Any, Final, Literal

from pydantic import Field, WithJsonSchema, model_validator

from deployments.config import Section
from deployments.models.adapters import AdapterConfig, AdapterName
from deployments.models.contract.engine import Adapter, ModelCard
from deployments.models.fill_in_middle import FillInMiddle
from deployments.models.price import PriceConfig
from deployments.models.reasoning import Effort, reasoning_budgets
from deployments.operations import MODEL_OPERATIONS, Operation, Task, operations_of

GRAMMAR_PARSERS = frozenset({"hermes", "llama3_json"})
"""The parsers of calls written as JSON, where the input of a custom tool can be held to a grammar."""
RELEASED = 1767225600  # The default of `created`: the first day of 2026, so that it never changes.
VLLM: Final = "vllm"
_Offered = Annotated[
    Operation,
    WithJsonSchema({"type": "string", "enum": [name.value for name, about in MODEL_OPERATIONS.items() if about.tasks]}),
]


class BatchReplicas(Section):
    """Replicas of a model that run only lines of batches.

    Args:
        min_replicas: how many run at least; with 0, they stop when there are no lines.
        max_replicas: how many run at most.
    """

    min_replicas: int = Field(default=0, ge=0, le=10_000)
    max_replicas: int = Field(ge=1, le=10_000)

    @model_validator(mode="after")
    def _at_most_is_not_below_at_least(self) -> "BatchReplicas":
        if self.min_replicas > self.max_replicas:
            raise ValueError("min_replicas: should be at most max_replicas")
        return self


class ModelConfig(Section):
    """One model deployment.

    Args:
        id: the name that clients use, `<provider>/<name>` or a bare name.
        source: a hub id, a path, a bucket's address, `demo:NAME` or `package:NAME`.
        engine: "vllm", or your own engine as "package.module:function", a coroutine function from this configuration
            to a `deployments.replica.server.RunningEngine`.
        aliases: other names that clients may use.
        description: what the model is for, in a sentence or two; the console's page of models shows it.
        task: `generate` for text, `embed` for vectors, `score` for a cross-encoder, which scores pairs of texts.
        operations: the operations that the model offers; by default all that its task allows.
        owned_by: `owned_by` of the model object; by default the provider.
        created: `created` of the model object, in Unix seconds.
        device: the hardware of the engine.
        accelerator_type: the kind of GPU, as Ray names it.
        max_model_len: the context in tokens, here or in `engine_kwargs`.
        tool_parser: vLLM's parser of tool calls; without one the model offers no tools.
        reasoning_parser: vLLM's parser of reasoning.
        reasoning_budgets: the budget of reasoning at each effort, in tokens, such as `{low: 2000, high: null}`; null
            sets no bound. By default a sixteenth of the context for `minimal`, then an eighth, a quarter and a half, at
            most 1,024, 4,096, 16,384 and 65,536 tokens; three quarters for `xhigh` and `max`, and 0 for `none`.
        chat_template: a template in place of the model's own.
        has_images: whether prompts may contain images.
        fill_in_middle: the tokens that mark the gap where a completion's `suffix` follows; without it, those of
            Qwen-Coder, StarCoder, CodeLlama, DeepSeek and Codestral are found by themselves.
        dimensions: the sizes of vectors that clients may ask for.
        adapters: LoRA adapters by name; clients name one `ID:NAME`. `engine_kwargs` may set vLLM's `max_loras`,
            `max_cpu_loras` and `max_lora_rank`.
        adapters_from: the directory or bucket's address with a folder for each adapter that names no source.
        price: the price of a million tokens; without it requests are free.
        env: environment variables of the engine's processes.
        max_concurrent_requests: how many requests run in one replica's engine at once.
        max_queued_requests: how many more may wait for a replica. If all places are taken, an account with less than an
            equal part of them is still accepted.
        drain_s: how long a replica that stops waits for its running requests, in seconds.
        stall_s: the seconds without any progress after which an engine is replaced.
        scale_to_zero_wait_s: how long a request waits for a first replica, in seconds.
        resume_wait_s: how long a request whose replica or engine has died waits for another one, in seconds. A stream
            pauses meanwhile; then its client gets an error.
        max_surge_percent: how many more replicas there may be while a new configuration goes live, in percent. Above
            0 the new ones start before the old ones go, and no request waits; if the cluster has no room for them, the
            old ones stay. 0, the default for GPUs, stops old ones first.
        batch_replicas: separate replicas for the lines of batches, with the other fields of `autoscaling_config`;
            without it lines run on the same replicas as interactive requests, which go first.
        autoscaling_config, ray_actor_options, placement_group_config, engine_kwargs: as Ray and vLLM name them.
    """

    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$", max_length=128)
    source: str = Field(min_length=1)
    engine: str = Field(default=VLLM, pattern=rf"^({VLLM}|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*)$")
    aliases: tuple[str, ...] = ()
    description: str = Field(default="", max_length=500)
    task: Task = "generate"
    operations: tuple[_Offered, ...] | None = None
    owned_by: str | None = None
    created: int = RELEASED
    device: Literal["cpu", "gpu"] = "gpu"
    accelerator_type: str | None = None
    max_concurrent_requests: int = Field(default=256, ge=1, le=100_000)
    max_queued_requests: int = Field(default=512, ge=0, le=1_000_000)
    scale_to_zero_wait_s: float = Field(default=60.0, gt=0, le=3600)
    resume_wait_s: float = Field(default=60.0, ge=0, le=3600)
    max_surge_percent: int | None = Field(default=None, ge=0, le=100)
    drain_s: float = Field(default=120.0, ge=0, le=3600)
    stall_s: float = Field(default=600.0, ge=10)
    autoscaling_config: dict[str, Any] = Field(default_factory=lambda: {"min_replicas": 1, "max_replicas": 1})
    batch_replicas: BatchReplicas | None = None
    ray_actor_options: dict[str, Any] = {}
    placement_group_config: dict[str, Any] | None = None
    engine_kwargs: dict[str, Any] = {}
    price: PriceConfig | None = None
    env: dict[str, str] = {}
    max_model_len: int | None = Field(default=None, ge=1)
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    reasoning_budgets: dict[Effort, Annotated[int, Field(ge=0, le=2**31 - 1)] | None] = {}
    chat_template: str | None = None
    has_images: bool = False
    fill_in_middle: FillInMiddle | None = None
    dimensions: tuple[int, ...] | None = None
    adapters: dict[AdapterName, AdapterConfig] = {}
    adapters_from: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _operations_fit_the_task(self) -> "ModelConfig":
        wrong = ", ".join(sorted(set(self.operations or ()) - operations_of(self.task)))
        if wrong:
            raise ValueError(f"operations: {wrong} cannot be offered by a model whose task is {self.task}")
        if self.context_tokens is None:
            raise ValueError("max_model_len: say the context size here or in engine_kwargs.max_model_len")
        for name in ("model", "served_model_name", "enable_log_requests", "worker_extension_cls"):
            if name in self.engine_kwargs:
                raise ValueError(f"engine_kwargs.{name}: is set by the service itself")
        forms = self.engine_kwargs.get("structured_outputs_config", {})
        if not isinstance(forms, dict) or forms.get("backend", "xgrammar") != "xgrammar":
            raise ValueError(
                "engine_kwargs.structured_outputs_config.backend: must be xgrammar. Schemas are tried with it first; "
                "one that another backend fails on would end the engine."
            )
        return self

    @model_validator(mode="after")
    def _adapters_have_a_source(self) -> "ModelConfig":
        if self.adapters and self.task != "generate":
            raise ValueError("adapters: only a model whose task is generate can have them")
        if self.adapters_from is None:
            lost = ", ".join(name for name, adapter in self.adapters.items() if adapter.source is None)
            if lost:
                raise ValueError(f"adapters: {lost} need a source, or the model needs adapters_from")
        return self

    def adapter_source(self, name: str) -> str:
        """Return where the files of an adapter are."""
        return self.adapters[name].source or f"{(self.adapters_from or '').rstrip('/')}/{name}"

    @property
    def context_tokens(self) -> int | None:
        """The model's context size in tokens."""
        return self.max_model_len or self.engine_kwargs.get("max_model_len")

    @property
    def budgets(self) -> dict[str, int]:
        """The budget of reasoning by effort, in tokens."""
        return reasoning_budgets(self.context_tokens or 0, self.reasoning_budgets)

    @property
    def is_kept_running(self) -> bool:
        """Whether it has a replica also without requests; Ray's default for `min_replicas` is 1."""
        return bool(self.autoscaling_config.get("min_replicas", 1))

    @property
    def num_workers(self) -> int:
        """How many workers one engine has: as many as it is split over."""
        sizes = ("tensor_parallel_size", "pipeline_parallel_size")
        return math.prod(self.engine_kwargs.get(size, 1) for size in sizes)

    @property
    def card(self) -> ModelCard:
        """What the ingress knows of the model."""
        return ModelCard(
            id=self.id,
            operations=frozenset(self.operations or operations_of(self.task)),
            max_model_len=self.context_tokens or 0,
            created=self.created,
            owned_by=self.owned_by or (self.id.split("/")[0] if "/" in self.id else "manta"),
            has_tools=self.tool_parser is not None,
            holds_grammars=self.tool_parser in GRAMMAR_PARSERS,
            has_reasoning=self.reasoning_parser is not None,
            has_images=self.has_images,
            reads_pairs=self.task == "score",
            dimensions=self.dimensions,
            aliases=self.aliases,
            description=self.description,
            adapters=tuple(
                Adapter(name, None if adapter.accounts is None else frozenset(adapter.accounts))
                for name, adapter in self.adapters.items()
            ),
        )


def deployment_name(model_id: str, *, for_batches: bool = False) -> str:
    """Return the name of a model's deployment in Serve, or of its deployment for batches."""
    return ("batch:" if for_batches else "model:") + model_id.replace("/", "--").replace(".", "_")
