"""What texts are moderated by: a configuration's patterns and its guard model's answers."""

import asyncio

import orjson
import pytest
from pydantic import ValidationError

from deployments.models.contract.engine import EngineRequest, Usage
from deployments.models.contract.errors import EngineDied, Overloaded, RequestRejected
from serve_app.config import ServiceConfig
from serve_app.errors.capacity import Unavailable
from serve_app.operations.safety.moderation import ModerationConfig, ModerationStream, Moderator
from serve_app.schemas.moderations import CATEGORIES
from tests.twins.engine import MemoryDirectory, Script, ScriptedEngine, model_card
from tests.waiting import eventually

REQUEST = EngineRequest("moderations", "req_1", b"", cache_salt="salt", priority=3)
PATTERNS = {"violence": (r"(?i)\bkill\b",), "illicit": (r"bomb", r"(?i)lock ?pick")}


def answering(said, usage=None):
    body = orjson.dumps({"choices": [{"message": {"content": said}}]})
    return ScriptedEngine(model_card("guard"), lambda _: Script([body], usage or Usage(50, 5)))


async def moderate(config, *texts, guard=None):
    moderator = Moderator(config, MemoryDirectory([guard] if guard else []))
    stream = ModerationStream(moderator, texts, REQUEST)
    (answer,) = [orjson.loads(piece) async for piece in stream]
    return answer["results"], stream.summary.usage


def flagged(result):
    assert list(result["categories"]) == list(result["category_scores"]) == list(CATEGORIES)
    return [name for name, is_in in result["categories"].items() if is_in]


async def test_patterns_flag_their_category():
    config = ModerationConfig(patterns=PATTERNS)
    results, usage = await moderate(config, "KILL it", "a lockpick and a bomb to kill", "a skill", "")
    assert [flagged(result) for result in results] == [["violence"], ["illicit", "violence"], [], []]
    assert [result["flagged"] for result in results] == [True, True, False, False]
    assert results[0]["category_scores"]["violence"] == 1.0
    assert usage == Usage()


async def test_long_text_is_searched_whole():
    results, _ = await moderate(ModerationConfig(patterns=PATTERNS), "x" * 100_000 + " bomb")
    assert flagged(results[0]) == ["illicit"]


@pytest.mark.parametrize(
    ("said", "categories", "is_flagged"),
    [
        ("safe", [], False),
        ("hate/threatening", ["hate/threatening"], True),
        ("Hate, violence.", ["hate", "violence"], True),
        ("self-harm/intent\nsexual", ["self-harm/intent", "sexual"], True),
        ("unsafe", [], True),
    ],
)
async def test_guard_names_categories(said, categories, is_flagged):
    guard = answering(said)
    (result,), usage = await moderate(ModerationConfig(guard_model="guard"), "text", guard=guard)
    assert (flagged(result), result["flagged"]) == (categories, is_flagged)
    assert usage == Usage(50, 5)
    (asked,) = guard.requests
    assert (asked.cache_salt, asked.priority) == ("salt", 3)
    assert "---\ntext\n---" in orjson.loads(asked.body)["messages"][0]["content"]


@pytest.mark.parametrize("said", [None, "", "Hello! How can I help?", "saf", "harassmentententent"])
async def test_an_answer_that_is_no_verdict_clears_nothing(said):
    with pytest.raises(Unavailable, match="gave no verdict"):
        await moderate(ModerationConfig(guard_model="guard"), "text", guard=answering(said))
    own = ModerationConfig(guard_model="guard", guard_safe="Hello")
    if said and "Hello" in said:
        assert (await moderate(own, "text", guard=answering(said)))[0][0]["flagged"] is False


async def test_guards_own_words_are_read():
    config = ModerationConfig(guard_model="guard", guard_categories={"violence": r"\bS1\b"}, guard_prompt="{text}")
    (result,), _ = await moderate(config, "text", guard=answering("unsafe\nS1,S10"))
    assert flagged(result) == ["violence"]


async def test_long_text_is_sent_to_the_guard_in_parts():
    guard = answering("safe")
    config = ModerationConfig(guard_model="guard", guard_max_chars=100, guard_prompt="{text}", patterns=PATTERNS)
    _, usage = await moderate(config, "a" * 250, guard=guard)
    asked = [orjson.loads(request.body)["messages"][0]["content"] for request in guard.requests]
    assert asked == ["a" * 100, "a" * 100, "a" * 50]
    assert usage == Usage(150, 15)
    assert Moderator(config, MemoryDirectory([])).guard_tokens(["a" * 250]) == (26 + 26 + 13 + 3 * 2, 3 * 64)
    assert Moderator(ModerationConfig(patterns=PATTERNS), MemoryDirectory([])).guard_tokens(["a"]) == (0, 0)


async def test_each_part_of_a_long_text_needs_a_verdict():
    def answer(request):
        said = "safe" if b"aaa" in request.body else "Hello! How can I help?"
        return Script([orjson.dumps({"choices": [{"message": {"content": said}}]})], Usage(50, 5))

    config = ModerationConfig(guard_model="guard", guard_max_chars=100, guard_prompt="{text}")
    with pytest.raises(Unavailable, match="gave no verdict"):
        await moderate(config, "a" * 100 + "b", guard=ScriptedEngine(model_card("guard"), answer))


@pytest.mark.parametrize("error", [Overloaded("full"), EngineDied("gone")])
async def test_guard_that_fails_fails_the_request(error):
    guard = ScriptedEngine(model_card("guard"), lambda _: Script([error]))
    with pytest.raises(type(error)):
        await moderate(ModerationConfig(guard_model="guard"), "one", "two", guard=guard)


async def test_guard_that_refuses_is_not_the_clients_fault():
    guard = ScriptedEngine(model_card("guard"), lambda _: Script([RequestRejected("no", "messages")]))
    with pytest.raises(EngineDied):
        await moderate(ModerationConfig(guard_model="guard"), "text", guard=guard)
    with pytest.raises(EngineDied, match="not deployed"):
        await moderate(ModerationConfig(guard_model="guard"), "text")


async def test_client_that_leaves_stops_the_guard():
    never = asyncio.Event()
    guard = ScriptedEngine(model_card("guard"), lambda _: Script([never]))
    running = asyncio.create_task(moderate(ModerationConfig(guard_model="guard"), *["text"] * 20, guard=guard))
    await eventually(lambda: len(guard.streams) == 8)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert len(guard.streams) == 8
    assert all(stream.is_aborted for stream in guard.streams)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({}, "needs 'patterns' or a 'guard_model'"),
        ({"patterns": {"violence": []}}, "needs 'patterns' or a 'guard_model'"),
        ({"patterns": {"violence": ["x*"]}}, "matches an empty text"),
        ({"patterns": {"violence": ["("]}}, "not valid RE2 syntax"),
        ({"patterns": {"spam": ["x"]}}, "Input should be 'harassment'"),
        ({"guard_model": "m", "guard_categories": {"hate": ""}}, "matches an empty text"),
        ({"guard_model": "m", "guard_safe": ""}, "matches an empty text"),
        ({"guard_model": "m", "guard_prompt": "?"}, r"must hold '\{text\}'"),
        ({"guard_model": "none"}, "the guard_model none is not among the models"),
        ({"patterns": {"violence": ["x"]}, "aliases": ["m"]}, "m names more than one model"),
    ],
)
def test_configuration_that_cannot_work_is_refused(section, message):
    model = {"id": "m", "source": "demo:chat", "max_model_len": 8}
    with pytest.raises(ValidationError, match=message):
        ServiceConfig.model_validate({"models": [model], "moderation": section})
