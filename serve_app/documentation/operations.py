"""The operations of the OpenAPI document as the reference shows them, by resource."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from serve_app.documentation.fields import Field, FieldReader, ObjectType
from serve_app.documentation.resources import Resource, resource_of, resources_of

Json = Mapping[str, Any]

_FORM = "multipart/form-data"


class Content(NamedTuple):
    """A body or an answer of one media type."""

    media_type: str
    objects: tuple[ObjectType, ...]


class ShownOperation(NamedTuple):
    """An operation. `paths` are its paths, the usual one first; `form` are the fields of its multipart form."""

    anchor: str
    method: str
    paths: tuple[str, ...]
    summary: str
    description: str
    needs_key: bool
    in_path: tuple[Field, ...]
    in_query: tuple[Field, ...]
    bodies: tuple[Content, ...]
    form: tuple[Field, ...]
    example: str
    answers: tuple[Content, ...]
    samples: tuple[Json, ...]


class Section(NamedTuple):
    """A resource with its operations."""

    resource: Resource
    operations: tuple[ShownOperation, ...]


def create_sections(document: Json) -> list[Section]:
    """Return the resources of a document, in the order of the reference. Paths of the same operation are joined."""
    requests, answers = (FieldReader(document["components"]["schemas"], depth) for depth in (4, 1))
    found: dict[Resource, list[ShownOperation]] = {one: [] for one in resources_of(document["paths"])}
    for path, methods in document["paths"].items():
        shown = found[resource_of(path)]
        for method, operation in methods.items():
            new = _shown(method.upper(), path, operation, requests, answers)
            same = next((i for i, one in enumerate(shown) if _is_same(one, new)), None)
            if same is None:
                shown.append(new)
            else:
                shown[same] = shown[same]._replace(paths=(*shown[same].paths, path))
    return [Section(resource, tuple(operations)) for resource, operations in found.items()]


def _is_same(one: ShownOperation, other: ShownOperation) -> bool:
    return one._replace(anchor="", paths=(), samples=()) == other._replace(anchor="", paths=(), samples=())


def _shown(method: str, path: str, operation: Json, requests: FieldReader, answers: FieldReader) -> ShownOperation:
    parameters: dict[str, list[Field]] = {"path": [], "query": []}
    for one in operation.get("parameters", ()):
        about = {**one["schema"], "description": one.get("description", "")}
        parameters[one["in"]].append(requests.field_of(one["name"], about, is_required=one["required"]))
    taken = operation.get("requestBody", {}).get("content", {})
    bodies = tuple(Content(kind, requests.objects_of(body["schema"])) for kind, body in taken.items())
    returned = operation["responses"]["200"]["content"]
    return ShownOperation(
        anchor=operation["operationId"],
        method=method,
        paths=(path,),
        summary=operation["summary"],
        description=operation.get("description", ""),
        needs_key="security" not in operation,
        in_path=tuple(parameters["path"]),
        in_query=tuple(parameters["query"]),
        bodies=bodies,
        form=next((one.objects[0].fields for one in bodies if one.media_type == _FORM), ()),
        example=_example(operation),
        answers=tuple(Content(kind, answers.objects_of(answer["schema"])) for kind, answer in returned.items()),
        samples=tuple(operation["x-codeSamples"]),
    )


def _example(operation: Json) -> str:
    example = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
    return "" if example is None else json.dumps(example, indent=2, ensure_ascii=False)
