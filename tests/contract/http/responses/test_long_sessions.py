"""Long sessions of coding agents: each turn's prompt begins with the one before, so the engine has it in its cache."""

from itertools import pairwise

import orjson
import pytest

from tests.contract.http.answers import MODEL, pieces
from tests.contract.http.chat.test_messages import events_of as events_of_message
from tests.contract.http.chat.test_messages import fold as fold_message
from tests.contract.http.response_calls import stream_of
from tests.contract.http.responses.test_responses_socket import address, socket  # noqa: F401
from tests.sessions import ClaudeCode, Codex, step_of, text_of, tokens_of
from tests.twins.engine import Script
from tests.twins.legal import fold

TURNS = [20, pytest.param(500, marks=[pytest.mark.exhaustive, pytest.mark.timeout(600)])]
CONTEXT = 262_144


@pytest.fixture
def play(world):
    """Have the model take a step of its own in each turn."""
    world.chat.card = type(world.chat.card)(
        **{**_fields(world.chat.card), "max_model_len": CONTEXT, "has_reasoning": True}
    )
    turns = iter(range(10_000))
    world.chat.script = lambda request: Script(pieces(request, step_of(next(turns))))


def _fields(card):
    return {name: getattr(card, name) for name in card.__dataclass_fields__}


def check_prefixes(world, num_turns: int) -> None:
    """Assert that a turn's prompt begins with the one before; at most 4 % of all tokens are not in the cache."""
    texts = [text_of(orjson.loads(request.body)) for request in world.chat.requests]
    assert len(texts) == num_turns
    assert all(after.startswith(before.removesuffix("<think>\n")) for before, after in pairwise(texts))
    asked = [{**orjson.loads(request.body), "messages": None} for request in world.chat.requests]
    assert all(one == asked[0] for one in asked)
    if num_turns > 100:
        assert len(tokens_of(texts[-1])) > 150_000
        assert sum(map(len, texts[:-1])) / sum(map(len, texts)) > 0.96


@pytest.mark.parametrize("num_turns", TURNS)
async def test_codex_over_http(world, play, num_turns):
    session = Codex(MODEL)
    for turn in range(num_turns):
        session.take(fold(await stream_of(world, session.next(turn))), turn)
    check_prefixes(world, num_turns)


@pytest.mark.parametrize("num_turns", TURNS)
async def test_codex_over_a_websocket(world, play, socket, num_turns):  # noqa: F811
    session = Codex(MODEL)
    for turn in range(num_turns):
        session.take(fold(await socket.turn(**session.next_message(turn))), turn)
    check_prefixes(world, num_turns)


@pytest.mark.parametrize("num_turns", TURNS)
async def test_claude_code(world, play, num_turns):
    session = ClaudeCode(MODEL)
    async with world.http() as http:
        for turn in range(num_turns):
            answer = await http.post(session.path, params={"beta": "true"}, json=session.next(turn))
            assert answer.status_code == 200, answer.text
            session.take(fold_message(events_of_message(answer.content)), turn)
    check_prefixes(world, num_turns)
