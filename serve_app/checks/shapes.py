"""The sections of a Serve file, each with the model that says which settings it may have.

Sections that Manta passes on to Ray and vLLM have their models there, and none of them may have other names.
"""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, Field, create_model

from deployments.config import Section
from deployments.models.vllm_options import engine_options
from serve_app.checks.document import ANY, Pattern
from serve_app.config import ServiceConfig

IMPORT_PATH = "serve_app.app:build"
ARGS: Pattern = ("applications", ANY, "args")
MODELS: Pattern = (*ARGS, "models", ANY)
_INTERPRETER: Pattern = (*ARGS, "tools", "code_interpreter")

Amount = Annotated[float, Field(ge=0)]
Bundle = dict[str, Amount]


class PlacementConfig(Section):
    """The resources of each replica of a model, as Ray names them: CPU, GPU, memory in bytes, or one of your own.

    Args:
        bundles: one for each worker of the engine. The first includes the replica itself.
        bundle_per_worker: the same for every worker, instead of `bundles`.
        strategy: whether the bundles go on one node (PACK), or on different ones (SPREAD).
    """

    bundles: tuple[Bundle, ...] | None = None
    bundle_per_worker: Bundle | None = None
    strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK"


class Shape(NamedTuple):
    """Where a section stands, and its model."""

    pattern: Pattern
    kind: Callable[[], type[BaseModel]]
    is_vllm: bool = False


def _file() -> type[BaseModel]:
    from ray.serve.schema import ServeDeploySchema  # Seconds to import, as is all of Ray below.

    kind: type[BaseModel] = ServeDeploySchema
    return kind


@cache
def _environment() -> type[BaseModel]:
    from ray.runtime_env import RuntimeEnv

    fields: dict[str, Any] = {name: (Any, None) for name in RuntimeEnv.known_fields if not name.startswith("_")}
    return create_model("RuntimeEnvironment", **{**fields, "env_vars": (dict[str, str] | None, None)})


def _scaling() -> type[BaseModel]:
    from ray.serve.config import AutoscalingConfig

    kind: type[BaseModel] = AutoscalingConfig
    return kind


def _actor() -> type[BaseModel]:
    from ray.serve.schema import RayActorOptionsSchema

    kind: type[BaseModel] = RayActorOptionsSchema
    return kind


SETTINGS = Shape(ARGS, lambda: ServiceConfig)
"""Manta's own settings, which can be checked without Ray."""
SHAPES = (
    Shape((), _file),
    Shape(("applications", ANY, "runtime_env"), _environment),
    SETTINGS,
    Shape((*ARGS, "ingress", "autoscaling_config"), _scaling),
    Shape((*_INTERPRETER, "autoscaling_config"), _scaling),
    Shape((*_INTERPRETER, "ray_actor_options"), _actor),
    Shape((*MODELS, "autoscaling_config"), _scaling),
    Shape((*MODELS, "ray_actor_options"), _actor),
    Shape((*MODELS, "ray_actor_options", "runtime_env"), _environment),
    Shape((*MODELS, "placement_group_config"), lambda: PlacementConfig),
    Shape((*MODELS, "engine_kwargs"), engine_options, is_vllm=True),
)
"""All sections of a Serve file that are checked."""
