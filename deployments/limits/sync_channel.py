"""Syncs with the gatekeeper over the side channel, which wakes fewer processes and threads than a call through Ray.

A request whose key has no lease waits for a sync. Each client holds one connection; if it breaks or is not answered,
the client looks up the gatekeeper's address again, which may have changed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
import orjson

from deployments.channel.client import Address, Channel, connect
from deployments.channel.connection import socket_path
from deployments.channel.errors import ChannelError, Lost
from deployments.channel.server import Capacity, ChannelServer, Reply, Runner
from deployments.channel.tls import TlsFiles
from deployments.limits.messages import (
    Answer,
    KeyUsage,
    Lease,
    PendingLoan,
    Stopping,
    SyncReply,
    SyncRequest,
    TransportDown,
)
from deployments.limits.window import Shortage
from deployments.patience import USUAL, Patience
from deployments.waiting import BackgroundLoop

_MAX_AT_ONCE: Final = 10_000  # One for each client.


class SyncListener:
    """The gatekeeper's end: answers syncs in its own thread."""

    def __init__(
        self,
        sync: Callable[[SyncRequest], SyncReply],
        host: str,
        name: str,
        tls: TlsFiles | None = None,
        patience: Patience = USUAL,
    ) -> None:
        """Listen on `host`, with `tls` if given, and on the Unix socket `name` for clients of this node."""
        self._tls = tls
        self._patience = patience
        self._loop = BackgroundLoop("gatekeeper-sync")
        self.address: Address = self._loop.run(self._start(sync, host, name), patience.start_s)

    async def _start(self, sync: Callable[[SyncRequest], SyncReply], host: str, name: str) -> Any:
        self._server = ChannelServer(_SyncRunner(sync), Capacity(_MAX_AT_ONCE, 0), self._tls, self._patience)
        return await self._server.start(host, socket_path(name))

    def close(self) -> None:
        """Stop listening, and close the connections."""
        self._loop.run(self._server.close())
        self._loop.stop()


class _SyncRunner(Runner):
    def __init__(self, sync: Callable[[SyncRequest], SyncReply]) -> None:
        self._sync = sync

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        try:
            synced = self._sync(parse_request(body))
        except Stopping:
            reply.end({})  # A reply without a body means that it stops.
            return
        except TransportDown as error:
            raise Lost(str(error)) from None
        reply.write(render(synced))
        reply.end({})


class SyncClient:
    """A client's end. `find` returns the address of the gatekeeper."""

    def __init__(self, find: Callable[[], Awaitable[Address]], patience: Patience = USUAL) -> None:
        self._find = find
        self._patience = patience
        self._channel: Channel | None = None

    async def sync(self, request: SyncRequest, timeout_s: float) -> SyncReply:
        """Return the gatekeeper's reply.

        Raises:
            TransportDown: the gatekeeper is not reached, or does not answer in time.
            Stopping: it is about to stop.
        """
        try:
            async with asyncio.timeout(timeout_s):
                channel = self._channel
                if channel is None or not channel.is_open:
                    channel = self._channel = await connect(await self._find(), _do_nothing, self._patience)
                stream = channel.open({}, render(request))
                rendered = b"".join(await stream.read())
        except ChannelError as error:
            raise TransportDown(f"The gatekeeper is away: {error.message}") from None
        except TimeoutError:
            self.close()
            raise TransportDown("The gatekeeper does not answer.") from None
        if not rendered:
            raise Stopping("The gatekeeper stops.")
        return parse_reply(rendered)

    def close(self) -> None:
        """Close the connection; the next sync opens another."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()


def render(message: SyncRequest | SyncReply) -> bytes:
    """Return a message as bytes."""
    return orjson.dumps(tuple(message), default=_plain)


def parse_request(rendered: bytes) -> SyncRequest:
    """Return the request that was rendered."""
    return msgspec.json.decode(rendered, type=SyncRequest)


def parse_reply(rendered: bytes) -> SyncReply:
    """Return the reply that was rendered."""
    now, revision, changed, answers, usage, num_clients, replay_after, lent = orjson.loads(rendered)
    return SyncReply(
        now,
        revision,
        None if changed is None else [bytes.fromhex(digest) for digest in changed],
        None if answers is None else [_parse_answer(answer) for answer in answers],
        _parse_usage(usage),
        num_clients,
        replay_after,
        _parse_usage(lent),
    )


def _parse_usage(usage: dict[str, list[Any]]) -> dict[str, KeyUsage]:
    return {key_id: KeyUsage(*used) for key_id, used in usage.items()}


def _parse_answer(answer: list[Any]) -> Answer:
    if len(answer) == len(Lease._fields):
        return Lease(*answer)
    return Shortage(*answer) if len(answer) == len(Shortage._fields) else PendingLoan(answer[0], Shortage(*answer[1]))


def _plain(value: object) -> object:
    if isinstance(value, Mapping):  # One that cannot be changed.
        return dict(value)
    return value.hex() if isinstance(value, bytes) else list(value)  # type: ignore[call-overload]  # A named tuple.


def _do_nothing() -> None:
    pass
