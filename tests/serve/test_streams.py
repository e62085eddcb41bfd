"""Streams of every kind go on when the engine or the replica they are on is killed; nothing is lost, nothing twice."""

from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.service import CHAT, SMALL, Service, eventually
from tests.streams import Kind, ask_all, usage_of

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1200)]

NUM_TOKENS = 300
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
CHAT_BODY = {"messages": [{"role": "user", "content": "one two three"}], "max_tokens": NUM_TOKENS}
KINDS = [
    Kind("/v1/chat/completions", {**CHAT_BODY, **STREAM}),
    Kind("/v1/chat/completions", {**CHAT_BODY, **STREAM, "n": 3}),
    Kind("/v1/chat/completions", CHAT_BODY),
    Kind("/v1/completions", {"prompt": ["one two", "three four five"], "n": 2, "max_tokens": NUM_TOKENS, **STREAM}),
    Kind("/v1/completions", {"prompt": "six seven", "max_tokens": NUM_TOKENS}),
    Kind("/v1/responses", {"input": "eight nine", "max_output_tokens": NUM_TOKENS, "stream": True, "store": False}),
] * 2


@pytest.mark.parametrize(
    ("model", "victim"),
    [
        (CHAT, "engine"),
        pytest.param(CHAT, "replica", marks=pytest.mark.exhaustive),
        pytest.param(SMALL, "engine", marks=pytest.mark.exhaustive),
        (SMALL, "replica"),
    ],
)
def test_streams_are_whole_when_what_runs_them_is_killed(fixed: Service, model: str, victim: str) -> None:
    """The chat model has two replicas, the small one has one."""
    key = fixed.issue_unlimited()
    with ThreadPoolExecutor(len(KINDS)) as threads:
        undisturbed = ask_all(fixed, key, model, KINDS, threads).results()
        assert not [said.error for said in undisturbed if said.error or not said.has_ended]
        asked = ask_all(fixed, key, model, KINDS, threads)
        streams = [said for said, kind in zip(asked.said, KINDS, strict=True) if kind.body.get("stream")]
        eventually(lambda: all(said.texts for said in streams), 60, "every stream has begun")
        replica = fixed.running(model)[0]
        process = psutil.Process(replica.pid)
        (fixed.engine_of(replica) if victim == "engine" else process).kill()
        disturbed = asked.results()
    for kind, said, expected in zip(KINDS, disturbed, undisturbed, strict=True):
        assert said.error is None, kind
        assert (said.has_ended, said.texts) == (True, expected.texts), kind
        assert usage_of(said) == usage_of(expected), kind
    num_replicas = 2 if model == CHAT else 1

    def is_replaced() -> bool:
        ids = [one.replica_id for one in fixed.running(model)]
        return replica.replica_id not in ids and len(ids) == num_replicas

    eventually(is_replaced, 120, "as many run as before")
