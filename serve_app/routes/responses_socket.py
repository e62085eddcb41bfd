"""WebSocket mode of /v1/responses: `response.create` messages in, the events of one response after the other out.

Each turn passes the key, limits, validation and log of an HTTP request. The connection remembers the last response, so
that the next can continue it even where nothing may be stored.
"""

import asyncio
import time
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
from starlette.responses import JSONResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from deployments.state.identity.principal import Principal
from deployments.state.usage.record import CLIENT_CLOSED_REQUEST
from serve_app.errors.api import ApiError, BadRequest, KeyRevoked, invalid_value
from serve_app.http.auth import authenticate, key_digest
from serve_app.http.middleware import new_request_id
from serve_app.operations.responses.operation import ResponseOperation
from serve_app.operations.responses.prompt.reading import RememberedResponse
from serve_app.operations.responses.run.answer import ResponseAnswer
from serve_app.operations.scopes import check_operation
from serve_app.operations.service_tiers import find_terms
from serve_app.routes.endpoint import reserve
from serve_app.schemas.responses.request import ResponseRequest
from serve_app.services import Services
from serve_app.telemetry.log import api_error_for
from serve_app.telemetry.trace import RequestTrace
from serve_app.validation.body import Sent, in_thread_if_large, validate_body
from serve_app.validation.ignored import Ignored

ROUTE = "/v1/responses (socket)"
MAX_WAITING = 8
MAX_AGE_S = 3600.0
_TRY_AGAIN = 1013


async def serve_socket(websocket: WebSocket) -> None:
    """Answer the turns of a connection in order, until it is closed or an hour old."""
    services: Services = websocket.app.state.services
    session = _Session(websocket, services)
    try:
        principal, _ = await session.identify()
        session.account = principal.account
        with services.sockets.take(session.account):
            await _serve(websocket, session)
    except ApiError as error:
        await websocket.send_denial_response(JSONResponse(error.to_wire(), error.status, error.headers))


async def _serve(websocket: WebSocket, session: "_Session") -> None:
    await websocket.accept()
    working = asyncio.create_task(session.work())
    try:
        async with asyncio.timeout(MAX_AGE_S):
            await session.listen()
    except TimeoutError:
        with suppress(Exception):
            await session.send_error(_too_old())
            await websocket.close(_TRY_AGAIN)
    except WebSocketDisconnect:
        pass
    finally:
        working.cancel()
        await asyncio.wait([working])
        session.forget()


class _Session:
    """One connection, and what it remembers."""

    def __init__(self, websocket: WebSocket, services: Services) -> None:
        self._websocket = websocket
        self._services = services
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self.account = ""
        self._remembered: RememberedResponse | None = None
        self._has_answered = False

    async def identify(self) -> tuple[Principal, ResponseOperation]:
        """Return the holder of the connection's key, and the operation. Raises ApiError if the key is not accepted."""
        principal = await authenticate(self._websocket, self._services.gatekeeper, self._services.region)
        operation = self._services.operations.responses
        check_operation(principal, operation.name)
        return principal, operation

    async def listen(self) -> None:
        """Queue messages until the client disconnects."""
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message.get("code", 1000))
            raw = (message.get("text") or "").encode() or message.get("bytes") or b""
            try:
                if self._waiting.qsize() >= MAX_WAITING:
                    raise BadRequest(
                        f"At most {MAX_WAITING} messages may wait. Send the next one when a turn has ended."
                    )
                self._services.sockets.keep(self.account, len(raw))
            except BadRequest as error:
                await self.send_error(error)
            else:
                self._waiting.put_nowait(raw)

    def forget(self) -> None:
        """Stop counting the messages that still wait."""
        while not self._waiting.empty():
            self._take_back(self._waiting.get_nowait())

    def _take_back(self, raw: bytes) -> bytes:
        self._services.sockets.release(self.account, len(raw))
        return raw

    async def work(self) -> None:
        """Answer messages one after the other."""
        while True:
            raw = self._take_back(await self._waiting.get())
            self._has_answered = False
            trace = RequestTrace(new_request_id(), "WEBSOCKET", time.time(), time.perf_counter(), stream=True)
            self._services.observer.begin()
            try:
                await self._answer(raw, trace)
            except asyncio.CancelledError:
                if not self._has_answered:
                    trace.status = CLIENT_CLOSED_REQUEST
                raise
            except Exception as error:
                refusal = api_error_for(error, trace.request_id)
                trace.status = refusal.status
                trace.fail(refusal)
                self._remembered = None
                await self.send_error(refusal)
            finally:
                self._services.observer.end(trace, route=ROUTE, ended=time.perf_counter())

    async def _answer(self, raw: bytes, trace: RequestTrace) -> None:
        principal, operation = await self.identify()
        trace.principal = principal
        async with await self._services.admission.admit(principal) as ticket:
            ignored = self._services.operations.ignored
            body, sent, is_generated = await in_thread_if_large(raw, partial(_read, ignored))
            terms = find_terms(body, principal, self._services.tiers)
            turn = await operation.preparation.begin(
                body, sent, principal, request_id=trace.request_id, remembered=self._remembered, **terms.options
            )
            trace.service_tier, trace.token_weight = terms
            trace.model = turn.engine.card.id
            chat = None
            if turn.messages:  # A turn without any only names tools for later ones.
                chat = operation.first_chat(turn)
                if is_generated:
                    await reserve(ticket, trace, operation.cost_of_turn(turn, chat), terms)
            turn = replace(turn, is_generated=is_generated)
            answer = operation.answer(turn, chat, lambda: None)
            sending = asyncio.create_task(self._send_events(answer, trace))
            try:
                with ticket.until_revoked(key_digest(self._websocket, self._services.gatekeeper), sending.cancel):
                    await asyncio.wait([sending])
                if sending.cancelled():
                    raise KeyRevoked
                sending.result()
            finally:
                sending.cancel()
                await asyncio.wait([sending])
                await answer.aclose()
                trace.usage, trace.tool_use = answer.summary.usage, answer.summary.tool_use
                trace.queued_s = answer.summary.queued_s
                ticket.settle(trace.usage)
        self._remembered = answer.remember()

    async def _send_events(self, answer: ResponseAnswer, trace: RequestTrace) -> None:
        async with aclosing(answer.events()) as events:
            async for event in events:
                if trace.first_piece_at is None:
                    trace.first_piece_at, trace.status = time.perf_counter(), 200
                # The client may leave as soon as it has the last event.
                self._has_answered = answer.summary.usage is not None
                await self._websocket.send_text(event.decode())

    async def send_error(self, error: ApiError) -> None:
        """Send an error event, with the error's fields flat as in streams and nested as in answers."""
        fields: dict[str, Any] = dict(error.to_wire()["error"])
        event = {"type": "error", "sequence_number": 0, "status": error.status, "error": fields}
        event |= {name: fields[name] for name in ("code", "message", "param")}
        await self._websocket.send_text(orjson.dumps(event).decode())


def _read(ignored: Ignored, raw: bytes) -> tuple[ResponseRequest, Sent, bool]:
    """Return the request in a message, what it was validated from, and whether the model is asked.

    With `"generate": false` the request only prepares a later turn, and needs no input.

    Raises:
        UnparsableBody: it holds no JSON object.
        BadRequest: it is no `response.create` message, or asks for a background response.
    """
    message = ignored.read(raw).value
    if message.pop("type", None) != "response.create":
        raise invalid_value("Invalid value for 'type'. Supported values are: 'response.create'.", "type")
    if message.pop("background", None):
        raise BadRequest(
            "Background responses are not available over a WebSocket. Leave 'background' out.",
            param="background",
            code="unsupported_value",
        )
    is_generated = message.pop("generate", None)
    if is_generated is False and message.get("input") is None:
        message["input"] = []
    if not isinstance(is_generated, bool | None):
        raise BadRequest("Invalid type for 'generate': expected a boolean.", param="generate", code="invalid_type")
    message["stream"] = True
    return validate_body(message, ResponseRequest), Sent(raw, message), is_generated is not False


def _too_old() -> ApiError:
    return BadRequest(
        "This connection is an hour old. Open another one and continue there.",
        code="websocket_connection_limit_reached",
    )
