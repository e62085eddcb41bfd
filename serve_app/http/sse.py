"""From an operation's outcome to an HTTP answer: the first piece sets the status, the rest is passed on as it comes.

Server-sent events are written as the engine sent them, one send for each piece.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import orjson
from starlette.types import Receive, Scope, Send

from deployments.state.usage.record import CLIENT_CLOSED_REQUEST
from serve_app.errors.anthropic import to_anthropic
from serve_app.errors.api import KeyRevoked
from serve_app.http.admission import Ticket
from serve_app.http.departure import DepartureWatch
from serve_app.operations.contract import Outcome
from serve_app.telemetry.log import api_error_for, log_bug
from serve_app.telemetry.trace import RequestTrace

_COMMENT = b": the answer is on its way\n\n"
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True, slots=True)
class Silence:
    """How long a stream may be silent, in seconds, before its head and then a comment is sent; None is forever."""

    begins_s: float | None = None
    comment_s: float | None = None


class OutcomeResponse:
    """The ASGI answer of an outcome. It always closes the outcome's stream and the ticket.

    A task of its own sends the pieces: otherwise each piece would resume a dozen frames of the routing, at more cost
    than that of sending it.
    """

    def __init__(self, outcome: Outcome, ticket: Ticket, trace: RequestTrace, silence: Silence) -> None:
        self._outcome = outcome
        self._ticket = ticket
        self._trace = trace
        self._silence = silence
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer. Raises EngineError if the engine refused or failed before the head was sent."""
        answering = asyncio.create_task(self._send_events(send) if self._outcome.is_stream else self._send_body(send))
        watch = DepartureWatch(receive, answering)
        is_revoked = False

        def revoke() -> None:
            nonlocal is_revoked
            is_revoked = answering.cancel()

        try:
            with self._ticket.until_revoked(self._trace.key_digest, revoke):
                await answering
        except asyncio.CancelledError:
            if is_revoked:
                await self._end_revoked(send)
            elif watch.has_left:
                self._trace.status = CLIENT_CLOSED_REQUEST
            else:
                raise
        finally:
            watch.stop()
            await self._close()

    async def _end_revoked(self, send: Send) -> None:
        """End an answer whose key was revoked. Raises KeyRevoked if the answer has not begun."""
        if not self._has_begun:
            raise KeyRevoked
        if self._outcome.is_stream:
            await send({"type": "http.response.body", "body": self._failure(KeyRevoked()), "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    async def _send_body(self, send: Send) -> None:
        body = b"".join([piece async for piece in self._outcome.stream])
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        self._note_end()
        self._has_begun = True
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _send_events(self, send: Send) -> None:
        summary, write, now = self._outcome.stream.summary, self._trace.server_send or send, time.perf_counter
        filler = _Filler(self._silence, partial(self._begin, send), write)
        try:
            async for piece in self._outcome.stream:
                if self._trace.first_piece_at is None:
                    self._trace.first_piece_at = now()
                if summary.usage is not None:
                    self._note_end()
                if filler.task is not None:
                    await filler.task
                if not self._has_begun:
                    await self._begin(send)
                await write({"type": "http.response.body", "body": piece, "more_body": True})
                filler.sent_at = now()
            await filler.stop()
            self._note_end()
            await self._begin(send)
        except Exception as error:
            await filler.stop()
            if not self._has_begun:
                raise
            await write({"type": "http.response.body", "body": self._failure(error), "more_body": True})
        finally:
            filler.cancel()
        await write({"type": "http.response.body", "body": b""})

    async def _begin(self, send: Send) -> None:
        if not self._has_begun:
            self._has_begun = True
            await send({"type": "http.response.start", "status": 200, "headers": list(_STREAM_HEADERS)})

    def _failure(self, error: Exception) -> bytes:
        """Return the event that ends a failed stream."""
        answer = api_error_for(error, self._trace.request_id)
        self._trace.status = answer.status
        self._trace.fail(answer)
        self._trace.code = answer.code or answer.type
        if self._trace.is_anthropic:
            return b"event: error\ndata: " + orjson.dumps(to_anthropic(answer, self._trace.request_id)) + b"\n\n"
        return b"data: " + orjson.dumps(answer.to_wire()) + b"\n\n"

    def _note_end(self) -> None:
        """Settle and log the usage before the end is sent, so that the client's next request finds it."""
        self._settle()
        if self._trace.write_ahead is not None:
            self._trace.write_ahead()
            self._trace.write_ahead = None

    def _settle(self) -> None:
        summary = self._outcome.stream.summary
        usage = summary.usage
        self._trace.usage, self._trace.tool_use = usage, summary.tool_use
        self._trace.queued_s = summary.queued_s
        self._ticket.settle(usage)

    async def _close(self) -> None:
        try:
            await self._outcome.stream.aclose()
        except Exception as error:
            log_bug(self._trace.request_id, error)
        finally:
            self._settle()


class _Filler:
    """Sends the head of a stream and then comments while the model is silent: load balancers cut silent streams off.

    `task` is its current send, None most of the time: wait for it before sending, and set `sent_at` after.
    """

    def __init__(self, silence: Silence, begin: Callable[[], Awaitable[None]], write: Send) -> None:
        self.sent_at = time.perf_counter()
        self.task: asyncio.Task[None] | None = None
        self._begin: Callable[[], Awaitable[None]] | None = begin
        self._write = write
        self._comment_s = silence.comment_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._wait(silence.begins_s)

    def _wait(self, silent_s: float | None) -> None:
        if silent_s is not None:
            left_s = self.sent_at + silent_s - time.perf_counter()
            self._timer = self._loop.call_later(left_s, self._look, silent_s)

    def _look(self, silent_s: float) -> None:
        if time.perf_counter() - self.sent_at < silent_s:
            self._wait(silent_s)
        else:
            self.task = self._loop.create_task(self._fill())

    async def _fill(self) -> None:
        begin, self._begin = self._begin, None
        if begin is not None:
            await begin()
        else:
            await self._write({"type": "http.response.body", "body": _COMMENT, "more_body": True})
            self.sent_at = time.perf_counter()
        self.task = None
        self._wait(self._comment_s)

    async def stop(self) -> None:
        """Wait for the current send, then send nothing more."""
        if self.task is not None:
            await self.task
        self.cancel()

    def cancel(self) -> None:
        """Send nothing more; abort the current send."""
        self._comment_s = None
        if self._timer is not None:
            self._timer.cancel()
        if self.task is not None:
            self.task.cancel()
