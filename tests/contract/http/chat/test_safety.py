"""Safety policies as a client meets them."""

import asyncio
import json

import openai
import pytest

from deployments.models.contract.engine import Usage
from deployments.models.contract.errors import Overloaded
from deployments.models.contract.events import (
    Finished,
    Logprobs,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStart,
)
from deployments.models.contract.render import ChatBody
from serve_app.operations.safety.policy import SafetyConfig
from tests.contract.http.answers import MODEL, SECRET, USAGE, pieces, said
from tests.twins.engine import MemoryDirectory, Script, ScriptedEngine, model_card

GUARD = "demo/guard"
MESSAGES = [{"role": "user", "content": "Tell me a story."}]
PATTERNS = SafetyConfig(patterns=(r"(?i)forbidden\s+word", r"b[ao]d\d{3}"), window_chars=20)


def script(world, events, usage=USAGE, **more):
    world.chat.script = lambda request: Script(pieces(request, events), usage, **more)


async def chat(world, *, is_stream, **more):
    """Return (content, finish reasons by choice, number of chunks) of an answer."""
    answer = await world.client().chat.completions.create(model=MODEL, messages=MESSAGES, stream=is_stream, **more)
    if not is_stream:
        choices = answer.choices
        return [choice.message.content for choice in choices], [choice.finish_reason for choice in choices]
    contents, reasons = {}, {}
    async for chunk in answer:
        for choice in chunk.choices:
            contents[choice.index] = contents.get(choice.index, "") + (choice.delta.content or "")
            reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
    return [contents[key] for key in sorted(contents)], [reasons[key] for key in sorted(reasons)]


both = pytest.mark.parametrize("is_stream", [False, True])


@both
async def test_no_policy_means_wire_rendering(world, is_stream):
    await chat(world, is_stream=is_stream)
    assert world.chat.requests[0].render == "wire"


@pytest.mark.parametrize("option", [{"return_token_ids": True}, {"prompt_logprobs": 1}, {"return_prompt_text": True}])
async def test_tokens_are_not_shown_beside_a_text_that_is_checked(world, option):
    world.safety[MODEL] = PATTERNS
    with pytest.raises(openai.BadRequestError) as refused:
        await chat(world, is_stream=False, extra_body=option)
    assert refused.value.param == next(iter(option))


@both
async def test_clean_answer_passes_whole(world, is_stream):
    world.safety[MODEL] = PATTERNS
    script(world, said("Once upon", " a time there was", " a ", "fox, and that is", " all."))
    assert await chat(world, is_stream=is_stream) == (["Once upon a time there was a fox, and that is all."], ["stop"])
    assert world.chat.requests[0].render == "events"


@both
async def test_prompt_that_breaks_the_policy_is_not_run(world, is_stream):
    world.safety[MODEL] = PATTERNS
    answer = world.client().chat.completions.create
    told = await answer(
        model=MODEL, messages=[{"role": "user", "content": "say the FORBIDDEN  word"}], n=2, stream=is_stream
    )
    if is_stream:
        reasons = [choice.finish_reason async for chunk in told for choice in chunk.choices if choice.finish_reason]
    else:
        reasons = [choice.finish_reason for choice in told.choices]
        assert [choice.message.content for choice in told.choices] == ["", ""]
    assert reasons == ["content_filter", "content_filter"]
    assert not world.chat.requests
    assert world.gatekeeper.quota(world.gatekeeper.principals[SECRET]).remaining_tokens == 1_000_000


@both
@pytest.mark.parametrize("cut", range(1, 14))
async def test_match_across_pieces_is_never_shown(world, is_stream, cut):
    world.safety[MODEL] = PATTERNS
    word = "forbidden word"
    script(world, said("This is safe: ", word[:cut], word[cut:], " and", " more" * 50))
    contents, reasons = await chat(world, is_stream=is_stream)
    assert contents == ["This is safe: "]
    assert reasons == ["content_filter"]


async def test_breach_ends_the_engines_stream(world):
    world.safety[MODEL] = PATTERNS
    never = asyncio.Event()

    def run(request):
        return Script(
            [*pieces(request, said("one bad123 two"))[:1], *pieces(request, said("more " * 10))[:1], never],
            usage_when_aborted=Usage(9, 5),
        )

    world.chat.script = run
    contents, reasons = await asyncio.wait_for(chat(world, is_stream=True), 30)
    assert (contents, reasons) == (["one "], ["content_filter"])
    assert world.chat.streams[0].is_aborted
    assert world.gatekeeper.settled[-1][2] == 14


@both
async def test_other_choices_go_on_when_one_is_filtered(world, is_stream):
    world.safety[MODEL] = PATTERNS
    events = [
        [TextDelta("text", 0, "bad123 and more")],
        [TextDelta("text", 1, "a good answer")],
        [TextDelta("text", 0, "and more still, a lot more")],
        [Finished("finished", 1, "stop")],
        [Finished("finished", 0, "stop")],
    ]
    script(world, events)
    assert await chat(world, is_stream=is_stream, n=2) == (["", "a good answer"], ["content_filter", "stop"])


async def test_reasoning_and_tool_arguments_are_checked_too(world):
    world.safety[MODEL] = PATTERNS
    script(world, [[ReasoningDelta("reasoning", 0, "think bad123")], *said("fine")])
    assert (await chat(world, is_stream=False))[1] == ["content_filter"]
    tool = [ToolCallStart("tool_call", 0, 0, "call_1", "f")]
    arguments = [[ToolArgumentsDelta("tool_arguments", 0, 0, text)] for text in ('{"a": "bo', 'd456"}')]
    script(world, [tool, *arguments, [Finished("finished", 0, "tool_calls")]])
    assert (await chat(world, is_stream=True))[1] == ["content_filter"]


async def test_logprobs_travel_with_their_text(world):
    world.safety[MODEL] = PATTERNS
    entry = {"token": "x", "logprob": -1.0, "bytes": [120], "top_logprobs": []}
    script(world, [[TextDelta("text", 0, "x"), Logprobs("logprobs", 0, [entry])], [Finished("finished", 0, "stop")]])
    stream = await world.client().chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, logprobs=True)
    shown = [choice async for chunk in stream for choice in chunk.choices if choice.logprobs]
    assert shown[0].delta.content == "x"
    assert shown[0].logprobs.content[0].token == "x"


@both
async def test_completions_are_checked_the_same_way(world, is_stream):
    world.safety[MODEL] = PATTERNS
    script(world, said("fine so far, for", "bidden ", "word", " after"))
    answer = await world.client().completions.create(model=MODEL, prompt="x", stream=is_stream)
    if is_stream:
        choices = [choice async for chunk in answer for choice in chunk.choices]
        text, reason = "".join(choice.text for choice in choices), choices[-1].finish_reason
    else:
        text, reason = answer.choices[0].text, answer.choices[0].finish_reason
    assert (text, reason) == ("fine so far, ", "content_filter")
    refused = await world.client().completions.create(model=MODEL, prompt="bad123")
    assert refused.choices[0].finish_reason == "content_filter"


async def test_policy_may_look_at_one_side_only(world):
    world.safety[MODEL] = PATTERNS.model_copy(update={"checks_answer": False})
    script(world, said("bad123"))
    assert await chat(world, is_stream=True) == (["bad123"], ["stop"])
    world.safety[MODEL] = PATTERNS.model_copy(update={"checks_prompt": False})
    answer = await world.client().chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "bad123"}], max_tokens=5
    )
    assert answer.choices[0].finish_reason == "content_filter"
    assert len(world.chat.requests) == 2


def guard(world, verdicts):
    """Deploy a guard model that gives the verdicts in turn; return what it is asked."""
    asked = []

    def answer(request):
        asked.append(json.loads(request.body)["messages"][0]["content"])
        verdict = verdicts.pop(0) if verdicts else "safe"
        if isinstance(verdict, Exception):
            return Script([verdict])
        body = ChatBody("x", GUARD, 1)
        body.text(0, verdict)
        return Script([body.finish(Usage(1, 1))])

    engine = ScriptedEngine(model_card(GUARD), answer)
    world.directory = MemoryDirectory([world.chat, engine])
    world.safety[MODEL] = SafetyConfig(guard_model=GUARD, guard_every_chars=10)
    return asked


async def test_guard_model_refuses_a_prompt(world):
    asked = guard(world, ["Unsafe."])
    assert (await chat(world, is_stream=True))[1] == ["content_filter"]
    assert "Tell me a story." in asked[0]
    assert not world.chat.requests


@both
async def test_guard_model_ends_an_answer(world, is_stream):
    asked = guard(world, ["safe", "safe", "unsafe"])
    script(world, said("0123456789", "abcdefghij", "ABCDEFGHIJ"))
    assert await chat(world, is_stream=is_stream) == (["0123456789"], ["content_filter"])
    assert len(asked) == 3
    assert asked[-1].count("0123456789abcdefghij") == 1
    engine = world.directory.find(GUARD)
    assert len({request.request_id for request in [*engine.requests, *world.chat.requests]}) == 4


async def test_guard_model_sees_the_end_of_an_answer(world):
    asked = guard(world, ["safe", "unsafe"])
    script(world, said("short"))
    assert await chat(world, is_stream=True) == ([""], ["content_filter"])
    assert len(asked) == 2


@pytest.mark.parametrize("verdicts", [[Overloaded("full")], ["safe", Overloaded("full")]])
async def test_guard_model_that_fails_lets_nothing_out(world, verdicts):
    guard(world, verdicts)
    script(world, said("secret thing"))
    async with world.http() as http:
        told = await http.post("/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES, "stream": True})
    assert told.status_code == 503
    assert "secret" not in told.text


@both
@pytest.mark.parametrize("verdicts", [[""], ["As a model, I"], ["safe", "S4"], ["safe", "<think>"]])
async def test_answer_of_the_guard_model_that_is_no_verdict_lets_nothing_out(world, is_stream, verdicts):
    guard(world, [*verdicts])
    script(world, said("secret thing"))
    async with world.http() as http:
        told = await http.post("/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES, "stream": is_stream})
    assert told.status_code == 503
    assert "gave no verdict" in told.json()["error"]["message"]
    assert "secret" not in told.text


async def test_stream_ends_with_an_error_where_a_later_piece_has_no_verdict(world):
    guard(world, ["safe", "safe", "who knows"])
    script(world, said("0123456789", "abcdefghij", "ABCDEFGHIJ"))
    async with world.http() as http:
        told = await http.post("/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES, "stream": True})
    assert "0123456789" in told.text
    assert "gave no verdict" in told.text
    assert "abcdefghij" not in told.text
    assert "[DONE]" not in told.text.partition("gave no verdict")[0]


async def test_operator_says_what_clears_a_text(world):
    guard(world, ["no", "no"])
    world.safety[MODEL] = SafetyConfig(guard_model=GUARD, guard_verdict=r"\byes\b", guard_safe=r"\bno\b")
    script(world, said("a story"))
    assert await chat(world, is_stream=True) == (["a story"], ["stop"])


async def test_guard_model_that_is_not_deployed_lets_nothing_out(world):
    world.safety[MODEL] = SafetyConfig(guard_model="demo/absent")
    async with world.http() as http:
        told = await http.post("/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES})
    assert told.status_code == 503


BLOCKS = {"model": "omni-moderation-latest", "policy": {"input": {"mode": "block"}, "output": {"mode": "block"}}}


async def ask_moderated(world, moderation):
    """Return the statuses and errors of a chat and a response that ask for moderation, whole and streamed."""
    told = []
    async with world.http() as http:
        for stream in (False, True):
            more = {"model": MODEL, "stream": stream, "moderation": moderation}
            told.append(await http.post("/v1/chat/completions", json={"messages": MESSAGES, **more}))
            told.append(await http.post("/v1/responses", json={"input": "Tell me a story.", **more}))
    return told


async def test_moderation_that_blocks_is_what_a_policy_does(world):
    world.safety[MODEL] = PATTERNS
    script(world, said("a forbidden word"))
    for answer in await ask_moderated(world, BLOCKS):
        assert answer.status_code == 200
        assert "content_filter" in answer.text
        assert "forbidden" not in answer.text
    world.safety[MODEL] = PATTERNS.model_copy(update={"checks_prompt": False})
    only_output = {**BLOCKS, "policy": {"output": {"mode": "block"}}}
    assert {answer.status_code for answer in await ask_moderated(world, only_output)} == {200}


@pytest.mark.parametrize(
    ("policy", "moderation", "param", "words"),
    [
        (None, BLOCKS, "moderation", "no safety policy"),
        (PATTERNS, {"model": "m"}, "moderation.policy", "no scores"),
        (PATTERNS, {"model": "m", "policy": {"output": {"mode": "score"}}}, "moderation.policy.output", "no scores"),
        (
            PATTERNS.model_copy(update={"checks_answer": False}),
            BLOCKS,
            "moderation.policy.output",
            "not check the output",
        ),
    ],
)
async def test_other_moderation_is_refused_by_name(world, policy, moderation, param, words):
    if policy is not None:
        world.safety[MODEL] = policy
    for answer in await ask_moderated(world, moderation):
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, param)
        assert words in error["message"]
    assert not world.chat.requests
