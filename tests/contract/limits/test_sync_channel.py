"""Syncs over real sockets: messages arrive unchanged, and a gatekeeper that does not answer is given up in time."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.channel.client import Address
from deployments.limits.actor import RayTransport
from deployments.limits.messages import Ask, KeyUsage, Lease, Posting, Stopping, SyncReply, SyncRequest, TransportDown
from deployments.limits.sync_channel import (
    SyncClient,
    SyncListener,
    parse_reply,
    parse_request,
    render,
)
from deployments.limits.window import Shortage

TIMEOUT_S = 5.0
REQUEST = SyncRequest("client", 1, 2, 0.4, [Ask("key", 1, 0, 2, 300)], [], [])
REPLY = SyncReply(12.5, 3, [], [Lease(12.5, 3, 300)], {"key": KeyUsage(1, 60.0, 300, 60.0)}, 1, None)

numbers = st.integers(0, 10**12)
seconds = st.floats(0, 2e9)
keys = st.text(max_size=40)
postings = st.builds(Posting, keys, st.sampled_from(["requests", "tokens"]), seconds, numbers)
asks = st.builds(Ask, keys, numbers, numbers, numbers, numbers)
answers = st.one_of(
    st.builds(Lease, seconds, numbers, numbers),
    st.builds(Shortage, st.sampled_from(["requests", "tokens"]), numbers, numbers, numbers, st.none() | seconds),
)
usages = st.dictionaries(keys, st.builds(KeyUsage, numbers, seconds, numbers, seconds), max_size=4)


@given(
    st.builds(
        *(SyncRequest, keys, numbers, numbers, seconds),
        *(st.lists(asks, max_size=4), st.lists(postings, max_size=4), st.lists(postings, max_size=4), st.booleans()),
    )
)
def test_a_request_arrives_as_it_was(request: SyncRequest) -> None:
    parsed = parse_request(render(request))
    assert parsed == request
    assert [type(one) for one in parsed.asks] == [Ask] * len(request.asks)
    assert [type(one) for one in parsed.charges] == [Posting] * len(request.charges)


@given(
    st.builds(
        *(SyncReply, seconds, numbers, st.none() | st.lists(st.binary(max_size=32), max_size=4)),
        *(st.none() | st.lists(answers, max_size=4), usages, numbers, st.none() | seconds, usages),
    )
)
def test_an_answer_arrives_as_it_was(reply: SyncReply) -> None:
    parsed = parse_reply(render(reply))
    assert parsed == reply
    assert [type(one) for one in parsed.answers or ()] == [type(one) for one in reply.answers or ()]


class Scripted:
    """A gatekeeper's end that does what the test says, and where it is found."""

    def __init__(self) -> None:
        self.asked: list[SyncRequest] = []
        self.answer: Callable[[], SyncReply] = lambda: REPLY
        self.num_found = 0
        self.listener = self.listen()

    def listen(self) -> SyncListener:
        return SyncListener(self.sync, "127.0.0.1", f"gatekeeper-under-test-{os.getpid()}-{id(self)}")

    def sync(self, request: SyncRequest) -> SyncReply:
        self.asked.append(request)
        return self.answer()

    async def find(self) -> Address:
        self.num_found += 1
        return self.listener.address


@pytest.fixture
async def scripted() -> AsyncIterator[Scripted]:
    scripted = Scripted()
    yield scripted
    await asyncio.to_thread(scripted.listener.close)


@pytest.fixture
async def client(scripted: Scripted) -> AsyncIterator[SyncClient]:
    client = SyncClient(scripted.find)
    yield client
    client.close()


async def test_many_syncs_go_over_one_connection(scripted: Scripted, client: SyncClient) -> None:
    answers = [await client.sync(REQUEST, TIMEOUT_S) for _ in range(20)]
    assert answers == [REPLY] * 20
    assert scripted.asked == [REQUEST] * 20
    assert scripted.num_found == 1


async def test_a_gatekeeper_that_stops_says_so(scripted: Scripted, client: SyncClient) -> None:
    def stop() -> SyncReply:
        raise Stopping("stops")

    scripted.answer = stop
    with pytest.raises(Stopping):
        await client.sync(REQUEST, TIMEOUT_S)


async def test_the_socket_of_the_node_and_the_port_answer_alike(scripted: Scripted) -> None:
    address = scripted.listener.address

    async def find_elsewhere() -> Address:
        return {**address, "path": address["path"] + ".not-here"}

    client = SyncClient(find_elsewhere)
    assert await client.sync(REQUEST, TIMEOUT_S) == REPLY
    client.close()


async def test_without_the_secret_nothing_is_answered(scripted: Scripted) -> None:
    async def find() -> Address:
        return {**scripted.listener.address, "secret": "0" * 64}

    client = SyncClient(find)
    with pytest.raises(TransportDown):
        await client.sync(REQUEST, TIMEOUT_S)
    assert scripted.asked == []


async def test_a_gatekeeper_that_is_not_ready_says_so(scripted: Scripted, client: SyncClient) -> None:
    def refuse() -> SyncReply:
        raise TransportDown("The gatekeeper has not reached its database yet.")

    scripted.answer = refuse
    with pytest.raises(TransportDown, match="not reached its database"):
        await client.sync(REQUEST, TIMEOUT_S)
    scripted.answer = lambda: REPLY
    assert await client.sync(REQUEST, TIMEOUT_S) == REPLY
    assert scripted.num_found == 1


async def test_one_that_does_not_answer_is_given_up_in_time_and_looked_for_anew(
    scripted: Scripted, client: SyncClient
) -> None:
    awake = threading.Event()

    def sleep() -> SyncReply:
        awake.wait(TIMEOUT_S)
        return REPLY

    scripted.answer = sleep
    begun = time.monotonic()
    with pytest.raises(TransportDown):
        await client.sync(REQUEST, 0.2)
    assert time.monotonic() - begun < TIMEOUT_S
    awake.set()
    scripted.answer = lambda: REPLY
    assert await client.sync(REQUEST, TIMEOUT_S) == REPLY
    assert scripted.num_found == 2


async def test_one_that_went_away_is_found_where_it_listens_now(scripted: Scripted, client: SyncClient) -> None:
    assert await client.sync(REQUEST, TIMEOUT_S) == REPLY
    await asyncio.to_thread(scripted.listener.close)
    with pytest.raises(TransportDown):
        await client.sync(REQUEST, TIMEOUT_S)
    scripted.listener = scripted.listen()
    assert await client.sync(REQUEST, TIMEOUT_S) == REPLY


async def test_nobody_waits_for_one_that_cannot_be_found() -> None:
    async def find() -> Address:
        raise TransportDown("The gatekeeper is away: ActorUnavailableError.")

    with pytest.raises(TransportDown, match="ActorUnavailable"):
        await SyncClient(find).sync(REQUEST, TIMEOUT_S)


@pytest.mark.parametrize(
    ("answer_after_s", "num_calls"),
    [
        pytest.param([None, 0.0], 2, id="a call that is lost"),
        pytest.param([0.45, None, None], 2, id="a gatekeeper that is slow"),
    ],
)
async def test_the_gatekeeper_is_found_by_whichever_call_is_answered(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, answer_after_s: list[float | None], num_calls: int
) -> None:
    calls: list[float | None] = []

    async def address() -> Address:
        calls.append(answer_after_s[len(calls)])
        after_s = calls[-1]
        await (asyncio.Event().wait() if after_s is None else asyncio.sleep(after_s))
        return scripted.listener.address

    handle = SimpleNamespace(channel=SimpleNamespace(remote=address))
    monkeypatch.setattr("deployments.limits.actor.ray.get_actor", lambda name, namespace: handle)
    transport = RayTransport()
    with pytest.raises(TransportDown):
        await transport.sync(REQUEST)
    assert await transport.sync(REQUEST) == REPLY
    assert len(calls) == num_calls
    transport.close()
