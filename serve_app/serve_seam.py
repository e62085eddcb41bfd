"""Where Serve's own wrapping of an ASGI application is undone; the only file that knows how Serve does it.

Serve adds a second `x-request-id`, its own, to every answer, and a coroutine around every piece of it. OpenAI's
clients read that header as one value, so there may only be ours.
"""

from collections.abc import MutableMapping
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

_WRAPPER: Final = "RequestIdMiddleware.__call__.<locals>.send_with_request_id"


def unwrap_send(send: Send) -> Send:
    """Return the `send` inside Serve's request-id wrapper; any other as it is."""
    if getattr(send, "__qualname__", "") != _WRAPPER:
        return send
    cells: MutableMapping[str, Any] = dict(zip(send.__code__.co_freevars, send.__closure__ or (), strict=True))
    inner: Send = cells["send"].cell_contents
    return inner


class OwnRequestIds:
    """An application whose answers carry the request ids that it sets, and no other."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application with Serve's wrapper taken off."""
        await self._app(scope, receive, unwrap_send(send))
