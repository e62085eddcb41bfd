"""Streams of every kind on vLLM when an engine is killed: each says the same as undisturbed, and counts it once."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.service import TRAINED, Service, eventually
from tests.starts import started
from tests.streams import Kind, ask_all, usage_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
NUM_LONG = 7
"""The first of the kinds are streams that run for hundreds of tokens."""
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
SEEDED = {"temperature": 1.0, "seed": 11}


def chat(question: str, **fields: Any) -> Kind:
    return Kind("/v1/chat/completions", {"messages": [{"role": "user", "content": question}], **fields})


def kinds() -> list[Kind]:
    """Return twelve kinds of requests; those of the first nine run for hundreds of tokens, as they cannot end."""
    from tokenizers import Tokenizer

    from deployments.models.demo.sources import resolve_source

    tokenizer = Tokenizer.from_file(f"{resolve_source('demo:trained')}/tokenizer.json")
    ends = [token for token in ("<|im_end|>", "<|endoftext|>") if tokenizer.token_to_id(token) is not None]
    endless = {"logit_bias": {str(tokenizer.token_to_id(end)): -100 for end in ends}, "max_tokens": 500}
    prompts = ["Tallinn is", "The moon"]
    return [
        chat("Who are you?", **endless, **STREAM, temperature=0),
        chat("What is a batch?", **endless, **STREAM, **SEEDED),
        chat("Say something.", **endless, **STREAM, **SEEDED, n=3),
        chat("Tell a story.", **endless, **STREAM, **SEEDED, presence_penalty=1.5, frequency_penalty=0.5),
        chat("Where is Kyoto?", **endless, **STREAM, temperature=0, logprobs=True, top_logprobs=1),
        Kind("/v1/completions", {"prompt": prompts, "n": 2, **endless, **STREAM, **SEEDED}),
        Kind("/v1/completions", {"prompt": "Once", **endless, **STREAM, "temperature": 0, "stop": ["never said"]}),
        chat("Hello.", **endless, **SEEDED),
        Kind("/v1/completions", {"prompt": "Twice", **endless, **SEEDED}),
        chat("What is the weather in Tallinn?", **STREAM, temperature=0, tools=[WEATHER], max_tokens=200),
        chat(
            f"Esther is 34 years old. Answer in JSON with the schema {PERSON}",
            **STREAM,
            temperature=0,
            max_tokens=200,
            response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}},
        ),
        Kind("/v1/responses", {"input": "Who are you?", "stream": True, "store": False, "temperature": 0}),
    ]


def test_streams_are_whole_when_the_engine_is_killed(service: Service) -> None:
    key, asked = service.issue_unlimited(), kinds()
    (victim,) = service.running(TRAINED)
    with ThreadPoolExecutor(len(asked)) as threads:
        undisturbed = ask_all(service, key, TRAINED, asked, threads).results()
        assert not [said.error for said in undisturbed if said.error or not said.has_ended]
        running = ask_all(service, key, TRAINED, asked, threads)
        long = running.said[:NUM_LONG]
        eventually(lambda: all(said.texts for said in long), 60, "the long streams have begun", 0.02)
        assert not all(said.has_ended for said in long)
        service.engine_of(victim).kill()
        started("engines")
        disturbed = running.results()
    for kind, said, expected in zip(asked, disturbed, undisturbed, strict=True):
        assert said.error is None, kind
        assert (said.has_ended, said.texts) == (True, expected.texts), kind
        assert usage_of(said) == usage_of(expected), kind
    (successor,) = service.running(TRAINED)
    assert successor.replica_id != victim.replica_id
