"""How the ingress reaches a model: which way a replica is chosen, and what is known of a request in the end."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from ray.serve.exceptions import DeploymentUnavailableError

from deployments.channel.errors import Lost
from deployments.models.client import remote
from deployments.models.client.remote import RemoteEngine
from deployments.models.contract.engine import EngineRequest, ModelCard, Usage
from deployments.models.contract.errors import EngineDied, Overloaded
from deployments.patience import USUAL
from deployments.routing.placement import place
from tests.waiting import eventually

CARD = ModelCard(id="manta/one", operations=frozenset({"chat"}), max_model_len=64, created=0, owned_by="manta")
REQUEST = EngineRequest(operation="chat", body=b"{}", stream=True, request_id="req_1")


class Handle:
    """A Serve handle of a deployment that may have no replica; one comes up when a counted choice waits for it."""

    def __init__(self, *, has_replica: bool, wakes: bool = True) -> None:
        self.has_replica = has_replica
        self.wakes = wakes
        self.choices: list[dict] = []

    @asynccontextmanager
    async def choose_replica(self, choice, **options):
        self.choices.append(options)
        if not self.has_replica and (options.get("_reserve") is False or not self.wakes):
            await asyncio.Event().wait()
        self.has_replica = True
        yield SimpleNamespace(replica_id="replica", replica_metadata={"channel": {}})


class Stream:
    """A channel's stream that has one piece, and its usage only when it is over."""

    def __init__(self) -> None:
        self.summary: dict = {}
        self.notes = [b""]
        self.was_cancelled = False

    async def read(self):
        return [b"piece"]

    def cancel(self):
        self.was_cancelled = True

    async def wait_end(self, timeout_s):
        assert self.was_cancelled
        self.summary = {"usage": [7, 3, 0, 0], "finish_reasons": []}


@pytest.fixture
def reach(monkeypatch):
    """Return an engine behind a handle, and the stream that every request gets."""
    stream = Stream()

    async def connect(address, on_lost, patience):
        return SimpleNamespace(open=lambda header, body: stream, is_open=True, num_open=0)

    monkeypatch.setattr(remote, "connect", connect)
    usual = replace(USUAL, choose_s=0.0, starting_s=0.0)
    return lambda handle, wait_s=60.0, patience=usual: (RemoteEngine(CARD, handle, wait_s, patience=patience), stream)


async def first_piece(engine):
    answer = engine.run(REQUEST)
    pieces = aiter(answer)
    return answer, pieces, await anext(pieces)


async def test_running_replica_is_chosen_without_a_reservation(reach):
    handle = Handle(has_replica=True)
    engine, _ = reach(handle, patience=replace(USUAL, choose_s=5.0))
    assert (await first_piece(engine))[2] == b"piece"
    assert handle.choices == [{"_reserve": False}]


async def test_choice_is_counted_when_there_is_no_replica(reach):
    handle = Handle(has_replica=False)
    engine, _ = reach(handle)
    assert (await first_piece(engine))[2] == b"piece"
    assert handle.choices == [{"_reserve": False}, {"_reserve": False}, {}]


async def test_choice_does_not_wait_for_replicas_that_are_too_busy_to_be_asked(reach):
    class Busy(Handle):
        @asynccontextmanager
        async def choose_replica(self, choice, **options):
            await (asyncio.sleep(0.02) if options.get("_reserve") is False else asyncio.Event().wait())
            async with super().choose_replica(choice, **options) as selection:
                yield selection

    engine, _ = reach(Busy(has_replica=True), wait_s=60.0)
    async with asyncio.timeout(5):
        assert (await first_piece(engine))[2] == b"piece"


async def test_request_is_refused_when_no_replica_comes_up_in_time(reach):
    engine, _ = reach(Handle(has_replica=False, wakes=False), wait_s=0.0)
    with pytest.raises(Overloaded, match="is starting; no replica was ready within 0 s"):
        await first_piece(engine)


async def test_waiting_for_a_replica_wakes_none_and_goes_on_while_the_deployment_is_broken(reach):
    class Broken(Handle):
        num_failures = 3

        @asynccontextmanager
        async def choose_replica(self, choice, **options):
            if self.num_failures:
                self.num_failures -= 1
                raise DeploymentUnavailableError("model:manta--one")
            async with super().choose_replica(choice, **options) as selection:
                yield selection

    handle = Broken(has_replica=False)
    engine, _ = reach(handle)
    waiting = asyncio.create_task(engine.wait_for_replica())
    await eventually(lambda: handle.choices)
    assert (handle.choices, handle.has_replica, waiting.done()) == ([{"_reserve": False}], False, False)
    waiting.cancel()
    handle.has_replica = True
    await engine.wait_for_replica()


async def test_usage_of_an_answer_that_is_taken_back_is_known(reach):
    engine, stream = reach(Handle(has_replica=True))
    answer, pieces, _ = await first_piece(engine)
    await pieces.aclose()
    assert answer.summary.usage is None
    await answer.aclose()
    assert stream.was_cancelled
    assert answer.summary.usage == Usage(7, 3)


class Table(Handle):
    """A handle over several replicas; Serve's table has some of them."""

    def __init__(self, *listed: str) -> None:
        super().__init__(has_replica=True)
        self.listed = list(listed)

    @asynccontextmanager
    async def choose_replica(self, choice, **options):
        if not self.listed:
            await asyncio.Event().wait()
        yield SimpleNamespace(replica_id=place(choice, self.listed), replica_metadata={"channel": {}})


async def test_replica_that_answers_stays_choosable_when_serve_lists_none(reach):
    handle = Table("one")
    engine, stream = reach(handle)
    assert await engine.open(REQUEST, {}, []) is stream
    handle.listed = []
    tried: list[str] = []
    assert await engine.open(REQUEST, {}, tried) is stream
    assert tried == ["one"]


async def test_replica_that_answers_is_chosen_when_all_that_serve_lists_have_been_tried(reach):
    handle = Table("one")
    engine, stream = reach(handle)
    await engine.open(REQUEST, {}, [])
    handle.listed = ["two"]
    tried = ["two"]
    assert await engine.open(REQUEST, {}, tried) is stream
    assert tried == ["two", "one"]
    with pytest.raises(Overloaded):
        await engine.open(REQUEST, {}, tried)


async def test_replica_that_cannot_be_reached_is_asked_last_for_a_while(reach, monkeypatch):
    async def connect(address, on_lost, patience):
        raise Lost("The replica cannot be reached.")

    handle = Table("one")
    engine, stream = reach(handle)
    reached = remote.connect
    monkeypatch.setattr(remote, "connect", connect)
    with pytest.raises(EngineDied):
        await engine.open(REQUEST, {}, [])
    monkeypatch.setattr(remote, "connect", reached)
    handle.listed = ["one", "two"]
    for _ in range(20):
        tried: list[str] = []
        await engine.open(REQUEST, {}, tried)
        assert tried == ["two"]
    tried = ["two"]
    assert await engine.open(REQUEST, {}, tried) is stream
    assert tried == ["two", "one"]
