"""How an answer goes on when its engine dies: what its reader sees, which replicas are asked, and what is counted."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.channel.errors import ChannelError, Full, Lost
from deployments.models.client import stream as module
from deployments.models.client.stream import MAX_DEATHS, MAX_TRIES, RemoteStream
from deployments.models.contract.engine import EngineRequest, ModelCard, Usage
from deployments.models.contract.errors import EngineDied, EngineError, Overloaded
from deployments.models.contract.steps import PromptTokens, Written, pack_prompt, pack_step, unpack
from deployments.patience import USUAL, Patience
from deployments.steps import open_steps

REQUEST = EngineRequest(operation="chat", body=b"{}", stream=True, request_id="req_1")
NUM_TOKENS = 12
STEPS = [(pack_step(n % 2, [n]), b"" if n % 5 == 4 else b"<%d>" % n) for n in range(NUM_TOKENS)]
TEXT = b"".join(piece for _, piece in STEPS) + b"[end]"
USAGE = Usage(3, NUM_TOKENS, 1)
AT_ONCE = replace(USUAL, full_s=0.0)
CARD = ModelCard("demo", frozenset(), 100, 0, "manta")


class Stream:
    """A channel's stream: what is left of the answer, up to where its replica dies."""

    def __init__(self, left, error: ChannelError | None) -> None:
        self.summary: dict = {}
        self.notes: list[bytes] = []
        self.was_cancelled = False
        self._left = left
        self._error = error

    async def read(self) -> list[bytes]:
        if self._left:
            batch, self._left = self._left[:2], self._left[2:]
            self.notes = [note for note, _ in batch]
            if not self._left and self._error is None:  # The last piece comes in one frame with the summary.
                self.summary = {"usage": [3, NUM_TOKENS, 1, 0], "finish_reasons": ["stop", "stop"], "queued_s": 0.0}
            return [piece for _, piece in batch]
        if self._error is not None:
            raise self._error
        return []

    def cancel(self) -> None:
        self.was_cancelled = True

    async def wait_end(self, timeout_s: float) -> None:
        """The last word of a replica that had counted nothing yet."""


@dataclass
class Engine:
    """Replicas, each with what happens to the request there: dies after a number of frames, or cannot be reached."""

    plans: list[int | ChannelError | EngineError | None]
    card: ModelCard = CARD
    resume_wait_s: float = 60.0
    patience: Patience = AT_ONCE
    num_moved: int = 0
    connected: set[str] = field(default_factory=set)
    headers: list[dict] = field(default_factory=list)
    asked: list[frozenset[str]] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)

    async def open(self, request, header, tried) -> Stream:
        self.asked.append(frozenset(tried))
        plan = self.plans.pop(0) if self.plans else None
        if isinstance(plan, Overloaded):  # There is no other replica.
            raise plan
        tried.append(f"replica{len(self.asked)}")
        if isinstance(plan, EngineError):
            raise plan
        self.headers.append(header)
        written = Written(header["written"])
        left = STEPS[len(written.steps) :]
        if not written.prompts:
            left = [(pack_prompt(0, PromptTokens(3, 1)), b""), *left]
        left = [*left, (b"", b"[end]")]
        if isinstance(plan, ChannelError):
            self.streams.append(Stream([], plan))
        elif plan is not None and plan < len(left):
            self.streams.append(Stream(left[:plan], Lost("gone")))
        else:
            self.streams.append(Stream(left, None))
        return self.streams[-1]

    def is_connected(self, replica_id: str) -> bool:
        return replica_id in self.connected


async def read(engine, request=REQUEST):
    answer = RemoteStream(engine, request)
    pieces = [piece async for piece in answer]
    await answer.aclose()
    return answer, b"".join(pieces)


@given(st.lists(st.integers(0, NUM_TOKENS + 1), max_size=MAX_DEATHS - 1), st.sampled_from(["wire", "events"]))
def test_answer_is_whole_wherever_replicas_die(deaths, render):
    async def scenario():
        engine = Engine(list(deaths))
        answer, text = await read(engine, replace(REQUEST, render=render))
        assert text == TEXT
        assert (answer.summary.usage, answer.summary.finish_reasons) == (USAGE, ["stop", "stop"])
        assert Written(unpack(answer.summary.written)).num_tokens == NUM_TOKENS
        assert len({header["created"] for header in engine.headers}) == 1

    asyncio.run(scenario())


async def test_pieces_and_their_tokens_stay_together_for_a_reader_of_events():
    answer = RemoteStream(Engine([4]), replace(REQUEST, render="events"))
    num_seen = 0
    async for piece in answer:
        steps = Written(unpack(answer.summary.written)).steps
        assert len(steps) > num_seen or piece == b"[end]"
        assert piece in (STEPS[len(steps) - 1][1], b"[end]")
        num_seen = len(steps)


async def test_usage_is_known_with_the_last_piece_and_not_before():
    answer = RemoteStream(Engine([4]), REQUEST)
    known = [(piece.endswith(b"[end]"), answer.summary.usage) async for piece in answer]
    assert {usage for is_last, usage in known if not is_last} == {None}
    assert known[-1] == (True, USAGE)


async def test_what_was_written_before_goes_along():
    engine = Engine([3])
    before = b"".join(note for note, _ in STEPS[:5])
    answer, text = await read(engine, replace(REQUEST, written=before))
    assert text == b"".join(piece for _, piece in STEPS[5:]) + b"[end]"
    assert [len(Written(header["written"]).steps) for header in engine.headers] == [5, 7]
    assert Written(unpack(answer.summary.written)).num_tokens == NUM_TOKENS - 5


async def test_every_replica_is_told_the_salt_of_the_account_and_the_priority():
    engine = Engine([2, None])
    await read(engine, replace(REQUEST, cache_salt="salt", priority=3))
    assert [(header["cache_salt"], header["priority"]) for header in engine.headers] == [("salt", 3)] * 2


async def test_request_that_kills_engines_at_the_same_token_is_given_up():
    engine = Engine([5, 0, 1, 2, None])
    answer = RemoteStream(engine, REQUEST)
    with pytest.raises(EngineDied):
        _ = [piece async for piece in answer]
    await answer.aclose()
    assert len(engine.streams) == MAX_DEATHS
    assert answer.summary.usage is None


async def test_request_that_makes_progress_survives_any_number_of_deaths(monkeypatch):
    monkeypatch.setattr(module, "PROGRESS_BYTES", 12)
    assert (await read(Engine([2] * 11)))[1] == TEXT


@pytest.mark.parametrize("first", [Lost("gone"), EngineDied("unreachable")])
async def test_whole_answer_runs_again_from_the_start(first):
    engine = Engine([first, Overloaded("none"), None])
    _, text = await read(engine, replace(REQUEST, stream=False))
    assert text == TEXT
    assert all(header["written"] == [] for header in engine.headers)


async def test_stream_without_notes_breaks_off_where_its_replica_dies():
    engine = Engine([])
    answer = RemoteStream(engine, REQUEST)
    pieces = aiter(answer)
    stream = Stream([(b"", b"<0>"), (b"", b"<1>")], Lost("gone"))
    engine.open = lambda request, header, tried: asyncio.sleep(0, stream)
    assert await anext(pieces) == b"<0><1>"
    with pytest.raises(EngineDied):
        await anext(pieces)


async def test_it_waits_for_a_replica_that_is_started_and_then_gives_up():
    engine = Engine([3, *[Overloaded("none")] * 50, None])
    assert (await read(engine))[1] == TEXT
    engine = Engine([3, *[Overloaded("none")] * 50], resume_wait_s=0.0)
    with pytest.raises(EngineDied):
        await read(engine)


async def test_it_gives_up_when_no_choice_comes_in_time():
    engine = Engine([3], resume_wait_s=0.01)
    opened = engine.open

    async def open_once(request, header, tried):
        return await (opened(request, header, tried) if not engine.asked else asyncio.Event().wait())

    engine.open = open_once
    with pytest.raises(EngineDied):
        await read(engine)


async def test_replica_whose_engine_died_is_left_out_for_good_and_one_that_was_full_only_once():
    engine = Engine([3, Full("full"), Overloaded("none"), None], connected={"replica1"})
    assert (await read(engine))[1] == TEXT
    assert engine.asked == [
        frozenset(),
        {"replica1"},
        {"replica1", "replica2"},
        {"replica1"},
    ]


async def test_replica_whose_connection_was_cut_is_asked_again():
    engine = Engine([3, Overloaded("none"), None])
    assert (await read(engine))[1] == TEXT
    assert engine.asked == [frozenset(), {"replica1"}, frozenset()]


@pytest.mark.parametrize("num_full", [1, MAX_TRIES])
async def test_full_replicas_refuse_at_once_when_none_has_died(num_full):
    engine = Engine([Full("full")] * num_full)
    if num_full < MAX_TRIES:
        assert (await read(engine))[1] == TEXT
        return
    with pytest.raises(Overloaded, match="full"):
        await read(engine)


async def test_no_replica_at_all_refuses_at_once():
    engine = Engine([Overloaded("starting")])
    with pytest.raises(Overloaded, match="starting"):
        await read(engine)
    assert len(engine.asked) == 1


async def test_tokens_of_a_reader_who_leaves_in_the_pause_are_counted():
    engine = Engine([5, *[Overloaded("none")] * 10**6])
    answer = RemoteStream(engine, REQUEST)
    pieces = aiter(answer)
    while not (len(answer.summary.written) > 12 * 4):
        await anext(pieces)
    waiting = asyncio.create_task(anext(pieces))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await answer.aclose()
    assert answer.summary.usage == Usage(3, 4, 1)


async def test_its_steps_are_noted_where_traces_are_on():
    steps = open_steps()
    await read(Engine([4, None]))
    names = [one.name for one in steps]
    assert names == ["routing", "routing", "chat demo", "queue", "prefill", "decode"]
    whole = steps[2]
    assert whole.attributes["manta.replica_losses"] == 1
    assert whole.attributes["gen_ai.usage.output_tokens"] == NUM_TOKENS
    assert all(whole.began <= one.began <= one.ended <= whole.ended for one in steps)
