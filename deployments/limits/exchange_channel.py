"""Exchanges with the gatekeeper over the side channel, which wakes fewer processes and threads than a call of Ray's.

A request that comes when its key has no lease waits for an exchange. Both ends hold one connection; whoever finds it
broken, or unanswered, drops it and asks anew where the gatekeeper listens, for it may have moved.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson

from deployments.background_loop import BackgroundLoop
from deployments.channel.address import socket_path
from deployments.channel.client import Address, Channel, connect
from deployments.channel.errors import ChannelError, Lost
from deployments.channel.server import Bounds, ChannelServer, Reply
from deployments.limits.messages import Ask, Exchange, Exchanged, Lease, Posting, Standing, TransportDown
from deployments.limits.window import Shortage

_START_TIMEOUT_S: Final = 10.0
_MAX_AT_ONCE: Final = 10_000  # One for each client.


class ExchangeListener:
    """The gatekeeper's end: answers exchanges in a thread of its own."""

    def __init__(self, exchange: Callable[[Exchange], Exchanged], host: str, name: str) -> None:
        """Listen on `host`, and for this node's own clients on a Unix socket, which `name` names."""
        self._loop = BackgroundLoop("gatekeeper-exchanges")
        self.address: Address = self._loop.run(self._start(exchange, host, name), _START_TIMEOUT_S)

    async def _start(self, exchange: Callable[[Exchange], Exchanged], host: str, name: str) -> Any:
        self._server = ChannelServer(_Exchanges(exchange), Bounds(_MAX_AT_ONCE, 0))
        return await self._server.start(host, socket_path(name))

    def close(self) -> None:
        """Stop listening, and break the connections off."""
        self._loop.run(self._server.close())
        self._loop.stop()


class _Exchanges:
    """Keeps `Runner` over a gatekeeper's method."""

    def __init__(self, exchange: Callable[[Exchange], Exchanged]) -> None:
        self._exchange = exchange

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        try:
            exchanged = self._exchange(parse_exchange(body))
        except TransportDown as error:
            raise Lost(str(error)) from None
        reply.write(render(exchanged))
        reply.end({})


class ExchangeClient:
    """A client's end. `find` returns where the gatekeeper listens."""

    def __init__(self, find: Callable[[], Awaitable[Address]]) -> None:
        self._find = find
        self._channel: Channel | None = None

    async def exchange(self, exchange: Exchange, timeout_s: float) -> Exchanged:
        """Return the gatekeeper's answer.

        Raises:
            TransportDown: the gatekeeper is not reached, or does not answer in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                channel = self._channel
                if channel is None or not channel.is_open:
                    channel = self._channel = await connect(await self._find(), _do_nothing)
                stream = channel.open({}, render(exchange))
                return parse_exchanged(b"".join(await stream.read()))
        except ChannelError as error:
            raise TransportDown(f"The gatekeeper is away: {error.message}") from None
        except TimeoutError:
            self.close()
            raise TransportDown("The gatekeeper does not answer.") from None

    def close(self) -> None:
        """Close the connection; the next exchange opens another."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()


def render(message: Exchange | Exchanged) -> bytes:
    """Return a message as bytes."""
    return orjson.dumps(message, default=_plain)


def parse_exchange(rendered: bytes) -> Exchange:
    """Return the exchange that was rendered."""
    client_id, serial, revision, valid_s, asks, refunds, charges, is_replay = orjson.loads(rendered)
    return Exchange(
        client_id,
        serial,
        revision,
        valid_s,
        [Ask(*ask) for ask in asks],
        [Posting(*posting) for posting in refunds],
        [Posting(*posting) for posting in charges],
        is_replay,
    )


def parse_exchanged(rendered: bytes) -> Exchanged:
    """Return the answer that was rendered."""
    now, revision, changed, answers, standings, num_clients, replay_after = orjson.loads(rendered)
    return Exchanged(
        now,
        revision,
        None if changed is None else [bytes.fromhex(digest) for digest in changed],
        None if answers is None else [_parse_answer(answer) for answer in answers],
        {key_id: Standing(*standing) for key_id, standing in standings.items()},
        num_clients,
        replay_after,
    )


def _parse_answer(answer: list[Any]) -> Lease | Shortage:
    return Lease(*answer) if len(answer) == len(Lease._fields) else Shortage(*answer)


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else list(value)  # type: ignore[call-overload]  # A named tuple.


def _do_nothing() -> None:
    pass
