"""Responses over vLLM's engine, also from one ingress replica to the other."""

import json
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from websockets.sync.client import connect

from tests.serve.ingress import PROMPT, Ingress, outlive_ingress, two
from tests.service import CHAT, COLOUR, Service
from tests.twins.legal import fold, split

__all__ = ["two"]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

PAINT: Any = {"type": "function", "name": "paint", "strict": True, "parameters": COLOUR}


def test_the_client_creates_streams_continues_and_deletes(client: OpenAI) -> None:
    first = client.responses.create(model=CHAT, input=PROMPT, max_output_tokens=12)
    assert first.status == "incomplete"
    assert first.incomplete_details is not None
    assert first.incomplete_details.reason == "max_output_tokens"
    assert first.usage is not None
    assert first.usage.output_tokens == 12
    with client.responses.stream(
        model=CHAT, input="And then?", previous_response_id=first.id, max_output_tokens=12
    ) as stream:
        events = list(stream)
    assert events[-1].type == "response.incomplete"
    assert client.responses.retrieve(first.id).output_text == first.output_text
    client.responses.delete(first.id)


def test_a_stream_is_legal_token_by_token_and_ends_with_done(http: httpx2.Client) -> None:
    body = {"model": CHAT, "input": "Hello.", "max_output_tokens": 24, "stream": True, "store": False}
    events = split(http.post("/v1/responses", json=body).content)
    final = fold(events)
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert len(deltas) > 12
    assert final["usage"]["output_tokens"] == 24


def test_function_calls_and_schemas_come_from_the_engine(client: OpenAI) -> None:
    first = client.responses.create(
        model=CHAT, input="Paint it.", tools=[PAINT], tool_choice={"type": "function", "name": "paint"}
    )
    (call,) = first.output
    assert call.type == "function_call"
    assert call.name == "paint"
    second = client.responses.create(
        model=CHAT,
        previous_response_id=first.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "It is painted."}],
        tools=[PAINT],
        tool_choice="none",
        max_output_tokens=8,
    )
    assert second.output[0].type == "message"
    wanted: Any = {"format": {"type": "json_schema", "name": "colour", "strict": True, "schema": COLOUR}}
    shaped = client.responses.create(model=CHAT, input="Which?", text=wanted)
    assert shaped.status == "completed"
    assert shaped.output_text.startswith("{")


def test_input_tokens_are_what_the_prompt_then_takes(client: OpenAI) -> None:
    counted = client.responses.input_tokens.count(model=CHAT, input=PROMPT, instructions="Be brief.")
    used = client.responses.create(model=CHAT, input=PROMPT, instructions="Be brief.", max_output_tokens=1).usage
    assert used is not None
    assert counted.input_tokens == used.input_tokens


def test_another_replica_continues_and_reuses_the_cached_prefix(two: list[Ingress]) -> None:
    one, other = two
    first = one.create(input=PROMPT)
    second = other.create(input="And then?", previous_response_id=first["id"])
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]
    cached = second["usage"]["input_tokens_details"]["cached_tokens"]
    assert cached >= 0.7 * first["usage"]["input_tokens"]
    branch = one.create(input="Or else?", previous_response_id=first["id"])
    assert branch["usage"]["input_tokens_details"]["cached_tokens"] >= 0.7 * first["usage"]["input_tokens"]
    assert other.retrieve(branch["id"])["previous_response_id"] == first["id"]


@pytest.mark.exhaustive
def test_a_background_response_outlives_its_ingress_replica(service: Service, two: list[Ingress]) -> None:
    outlive_ingress(service, *two, 2000)


def test_a_socket_carries_turn_after_turn_through_the_proxy(service: Service, key: str) -> None:
    url = service.url.replace("http", "ws") + "/v1/responses"
    with connect(url, additional_headers={"authorization": f"Bearer {key}"}) as socket:
        previous, used = None, []
        for words in (PROMPT, "And then?"):
            body = {"model": CHAT, "input": words, "max_output_tokens": 8, "store": False}
            socket.send(json.dumps({"type": "response.create", **body, "previous_response_id": previous}))
            events = [json.loads(socket.recv(timeout=60))]
            while events[-1]["type"] not in ("response.completed", "response.incomplete", "response.failed", "error"):
                events.append(json.loads(socket.recv(timeout=60)))
            final = fold(events)
            previous = final["id"]
            used.append(final["usage"])
    assert used[1]["input_tokens"] > used[0]["input_tokens"]
    assert used[1]["input_tokens_details"]["cached_tokens"] >= 0.7 * used[0]["input_tokens"]
