"""The tools that the service runs itself, and their items, gathered from one module of this package for each tool."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar, get_args

from deployments.operations import TOOLS
from serve_app.schemas.base import WireModel
from serve_app.schemas.responses.built_in_tool import BuiltInItem, BuiltInTool

Base = TypeVar("Base", bound=WireModel)


def _classes_of(base: type[Base]) -> Iterator[type[Base]]:
    """Yield the classes of this kind that the tools' modules define, in the order of the tools and of the modules."""
    for tool in TOOLS:
        module = import_module(f"serve_app.schemas.responses.{tool}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__:
                yield value


def types_of(kind: type[WireModel]) -> tuple[str, ...]:
    """Return the values that the field `type` of a class may have."""
    return get_args(kind.model_fields["type"].annotation)


BUILT_IN_TOOLS: tuple[type[BuiltInTool], ...] = tuple(_classes_of(BuiltInTool))
BUILT_IN_ITEMS: Mapping[str, type[BuiltInItem]] = {
    name: kind for kind in _classes_of(BuiltInItem) for name in types_of(kind)
}
"""By type."""
