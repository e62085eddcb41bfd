"""The answer to an outcome, driven message by message: nothing here runs a server."""

import asyncio
import contextlib
from dataclasses import dataclass, field

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.models.contract.engine import EngineRequest, Usage
from deployments.models.contract.errors import EngineDied, EngineError, Overloaded
from deployments.patience import USUAL
from serve_app.errors.api import KeyRevoked
from serve_app.http.admission import Admission
from serve_app.http.auth import KeyWatch
from serve_app.http.sse import OutcomeResponse, Silence
from serve_app.operations.contract import Cost, Outcome
from serve_app.telemetry.trace import RequestTrace
from tests.twins.engine import Script, ScriptedStream
from tests.twins.gatekeeper import MemoryGatekeeper, TestClock
from tests.twins.keys import principal_of_key
from tests.waiting import eventually

PRINCIPAL = principal_of_key(requests_per_minute=5, tokens_per_minute=10_000)
REQUEST = EngineRequest("chat", "req_1", b"{}")


@dataclass
class Client:
    """The other side of an answer: keeps what is sent, leaves after `leaves_after` messages, breaks at `breaks_at`."""

    leaves_after: int | None = None
    breaks_at: int | None = None
    sent: list[dict] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        if self.breaks_at == len(self.sent):
            raise OSError("broken pipe")
        self.sent.append(message)
        if self.leaves_after is not None and len(self.sent) >= self.leaves_after:
            self.gone.set()
            await asyncio.sleep(0)

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    @property
    def headers(self):
        return dict(self.sent[0]["headers"])


class Answer:
    """One answer on its way, with everything that it touches."""

    def __init__(self, script, *, is_stream=True, silence=None):
        self.gatekeeper = MemoryGatekeeper({}, TestClock())
        self.stream = ScriptedStream(script, REQUEST)
        self.trace = RequestTrace("req_1", "POST", at=0.0, started=0.0, principal=PRINCIPAL)
        self.is_stream = is_stream
        self.silence = silence or Silence()

    async def __call__(self, client):
        ticket = await Admission(self.gatekeeper).admit(PRINCIPAL)
        await ticket.reserve(Cost("m", 100, 900, 4000))
        response = OutcomeResponse(Outcome(self.stream, self.is_stream), ticket.detach(), self.trace, self.silence)
        await response({"type": "http"}, client.receive, client.send)

    @property
    def settled(self):
        return [used for _, _, used in self.gatekeeper.settled]


async def test_each_piece_is_one_message_as_it_came():
    client, answer = Client(), Answer(Script([b"a", b"bb", b"c"], Usage(10, 5)))
    await answer(client)
    start, *bodies = client.sent
    assert start["status"] == 200
    assert client.headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert [message["body"] for message in bodies] == [b"a", b"bb", b"c", b""]
    assert [message.get("more_body", False) for message in bodies] == [True, True, True, False]
    assert answer.settled == [15]
    assert answer.trace.usage == Usage(10, 5)


async def test_body_is_one_message_with_its_length():
    client, answer = Client(), Answer(Script([b'{"a"', b":1}"], Usage(10, 5)), is_stream=False)
    await answer(client)
    assert client.headers == {
        b"content-type": b"application/json",
        b"content-length": b"7",
        b"cache-control": b"no-store",
    }
    assert [message.get("body") for message in client.sent] == [None, b'{"a":1}']
    assert answer.settled == [15]


async def test_rest_of_a_stream_goes_straight_to_the_server():
    client, server, answer = Client(), Client(), Answer(Script([b"a", b"b"]))
    answer.trace.server_send = server.send
    await answer(client)
    assert [message["type"] for message in client.sent] == ["http.response.start"]
    assert [message["body"] for message in server.sent] == [b"a", b"b", b""]


@pytest.mark.parametrize("steps", [[b"a", b"b", b"[end]"], [b"[end]"]])
@pytest.mark.parametrize("is_stream", [False, True])
async def test_request_is_taken_down_with_its_usage_before_its_end_is_sent(is_stream, steps):
    client, answer = Client(), Answer(Script(steps, Usage(10, 5)), is_stream=is_stream)
    taken_down = []

    def write_ahead():
        assert not any(b"[end]" in message.get("body", b"") for message in client.sent)
        taken_down.append(answer.trace.usage)

    answer.trace.write_ahead = write_ahead
    await answer(client)
    assert taken_down == [Usage(10, 5)]
    assert client.body == b"".join(steps)


async def test_request_that_fails_is_not_taken_down_as_answered():
    client, answer = Client(), Answer(Script([b"a", EngineDied("gone")], Usage(10, 5)))
    answer.trace.write_ahead = lambda: pytest.fail("It has no whole answer.")
    await answer(client)
    assert answer.trace.status == 503 or answer.trace.code


@pytest.mark.parametrize("is_stream", [False, True])
async def test_failure_before_the_first_piece_is_raised(is_stream):
    client, answer = Client(), Answer(Script([Overloaded("full", 3.0)]), is_stream=is_stream)
    with pytest.raises(Overloaded):  # The middleware makes an answer of it.
        await answer(client)
    assert client.sent == []
    assert answer.settled == [0]


async def test_failure_midway_is_the_last_event():
    client = Client()
    answer = Answer(Script([b"data: {}\n\n", EngineDied("gone")], usage_when_aborted=Usage(10, 1)))
    await answer(client)
    event = client.sent[2]["body"]
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert set(orjson.loads(event[6:])["error"]) == {"message", "type", "param", "code"}
    assert client.sent[-1] == {"type": "http.response.body", "body": b""}
    assert (answer.trace.status, answer.trace.code) == (503, "server_error")
    assert answer.settled == [11]


async def test_bug_midway_is_told_in_one_fixed_sentence(caplog):
    client, answer = Client(), Answer(Script([b"x", ZeroDivisionError("what was said")]))
    await answer(client)
    assert b"what was said" not in client.body
    assert "what was said" not in caplog.text
    assert "ZeroDivisionError" in caplog.text


async def test_departure_before_the_first_piece_sends_nothing():
    client, answer = Client(), Answer(Script([asyncio.Event()]))
    running = asyncio.create_task(answer(client))
    await answer.stream.started.wait()
    client.gone.set()
    await running
    assert client.sent == []
    assert answer.trace.status == 499
    assert answer.stream.is_aborted
    assert answer.settled == [0]


async def test_connection_that_cannot_be_listened_to_counts_as_left():
    async def receive():
        raise ConnectionError

    client, answer = Client(), Answer(Script([asyncio.Event()]))
    client.receive = receive
    await answer(client)
    assert answer.trace.status == 499
    assert answer.stream.ended.is_set()


async def test_cancellation_from_outside_closes_everything():
    client, answer = Client(), Answer(Script([b"x", asyncio.Event()], usage_when_aborted=Usage(3, 1)))
    running = asyncio.create_task(answer(client))
    await answer.stream.started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert answer.stream.is_aborted
    assert len(answer.settled) == 1
    assert not answer.trace.status


async def test_stream_that_cannot_be_closed_is_noted_and_settled(caplog):
    client, answer = Client(), Answer(Script([b"x"], Usage(1, 1)))

    async def fail():
        raise ConnectionError("private words")

    answer.stream.aclose = fail
    await answer(client)
    assert answer.settled == [2]
    assert "ConnectionError" in caplog.text
    assert "private words" not in caplog.text


@pytest.mark.parametrize("is_stream", [True, False])
async def test_an_answer_ends_soon_after_its_key_was_revoked(is_stream):
    client, answer = (
        Client(),
        Answer(Script([b"x", asyncio.Event()], usage_when_aborted=Usage(3, 1)), is_stream=is_stream),
    )
    gatekeeper = answer.gatekeeper
    gatekeeper.principals = {"mk-secret": PRINCIPAL}
    answer.trace.key_digest = gatekeeper.digest("mk-secret")
    running = asyncio.create_task(answer(client))
    await answer.stream.started.wait()
    await asyncio.sleep(2 * USUAL.key_look_s)
    assert not running.done()
    gatekeeper.unavailable = True  # Nobody can tell, and nothing ends.
    await asyncio.sleep(2 * USUAL.key_look_s)
    assert not running.done()
    gatekeeper.unavailable = False
    del gatekeeper.principals["mk-secret"]
    async with asyncio.timeout(10):
        if is_stream:
            await running
        else:
            with pytest.raises(KeyRevoked):
                await running
    assert answer.settled == [4]
    assert answer.stream.is_aborted
    if is_stream:
        *_, failure, end = client.sent
        assert orjson.loads(failure["body"].removeprefix(b"data: "))["error"]["code"] == "invalid_api_key"
        assert end == {"type": "http.response.body", "body": b""}
        assert answer.trace.status == 401


async def test_answers_of_other_keys_go_on():
    gatekeeper, ended = MemoryGatekeeper({"mk-a": PRINCIPAL, "mk-b": PRINCIPAL}, TestClock()), []
    watch = KeyWatch(gatekeeper)
    with (
        watch.watching(gatekeeper.digest("mk-a"), lambda: ended.append("a")),
        watch.watching(gatekeeper.digest("mk-b"), lambda: ended.append("b")),
    ):
        del gatekeeper.principals["mk-a"]
        await eventually(lambda: ended)
        assert set(ended) == {"a"}
    assert not watch._watched
    await eventually(lambda: watch._looking.done())


steps = st.lists(
    st.sampled_from([b"x", b"y" * 100, EngineError("e"), EngineDied("d"), ValueError("v")]), min_size=0, max_size=5
)


@given(
    steps=steps,
    is_stream=st.booleans(),
    leaves_after=st.one_of(st.none(), st.integers(1, 6)),
    breaks_at=st.one_of(st.none(), st.integers(0, 6)),
    aborted=st.one_of(st.none(), st.builds(Usage, st.integers(0, 500), st.integers(0, 500))),
)
async def test_stream_and_ticket_are_closed_once_whatever_happens(steps, is_stream, leaves_after, breaks_at, aborted):
    client = Client(leaves_after, breaks_at)
    answer = Answer(Script(steps, Usage(10, 5), usage_when_aborted=aborted), is_stream=is_stream)
    with contextlib.suppress(EngineError, OSError, ValueError):
        await answer(client)
    usage = answer.stream.summary.usage
    assert answer.settled == [usage.total_tokens if usage else 0]
    assert answer.stream.ended.is_set()
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.cancelling()]


SILENCE = Silence(0.05, 0.02)


async def test_a_silent_stream_begins_and_says_comments_until_its_first_piece():
    go_on = asyncio.Event()
    client, answer = Client(), Answer(Script([go_on, b"data: 1\n\n", b"data: 2\n\n"], Usage(10, 5)), silence=SILENCE)
    answering = asyncio.create_task(answer(client))
    await eventually(lambda: len(client.sent) >= 4)
    assert answer.trace.first_piece_at is None
    assert answer.settled == []
    start, *comments = client.sent
    assert start["status"] == 200
    assert all(comment["body"].startswith(b":") and comment["body"].endswith(b"\n\n") for comment in comments)
    go_on.set()
    await answering
    assert [one["body"] for one in client.sent if b"data" in one.get("body", b"")] == [b"data: 1\n\n", b"data: 2\n\n"]
    assert client.sent[-1] == {"type": "http.response.body", "body": b""}
    assert answer.settled == [15]


async def test_a_pause_within_a_stream_is_filled_and_an_answer_that_is_whole_never():
    go_on = asyncio.Event()
    client, answer = Client(), Answer(Script([b"data: 1\n\n", go_on, b"data: 2\n\n"], Usage(10, 5)), silence=SILENCE)
    whole_client, whole = Client(), Answer(Script([b"{", go_on, b"}"], Usage(10, 5)), is_stream=False, silence=SILENCE)
    answering = asyncio.gather(answer(client), whole(whole_client))
    await eventually(lambda: len(client.sent) >= 4)
    assert whole_client.sent == []
    go_on.set()
    await answering
    bodies = [one.get("body") for one in client.sent]
    assert bodies[1] == b"data: 1\n\n"
    assert bodies[2].startswith(b":")
    assert bodies[-2:] == [b"data: 2\n\n", b""]
    assert whole_client.body == b"{}"


async def test_a_stream_that_speaks_in_time_has_no_comments():
    client, answer = Client(), Answer(Script([b"a", b"b"], Usage(10, 5)), silence=Silence(30.0, 30.0))
    await answer(client)
    assert [one.get("body") for one in client.sent] == [None, b"a", b"b", b""]


async def test_a_refusal_after_the_head_is_an_event():
    go_on = asyncio.Event()
    client, answer = Client(), Answer(Script([go_on, Overloaded("full", 3.0)]), silence=SILENCE)
    answering = asyncio.create_task(answer(client))
    await eventually(lambda: client.sent)
    go_on.set()
    await answering
    (event,) = [one["body"] for one in client.sent if one.get("body", b"").startswith(b"data: ")]
    assert orjson.loads(event.removeprefix(b"data: "))["error"]["type"] == "server_error"
    assert answer.trace.status == 503
    assert answer.settled == [0]


async def test_a_client_that_leaves_a_silent_stream_ends_it():
    client, answer = Client(leaves_after=2), Answer(Script([asyncio.Event(), b"a"]), silence=SILENCE)
    await answer(client)
    assert answer.stream.is_aborted
    num_sent = len(client.sent)
    await asyncio.sleep(0.1)
    assert len(client.sent) == num_sent
