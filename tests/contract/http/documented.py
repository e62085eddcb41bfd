"""An application whose every answer is checked against its own OpenAPI document."""

from functools import cache
from typing import Any

import orjson
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012
from starlette.routing import Match

from serve_app.asgi import ROUTES
from serve_app.documentation.document import create_document


@cache
def document() -> dict[str, Any]:
    """Return the document, which takes a second to make."""
    return create_document(ROUTES, ["free", "standard", "enterprise"])


@cache
def validator_of(*keys: str) -> Draft202012Validator:
    """Return what checks values against the schema under these keys of the document."""
    resource = Resource.from_contents(document(), default_specification=DRAFT202012)
    pointer = "/".join(key.replace("/", "~1") for key in keys)
    registry = Registry().with_resource("urn:document", resource)
    return Draft202012Validator({"$ref": f"urn:document#/{pointer}"}, registry=registry)


class DocumentedApp:
    """An ASGI application that raises where an answer is not as the document says.

    `answered` are the operations that have answered well: (path, method, media type).
    """

    def __init__(self, app) -> None:
        self._app = app
        self.answered: set[tuple[str, str, str]] = set()

    async def __call__(self, scope, receive, send) -> None:
        messages = []

        async def keep(message) -> None:
            messages.append(message)
            await send(message)

        await self._app(scope, receive, keep)
        route = next(one for one in ROUTES if one.matches(scope)[0] == Match.FULL)
        body = b"".join(message.get("body", b"") for message in messages)
        media_type = dict(messages[0]["headers"])[b"content-type"].decode().partition(";")[0]
        self._check(route.path_format, scope["method"].lower(), str(messages[0]["status"]), media_type, body)

    def _check(self, path: str, method: str, status: str, media_type: str, body: bytes) -> None:
        answers = document()["paths"][path][method]["responses"]
        answer = answers.get(status, answers.get("default"))
        keys = ("paths", path, method, "responses", status)
        if "$ref" in answer:
            keys = tuple(answer["$ref"].removeprefix("#/").split("/"))
        else:
            assert media_type in answer["content"]
            self.answered.add((path, method, media_type))
        for value in _values(media_type, body):
            validator_of(*keys, "content", media_type, "schema").validate(value)


def _values(media_type: str, body: bytes) -> list[Any]:
    """Return the JSON values of an answer: one, or one an event."""
    if media_type == "text/event-stream":
        data = [line.removeprefix(b"data: ") for line in body.split(b"\n") if line.startswith(b"data: ")]
        return [orjson.loads(one) for one in data if one != b"[DONE]"]
    return [orjson.loads(body)] if media_type == "application/json" else []
