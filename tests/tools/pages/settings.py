"""The reference page of the settings, from the configuration's models."""

import enum
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, RootModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from deployments.descriptions import meanings_of, summary_of
from serve_app.config import ServiceConfig
from serve_app.documentation.guides import slug
from tests.tools.pages.tables import cell, plain

_INTRODUCTION = """# Settings

The `args:` of the Serve application. A name that is not listed here is an error at deployment. A *reference* is
`{env: NAME}`, with an optional `default`, or `{file: PATH}`. Everything beside `args:` is Ray Serve's.

See [Configure](../operate/configure.md) for the files around these settings.
"""


def render_settings() -> str:
    parts = [_INTRODUCTION]
    seen: set[type[BaseModel]] = set()
    pending: list[tuple[str, type[BaseModel]]] = [("args", ServiceConfig)]
    while pending:
        path, model = pending.pop(0)
        if model in seen:
            continue
        seen.add(model)
        meanings = meanings_of(model)
        parts += [
            f"## `{path}`\n",
            f"{summary_of(model)}\n",
            "| setting | type | default | meaning |",
            "|---|---|---|---|",
        ]
        kinds = [_sections_in(field.annotation) for field in model.model_fields.values()]
        for (name, field), inner in zip(model.model_fields.items(), kinds, strict=True):
            path_of = _path_of(path, name, _unwrapped(field.annotation), is_shared=kinds.count(inner) > 1)
            pending += [(path_of if len(inner) == 1 else f"{path_of} ({_tag(kind)})", kind) for kind in inner]
            linked = ", ".join(_link(path_of, kind, is_only=len(inner) == 1) for kind in inner[:3])
            meaning = ". ".join(filter(None, [meanings.get(name, "").rstrip("."), linked])) or " "
            row = (f"`{name}`", _type_name(field), _default(field), meaning)
            parts.append("| " + " | ".join(cell(text) for text in row) + " |")
        parts.append("")
    return "\n".join(parts)


def _link(path: str, model: type[BaseModel], *, is_only: bool) -> str:
    """Return a link to the section of a model; one of several is called by its name."""
    heading = path if is_only else f"{path} ({_tag(model)})"
    return f"See [`{path}`](#{slug(heading)})" if is_only else f"[`{_tag(model)}`](#{slug(heading)})"


def _sections_in(annotation: Any) -> list[type[BaseModel]]:
    return [kind for kind in _models_in(annotation) if not kind.__name__.endswith("Reference")]


def _unwrapped(annotation: Any) -> Any:
    """Return what a root model holds; any other annotation as it is."""
    if isinstance(annotation, type) and issubclass(annotation, RootModel):
        return annotation.model_fields["root"].annotation
    return annotation


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    annotation = _unwrapped(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _models_in(inner)


def _path_of(path: str, name: str, annotation: Any, *, is_shared: bool) -> str:
    """Return where a section stands; `is_shared` says that its siblings have the same settings."""
    origin = typing.get_origin(annotation)
    name = f"{name}[]" if origin in (tuple, list) else f"{name}.*" if origin is dict else "*" if is_shared else name
    return name if path == "args" else f"{path}.{name}"


def _tag(model: type[BaseModel]) -> str:
    field = model.model_fields.get("name")
    tags = typing.get_args(field.annotation) if field is not None else ()
    return str(tags[0]) if tags else model.__name__


def _type_name(field: FieldInfo) -> str:
    metadata = [*field.metadata, *_metadata_in(field.annotation)]
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    limits = {name: getattr(item, name) for item in metadata for name in signs if hasattr(item, name)}
    bounds = ", ".join(f"{signs[name]} {_number(limit)}" for name, limit in limits.items())
    null = "or null" if field.is_required() and types.NoneType in typing.get_args(field.annotation) else ""
    return " ".join(filter(None, [_name_of(field.annotation), bounds and f"({bounds})", null]))


def _metadata_in(annotation: Any) -> list[Any]:
    """Return the bounds of an `Annotated` type that may be null."""
    found: list[Any] = []
    for inner in typing.get_args(annotation):
        for item in getattr(inner, "__metadata__", ()):
            found += getattr(item, "metadata", [item])
    return found


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _name_of(annotation: Any) -> str:
    annotation = _unwrapped(annotation)
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _name_of(inner[0])
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin in (typing.Union, types.UnionType):
        names = dict.fromkeys(_name_of(kind) for kind in inner if kind is not types.NoneType)
        return " or ".join(names)
    if origin in (tuple, list, frozenset):
        return f"list of {_name_of(inner[0])}{'s' if _name_of(inner[0]) == 'name' else ''}"
    if origin is dict or annotation is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "reference" if annotation.__name__.endswith("Reference") else "section"
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return "name"
    names = {str: "text", int: "integer", float: "number", bool: "true or false", Path: "path"}
    name = names.get(annotation, getattr(annotation, "__name__", str(annotation)))
    return name.replace("Network", " network").replace("HttpUrl", "URL")


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True) if field.default_factory is None else field.default_factory()  # type: ignore[call-arg]
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, RootModel):
        shown = value.model_dump(mode="json")
        return f"`{plain(shown)}`" if len(plain(shown)) <= 120 else ", ".join(f"`{name}`" for name in shown)
    if isinstance(value, BaseModel):
        return _default_section(value)
    if value is None or value == "":
        return "none"
    if isinstance(value, str) and len(value) > 60:
        return "a built-in text"
    return f"`{value:,}`" if isinstance(value, int) and not isinstance(value, bool) else f"`{plain(value)}`"


def _default_section(value: BaseModel) -> str:
    """Return the default of a section; a reference to the section where each setting has its own default."""
    required = any(field.is_required() for field in type(value).model_fields.values())
    if not required and value == type(value)():
        return "the section's defaults"
    return f"`{plain(value.model_dump(mode='json', exclude_none=True))}`"
