"""Summaries of reasoning: the model writes them, a part a section, and the answer does not depend on them."""

import asyncio
from dataclasses import replace

import openai
import orjson
import pytest

from deployments.models.contract.engine import Usage
from deployments.models.contract.errors import EngineDied, Overloaded, RequestRejected
from deployments.models.contract.events import Finished, ReasoningDelta
from serve_app.operations.responses.run.summary import STYLES
from tests.contract.http.answers import MODEL, SECRET, USAGE, pieces, said
from tests.contract.http.background_calls import ended, events_of, kill, taken_over
from tests.contract.http.response_calls import WEATHER, calling, lines_of, messages, stream_of
from tests.contract.http.responses.test_responses_socket import address, socket  # noqa: F401
from tests.contract.http.responses.test_taking_over import normal
from tests.patience import PATIENT
from tests.twins.engine import Script, written_of
from tests.twins.legal import fold
from tests.waiting import eventually

LONG = "I look at it closely. " * 50
"""Reasoning that is longer than its summary may be, and shorter than a section."""
SUMMARY_USAGE = Usage(prompt_tokens=300, completion_tokens=20, cached_tokens=5)
ASKED = {"input": "Sure?", "reasoning": {"effort": "low", "summary": "auto"}}
SEALED = {"include": ["reasoning.encrypted_content"]}
SUMMARY = [{"type": "summary_text", "text": "**Looking** I look."}]


def thought(*texts):
    return [[ReasoningDelta("reasoning", 0, text)] for text in texts]


def is_summary(request) -> bool:
    return orjson.loads(request.body)["messages"][0]["content"].startswith("Summarize the reasoning")


def reasons(world, *texts, answer=None, summary=None):
    """Have the model reason with these texts and answer; `summary` is the script of each call for a part."""

    def play(request):
        if is_summary(request):
            words = said("**Looking** ", "I look.")
            return summary(request) if summary else Script(pieces(request, words), SUMMARY_USAGE)
        return Script(pieces(request, [*thought(*texts), *(answer or said("Ye", "s."))]), USAGE)

    world.chat.script = play


def asked_for_parts(world) -> list[dict]:
    return [orjson.loads(request.body) for request in world.chat.requests if is_summary(request)]


def kinds(events) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


async def test_a_summary_takes_the_place_of_the_text_and_comes_before_the_answer(world):
    reasons(world, LONG[:500], LONG[500:])
    events = await stream_of(world, {**ASKED, **SEALED, "store": False})
    final = fold(events)
    thinking, message = final["output"]
    assert (thinking["summary"], thinking["content"]) == (SUMMARY, [])
    assert message["content"][0]["text"] == "Yes."
    assert kinds(events)[2:10] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
    ]
    (part,) = asked_for_parts(world)
    assert [one["content"] for one in part["messages"][1:]] == [LONG.strip()]
    assert (part["reasoning_effort"], part["max_completion_tokens"], part["stream"]) == ("none", 200, True)


async def test_its_tokens_are_told_and_counted_against_the_limits(world):
    reasons(world, LONG)
    final = fold(await stream_of(world, {**ASKED, "max_output_tokens": 1000}))
    total = USAGE.total_tokens + SUMMARY_USAGE.total_tokens
    assert final["usage"]["total_tokens"] == total
    assert final["usage"]["input_tokens_details"]["cached_tokens"] == USAGE.cached_tokens + 5
    assert final["usage"]["output_tokens_details"]["reasoning_tokens"] == USAGE.reasoning_tokens + 20
    _, reserved, used = world.gatekeeper.settled[-1]
    assert used == world.log.records[-1].prompt_tokens + world.log.records[-1].completion_tokens == total
    reasons(world, "No.")
    await stream_of(world, {"input": "Sure?", "max_output_tokens": 1000})
    assert reserved - world.gatekeeper.settled[-1][1] == STYLES["auto"].most_tokens(1000, 4096)


async def test_the_text_is_shown_too_where_it_is_not_sealed(world, responses):
    reasons(world, LONG)
    final = fold(await stream_of(world, ASKED))
    assert final["output"][0]["content"] == [{"type": "reasoning_text", "text": LONG}]
    assert final["output"][0]["summary"] == SUMMARY
    assert final["reasoning"] == {"effort": "low", "summary": "auto"}


@pytest.mark.parametrize("more", [{}, SEALED])
async def test_a_stored_stream_is_the_same_again(world, more):
    reasons(world, LONG[:500], LONG[500:])
    events = await stream_of(world, {**ASKED, **more})
    again = await events_of(world, events[0]["response"]["id"])
    assert again == events


@pytest.mark.parametrize("kind", ["auto", "concise", "detailed"])
async def test_every_kind_is_written_whole_and_in_batches_too(world, responses, kind):
    body = {"model": MODEL, "input": "Sure?", "reasoning": {"summary": kind}}
    reasons(world, LONG * 2)
    told = (await responses.create(**body)).model_dump()
    ((status, line),) = await lines_of(world, body)
    assert status == 200
    for one in (told, line):
        assert [part["text"] for part in one["output"][0]["summary"]] == [SUMMARY[0]["text"]]
        assert one["usage"]["total_tokens"] == USAGE.total_tokens + SUMMARY_USAGE.total_tokens
    style = STYLES[kind]
    assert {part["messages"][0]["content"] for part in asked_for_parts(world)} == {style.instructions}
    assert {part["max_completion_tokens"] for part in asked_for_parts(world)} == {style.part_tokens}


async def test_a_brief_thought_is_its_own_summary(world):
    reasons(world, "Hm", "m. ", "Yes")
    final = fold(await stream_of(world, {**ASKED, **SEALED}))
    assert final["output"][0]["summary"] == [{"type": "summary_text", "text": "Hmm. Yes"}]
    assert asked_for_parts(world) == []
    assert final["usage"]["total_tokens"] == USAGE.total_tokens


async def test_without_a_wish_there_is_no_summary(world):
    reasons(world, LONG)
    final = fold(await stream_of(world, {"input": "Sure?", "reasoning": {"effort": "low"}}))
    assert final["output"][0]["summary"] == []
    assert asked_for_parts(world) == []


@pytest.mark.parametrize("is_stream", [True, False])
async def test_long_reasoning_has_a_part_for_each_section_while_it_goes_on(world, responses, is_stream):
    section = 4 * STYLES["detailed"].section_of(4096)
    texts = [LONG] * (2 * (section // len(LONG) + 1)) + ["x" * 900]
    reasons(world, *texts, answer=calling(("call_1", "weather", "{}")))
    body = {"input": "Sure?", "tools": [WEATHER], "reasoning": {"summary": "detailed"}}
    if is_stream:
        events = await stream_of(world, body)
        told = kinds(events)
        first = told.index("reasoning_summary_part.added")
        assert "reasoning_text.delta" in told[first:]  # It is shown before the reasoning has ended.
        final = fold(events)
    else:
        final = (await responses.create(model=MODEL, **body)).model_dump()
    parts = asked_for_parts(world)
    assert len(final["output"][0]["summary"]) == len(parts) + 1  # The rest is brief.
    assert all(len(part["messages"][1]["content"]) <= section + len(LONG) for part in parts)
    read = "".join(part["messages"][1]["content"] for part in parts)
    assert (read + "x" * 900).replace(" ", "") == "".join(texts).replace(" ", "")
    assert [item["type"] for item in final["output"]] == ["reasoning", "function_call"]


async def test_one_piece_of_reasoning_is_cut_into_sections(world):
    section = 4 * STYLES["detailed"].section_of(4096)
    reasons(world, "y" * (2 * section + 900))
    final = fold(await stream_of(world, {"input": "Sure?", "reasoning": {"summary": "detailed"}}))
    assert [len(part["messages"][1]["content"]) for part in asked_for_parts(world)] == [section + 450] * 2
    assert len(final["output"][0]["summary"]) == 2


FAILURES = [Overloaded("full"), EngineDied("gone"), RequestRejected("no", "messages", "too_long")]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
@pytest.mark.parametrize("num_said", [0, 1])
async def test_a_summary_that_fails_does_not_fail_the_answer(world, failure, num_said):
    def fails(request):
        return Script([*pieces(request, said("**Look", "ing**"))[:num_said], failure], usage_when_aborted=SUMMARY_USAGE)

    section = 4 * STYLES["detailed"].section_of(4096)
    reasons(world, "z" * section, LONG * 2, summary=fails)
    final = fold(await stream_of(world, {"input": "Sure?", "reasoning": {"summary": "detailed"}}))
    assert final["status"] == "completed"
    assert final["output"][1]["content"][0]["text"] == "Yes."
    assert final["output"][0]["summary"] == [{"type": "summary_text", "text": "**Look"}][:num_said]
    assert len(asked_for_parts(world)) == 1  # It is not tried again in this response.
    counted = SUMMARY_USAGE.total_tokens if num_said else 0
    assert final["usage"]["total_tokens"] == USAGE.total_tokens + counted


@pytest.mark.parametrize("background", [False, True])
async def test_the_answer_does_not_wait_for_a_summary_that_takes_too_long(world, responses, background):
    def stands(request):
        return Script([*pieces(request, said("**Look", "ing**"))[:1], asyncio.Event()], SUMMARY_USAGE)

    world.patience = replace(PATIENT, summary_s=0.05)
    reasons(world, LONG, summary=stands)
    told = await world.client().responses.create(model=MODEL, background=background, **ASKED)
    final = await ended(world.client().responses, told.id) if background else told
    assert final.output_text == "Yes."
    assert [part.text for part in final.output[0].summary] == ["**Look"]
    assert world.chat.streams[-1].is_aborted or world.chat.streams[1].is_aborted


async def test_reasoning_that_was_cut_off_has_no_summary(world):
    reasons(world, LONG, answer=[[Finished("finished", 0, "length")]])
    final = fold(await stream_of(world, ASKED))
    assert (final["status"], final["output"][0]["summary"]) == ("incomplete", [])
    assert asked_for_parts(world) == []


async def test_a_client_that_leaves_meanwhile_pays_for_what_was_written(world, live):
    stands = asyncio.Event()

    def waits(request):
        return Script([*pieces(request, said("**Look", "ing**"))[:1], stands], usage_when_aborted=SUMMARY_USAGE)

    reasons(world, LONG, summary=waits)
    client = openai.AsyncOpenAI(api_key=SECRET, base_url=f"{live}/v1", max_retries=0)
    stream = await client.responses.create(model=MODEL, stream=True, **ASKED)
    async for event in stream:
        if event.type == "response.reasoning_summary_text.delta":
            break
    await stream.close()
    await client.close()
    await eventually(lambda: world.gatekeeper.settled)
    assert world.chat.streams[1].is_aborted
    assert world.gatekeeper.settled[-1][2] >= SUMMARY_USAGE.total_tokens


@pytest.mark.parametrize("more", [{}, SEALED])
async def test_the_model_goes_on_with_its_reasoning_and_not_with_the_summary(world, responses, more):
    reasons(world, LONG)
    first = await responses.create(model=MODEL, **ASKED, **more)
    await responses.create(model=MODEL, input="Really?", previous_response_id=first.id)
    told = [one["reasoning"] for one in messages(world) if "reasoning" in one]
    assert told == [LONG]
    kept = [{"role": "user", "content": "Sure?"}, *(item.model_dump(exclude_none=True) for item in first.output)]
    await responses.create(model=MODEL, input=[*kept, {"role": "user", "content": "Really?"}], store=False)
    assert [one["reasoning"] for one in messages(world) if "reasoning" in one] == told


async def test_over_a_websocket_the_model_goes_on_with_its_reasoning_too(world, socket):  # noqa: F811
    reasons(world, LONG)
    first = fold(await socket.turn(**ASKED, **SEALED, store=False))
    assert (first["output"][0]["summary"], first["output"][0]["content"]) == (SUMMARY, [])
    second = fold(await socket.turn(input="Really?", previous_response_id=first["id"], store=False, **SEALED))
    assert messages(world)[1]["reasoning"] == LONG
    await socket.turn(input="Yes?", previous_response_id=second["id"], store=False)
    assert [one["reasoning"] for one in messages(world) if "reasoning" in one] == [LONG, LONG]


async def test_a_wrong_kind_is_refused(responses):
    with pytest.raises(openai.BadRequestError) as caught:
        await responses.create(model=MODEL, input="Sure?", reasoning={"summary": "short"})
    assert caught.value.param == "reasoning.summary"


class Cut:
    """A model that reasons twice, with a long summary of each; it stands still after some number of pieces in all."""

    def __init__(self, world, stands_after: int | None = None, failing=None) -> None:
        section = 4 * STYLES["detailed"].section_of(4096)
        self.main = [*thought("a" * (section - 1), "a", "b" * 1800), *said("Ye", "s.")]
        self.part = said("**Looking** ", "I look.")
        self.world, self.left, self.failing = world, stands_after, failing

    def play(self, request) -> Script:
        events = self.part if is_summary(request) else self.main
        told = pieces(request, events)
        if is_summary(request) and self.failing is not None:
            told = [*told[:1], self.failing]
        return Script(self._counted(told), SUMMARY_USAGE if is_summary(request) else USAGE)

    def _counted(self, told):
        """Return pieces that stand still when as many were taken as may be, whichever stream took them."""
        cut = self

        class Steps(list):
            def __iter__(self):
                for step in list.__iter__(self):
                    if cut.left is not None and not isinstance(step, BaseException):
                        if cut.left == 0:
                            yield asyncio.Event()
                        cut.left -= 1
                    yield step

        return Steps(told)

    def stands(self) -> bool:
        running = self.world.runners[-1]._running.values()
        return self.left == 0 and all(
            not one._unsaved and not one._has_news.is_set() and one.journal._num_kept == one.journal._num_written
            for one in running
        )


@pytest.mark.parametrize("more", [{}, SEALED])
@pytest.mark.parametrize("failing", [None, RequestRejected("no", "messages", "too_long")], ids=["whole", "failing"])
async def test_whoever_takes_over_in_the_middle_goes_on_with_the_same_summary(world, more, failing):
    async def run(stands_after):
        cut = Cut(world, stands_after, failing)
        world.chat.streams.clear()
        world.chat.script = cut.play
        body = {"model": MODEL, "input": "Go.", "reasoning": {"summary": "detailed"}, **more}
        begun = await world.client().responses.create(background=True, **body)
        if stands_after is not None:
            await eventually(cut.stands, 30)
            await kill(world, world.runners[-1])
            world.chat.script = Cut(world, None, failing).play
            await ended(await taken_over(world), begun.id)
        else:
            await ended(world.client().responses, begun.id)
        assert all(
            written_of(one) == [[n] for n in range(len(written_of(one)))] for one in world.chat.requests
        )  # Nothing is generated twice.
        return await events_of(world, begun.id)

    whole = await run(None)
    final = fold(whole)
    texts = [part["text"] for part in final["output"][0]["summary"]]
    assert texts == (["**Looking** I look."] * 2 if failing is None else ["**Looking** "])
    assert final["output"][1]["content"][0]["text"] == "Yes."
    num_pieces = len(Cut(world).main) + (2 * len(Cut(world).part) if failing is None else 1)
    for stands_after in range(1, num_pieces):
        assert normal(await run(stands_after)) == normal(whole), f"killed after {stands_after} pieces"
