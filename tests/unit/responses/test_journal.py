"""The journal of a response in the background, and the engine whose answers are in one."""

import asyncio
from typing import Any

import orjson
import pytest

from deployments.models.contract.engine import EngineRequest, Usage
from deployments.models.contract.errors import EngineDied, EngineError, Overloaded, RequestRejected
from serve_app.operations.responses.events.writer import EventWriter
from serve_app.operations.responses.journal import (
    EmittedEvents,
    Journal,
    JournaledEngine,
    JournalMismatch,
    RetryPolicy,
)
from tests.twins.engine import Noted, Script, ScriptedEngine, model_card, written_of

REQUEST = EngineRequest("chat", "req_1", b"{}", stream=True, render="events")
USAGE = Usage(prompt_tokens=7, completion_tokens=3)
PATIENCE = RetryPolicy(max_tries=3, wait_s=0)
WORDS = ("One ", "two ", "three.")


def told(number: int, *events: Any) -> Noted:
    return Noted([number], orjson.dumps(events))


ANSWER = [told(n, ["text", 0, word]) for n, word in enumerate(WORDS)]
END = told(3, ["finished", 0, "stop"])


def rest(request: EngineRequest) -> Script:
    """Answer with what is left of the answer."""
    return Script([*ANSWER, END][len(written_of(request)) :], USAGE)


def scripted(*scripts: Script) -> ScriptedEngine:
    """Return an engine that answers with the scripts, and then with what is left of the answer."""
    left = list(scripts)
    return ScriptedEngine(model_card("m"), lambda request: left.pop(0) if left else rest(request))


async def ask(engine: ScriptedEngine, journal: Journal) -> tuple[list[Any], Usage | None]:
    stream = JournaledEngine(engine, journal, PATIENCE).run(REQUEST)
    events = [event async for piece in stream for event in orjson.loads(piece)]
    await stream.aclose()
    return events, stream.summary.usage


async def kept_answer() -> list[bytes]:
    """Return the journal's entries of the whole answer."""
    journal = Journal(is_kept=True)
    await ask(scripted(), journal)
    return journal.take_written()


async def test_an_answer_comes_as_the_engine_made_it_and_again_from_the_journal_alone() -> None:
    whole = [["text", 0, word] for word in WORDS] + [["finished", 0, "stop"]]
    journal, engine = Journal(is_kept=True), scripted()
    assert await ask(engine, journal) == (whole, USAGE)
    nobody = scripted(Script([EngineDied("gone")]))
    assert await ask(nobody, Journal(journal.take_written(), is_kept=True)) == (whole, USAGE)
    assert nobody.requests == []


@pytest.mark.parametrize("cut", range(4))
async def test_it_goes_on_after_what_the_journal_has(cut: int) -> None:
    entries = (await kept_answer())[:cut]
    engine = scripted()
    events, usage = await ask(engine, Journal(entries, is_kept=True))
    assert "".join(event[2] for event in events if event[0] == "text") == "".join(WORDS)
    assert usage == USAGE
    assert list(map(written_of, engine.requests)) == [[[n] for n in range(cut)]]


async def test_the_end_is_not_in_the_journal_before_what_it_took_is_known() -> None:
    """Or the next runner would have the engine go on after the end."""
    journal, stands = Journal(is_kept=True), asyncio.Event()
    asking = asyncio.create_task(ask(scripted(Script([*ANSWER, END, stands], USAGE)), journal))
    written: list[bytes] = []
    while len(written) < len(ANSWER):
        await asyncio.sleep(0)
        written += journal.take_written()
    assert b"finished" not in b"".join(written)
    stands.set()
    await asking
    assert [orjson.loads(entry)["kind"] for entry in journal.take_written()] == ["piece", "ended"]


@pytest.mark.parametrize("error", [Overloaded("full"), EngineDied("gone")])
async def test_an_engine_is_asked_again_for_the_rest(error: EngineError) -> None:
    engine = scripted(Script([error]), Script([*ANSWER[:2], error]))
    events, usage = await ask(engine, Journal(is_kept=True))
    assert ([event[2] for event in events], usage) == ([*WORDS, "stop"], USAGE)
    assert [len(written_of(request)) for request in engine.requests] == [0, 0, 2]


async def test_an_engine_that_keeps_failing_fails_the_answer() -> None:
    engine = scripted(*[Script([EngineDied("gone")])] * 5)
    with pytest.raises(EngineDied):
        await ask(engine, Journal(is_kept=True))
    assert len(engine.requests) == PATIENCE.max_tries


async def test_a_refusal_is_one_again() -> None:
    journal = Journal(is_kept=True)
    with pytest.raises(RequestRejected):
        await ask(scripted(Script([RequestRejected("Too long.", "messages", "too_long")])), journal)
    engine = scripted()
    again = Journal(journal.take_written())
    with pytest.raises(RequestRejected) as caught:
        await ask(engine, again)
    assert (caught.value.message, caught.value.param, caught.value.code) == ("Too long.", "messages", "too_long")
    assert engine.requests == []


def test_what_nobody_keeps_is_not_written() -> None:
    journal = Journal()
    journal.write("call", name="f")
    assert journal.take_written() == []


def test_nothing_is_written_before_all_of_the_past_is_read() -> None:
    past = Journal(is_kept=True)
    past.write("call", name="f")
    journal = Journal(past.take_written(), is_kept=True)
    with pytest.raises(JournalMismatch):
        journal.write("call", name="f")
    assert journal.read("done") is None
    assert journal.read("call") == {"kind": "call", "name": "f"}
    journal.write("done")


async def test_whoever_waits_goes_on_when_all_entries_are_safe() -> None:
    journal = Journal(is_kept=True)
    await journal.wait_kept()
    for name in ("f", "g"):
        journal.write("call", name=name)
    waiting = asyncio.create_task(journal.wait_kept())
    for _ in range(2):
        assert not waiting.done()
        journal.note_kept(1)
        await asyncio.sleep(0)
    await waiting


def test_calls_are_told_with_their_names_but_not_one_that_has_no_end() -> None:
    past = Journal(is_kept=True)
    past.write("call", name="interrupted")
    past.write("call", name="f")
    past.write("told", event="e", fields={})
    past.write("done", item={"id": "ci_1"}, output="42")
    past.write("call", name="under_way")
    assert Journal(past.take_written()).calls() == [({"id": "ci_1"}, "f", "42")]


def test_what_was_shown_is_left_out_and_must_be_the_same() -> None:
    writer = EventWriter()
    events = [writer.write(kind) for kind in ("response.created", "response.queued", "response.in_progress")]
    shown = EmittedEvents(events[:2])
    assert shown.leave_out(events[:1]) == []
    assert shown.leave_out(events[1:]) == events[2:]
    with pytest.raises(JournalMismatch):
        EmittedEvents(events[:2]).leave_out(events[1:])


def test_items_become_those_that_were_shown() -> None:
    writer = EventWriter()
    message, call = {"type": "message", "id": "msg_1"}, {"type": "code_interpreter_call", "id": "ci_1"}
    added = [writer.write("response.output_item.added", item=item) for item in (message, call)]
    thought = {"type": "reasoning", "id": "rs_1", "encrypted_content": "sealed"}
    shown = EmittedEvents([*added, writer.write("response.output_item.done", item=thought)]).items(str.upper)
    assert shown.new_id("msg") == "msg_1"
    assert shown.new_id("msg").startswith("msg_")
    for wanted in (call, {"id": "ci_new"}):
        item = {"id": "ci_new"}
        shown.begin_tool(item)
        assert item == wanted
    assert [shown.seal_reasoning("a"), shown.seal_reasoning("b")] == ["sealed", "B"]
