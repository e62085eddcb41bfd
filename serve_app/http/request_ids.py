"""What Serve does to the answers of an ASGI application, undone.

Serve adds a second `x-request-id`, its own, to every answer. OpenAI's clients read that header as one value, so
there may only be ours.
"""

from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_NAME = b"x-request-id"


class OwnHeaders(dict[str, Any]):
    """A start message that shows the request id it was made with, whatever is added to it on its way out."""

    def __getitem__(self, key: str) -> Any:
        """Return a value; of the headers, all but other request ids."""
        value = super().__getitem__(key)
        return self._own(value) if key == "headers" else value

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value as `[]` does, or the default."""
        return self[key] if key in self else default  # noqa: SIM401 - `get` of the dict would pass this by.

    def _own(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        first = next((header for header in headers if header[0].lower() == _NAME), None)
        return [header for header in headers if header is first or header[0].lower() != _NAME]


class OwnRequestIds:
    """An application whose answers carry the request ids that it sets, and no other."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application, its start message protected."""

        async def send_own(message: Message) -> None:
            await send(OwnHeaders(message) if message["type"] == "http.response.start" else message)

        await self._app(scope, receive, send_own)
