"""Streams of every kind go on when the engine or the replica they are on is killed; nothing is lost, nothing twice."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.clients import key
from tests.serve.conftest import ENVIRONMENT, scripted, service_config
from tests.service import CHAT, SMALL, Service, eventually, running_service
from tests.streams import Kind, ask_all, usage_of

__all__ = ["key"]
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


@pytest.fixture(scope="module")
def pair() -> Iterator[Service]:
    """A service with a model of two replicas, and one of a single replica."""
    two = {"autoscaling_config": {"min_replicas": 2, "max_replicas": 2}, "resume_wait_s": 120}
    models = [
        scripted(CHAT, engine_kwargs={"step_s": 0.01}, **two),
        scripted(SMALL, engine_kwargs={"step_s": 0.01}, resume_wait_s=120),
    ]
    with running_service(service_config(models), ENVIRONMENT) as service:
        yield service


@pytest.mark.parametrize(
    ("model", "victim"), [(CHAT, "engine"), (CHAT, "replica"), (SMALL, "engine"), (SMALL, "replica")]
)
def test_streams_are_whole_when_what_runs_them_is_killed(pair: Service, model: str, victim: str) -> None:
    key = pair.issue_unlimited()
    with ThreadPoolExecutor(len(KINDS)) as threads:
        undisturbed = ask_all(pair, key, model, KINDS, threads).results()
        assert not [said.error for said in undisturbed if said.error or not said.has_ended]
        asked = ask_all(pair, key, model, KINDS, threads)
        streams = [said for said, kind in zip(asked.said, KINDS, strict=True) if kind.body.get("stream")]
        eventually(lambda: all(said.texts for said in streams), 60, "every stream has begun", 0.05)
        replica = pair.running(model)[0]
        process = psutil.Process(replica.pid)
        (pair.engine_of(replica) if victim == "engine" else process).kill()
        disturbed = asked.results()
    for kind, said, expected in zip(KINDS, disturbed, undisturbed, strict=True):
        assert said.error is None, kind
        assert (said.has_ended, said.texts) == (True, expected.texts), kind
        assert usage_of(said) == usage_of(expected), kind
    eventually(lambda: replica.replica_id not in {one.replica_id for one in pair.running(model)}, 120, "it is replaced")
    num_replicas = 2 if model == CHAT else 1
    eventually(lambda: len(pair.running(model)) == num_replicas, 120, "as many run as before")
