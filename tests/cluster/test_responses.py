"""Responses on the real service: state that any ingress replica finds, also after its processes have died."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import psutil
import pytest
from openai import OpenAI
from websockets.sync.client import connect

from tests.cluster.cluster import CANARY, CHAT, COLOUR, SMALL, Service, eventually, read_config
from tests.twins.legal import fold, read_frame, split

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PROMPT = f"{CANARY} tells the river about the hills behind it, and the hills about the sea. " * 4
PAINT: Any = {"type": "function", "name": "paint", "strict": True, "parameters": COLOUR}


class Ingress:
    """One ingress replica, asked past HAProxy."""

    def __init__(self, url: str, key: str) -> None:
        self.http = httpx2.Client(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=120)
        self.url = url

    def __enter__(self) -> "Ingress":
        return self

    def __exit__(self, *error: object) -> None:
        self.http.close()

    def create(self, **body: Any) -> dict[str, Any]:
        answer = self.http.post("/v1/responses", json={"model": CHAT, "max_output_tokens": 8, **body})
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def retrieve(self, response_id: str) -> dict[str, Any]:
        answer = self.http.get(f"/v1/responses/{response_id}")
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def events(self, response_id: str, after: int = -1) -> list[dict[str, Any]]:
        answer = self.http.get(f"/v1/responses/{response_id}?stream=true&starting_after={after}")
        assert answer.status_code == 200, answer.text
        return split(answer.content)


def serving(service: Service) -> list[str]:
    """Return the addresses of the ingress replicas; none while Serve still names one that is dead."""
    try:
        return service.ingress_urls()
    except psutil.NoSuchProcess:
        return []


@pytest.fixture
def two(service: Service, key: str) -> Iterator[list[Ingress]]:
    """Two ingress replicas that both serve."""
    first, second, *_ = eventually(lambda: urls if len(urls := serving(service)) >= 2 else [], 90, "two replicas run")
    with Ingress(first, key) as one, Ingress(second, key) as other:
        yield [one, other]


def kill_ingress(service: Service, url: str) -> None:
    """Kill the ingress replica that listens there."""
    port = int(url.rpartition(":")[2])
    for replica in service.running("ingress"):
        connections = psutil.Process(replica.pid).net_connections("tcp")
        if any(one.laddr.port == port and one.status == psutil.CONN_LISTEN for one in connections):
            psutil.Process(replica.pid).kill()
            return
    raise AssertionError(f"nobody listens on {port}")


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


def test_a_background_response_is_followed_and_cancelled_from_the_other_replica(two: list[Ingress]) -> None:
    one, other = two
    begun = one.create(input=PROMPT, background=True, max_output_tokens=300)
    assert begun["status"] == "queued"
    events = other.events(begun["id"])
    final = fold(events)
    assert final["usage"]["output_tokens"] == 300
    assert other.events(begun["id"], after=9) == events[10:]
    assert one.events(begun["id"]) == events
    assert one.retrieve(begun["id"]) == final

    long = one.create(input=PROMPT, background=True, max_output_tokens=3500)
    time.sleep(0.5)
    cancelled = other.http.post(f"/v1/responses/{long['id']}/cancel")
    assert cancelled.status_code == 200
    assert cancelled.json()["status"] == "cancelled"
    assert fold(one.events(long["id"]))["status"] == "cancelled"


def test_a_background_response_outlives_its_client(two: list[Ingress]) -> None:
    one, other = two
    body = {"model": CHAT, "input": PROMPT, "background": True, "stream": True, "max_output_tokens": 300}
    with one.http.stream("POST", "/v1/responses", json=body) as answer:
        frames = _frames(answer)
        response_id = next(frames)["response"]["id"]
        seen = [next(frames) for _ in range(12)]
    events = other.events(response_id, after=seen[-1]["sequence_number"])
    assert [event["sequence_number"] for event in events] == list(range(13, 13 + len(events)))
    assert events[-1]["response"]["usage"]["output_tokens"] == 300


def _frames(answer: httpx2.Response) -> Iterator[dict[str, Any]]:
    left = b""
    for piece in answer.iter_bytes():
        left += piece
        while b"\n\n" in left:
            frame, _, left = left.partition(b"\n\n")
            if frame != b"data: [DONE]":
                yield read_frame(frame)


def test_a_background_response_outlives_its_ingress_replica(service: Service, two: list[Ingress]) -> None:
    one, other = two
    begun = one.create(input=PROMPT, background=True, max_output_tokens=2000)
    with other.http.stream("GET", f"/v1/responses/{begun['id']}?stream=true") as answer:
        frames = _frames(answer)
        seen = [next(frames) for _ in range(60)]
    kill_ingress(service, one.url)

    def has_ended() -> bool:
        return other.retrieve(begun["id"])["status"] not in ("queued", "in_progress")

    eventually(has_ended, 90, "the response ends", 0.5)
    events = other.events(begun["id"])
    assert events[: len(seen)] == seen
    final = fold(events)
    assert final["incomplete_details"] == {"reason": "max_output_tokens"}, final["error"]
    assert final["usage"]["output_tokens"] == 2000


def test_a_conversation_goes_on_when_its_ingress_replica_is_killed(
    service: Service, key: str, two: list[Ingress]
) -> None:
    one, other = two
    first = one.create(input=PROMPT)
    body = {"model": CHAT, "input": "And?", "previous_response_id": first["id"], "stream": True}
    with one.http.stream("POST", "/v1/responses", json={**body, "max_output_tokens": 3500}) as answer:
        frames = _frames(answer)
        for _ in range(20):
            next(frames)
        kill_ingress(service, one.url)
        with pytest.raises(httpx2.HTTPError):
            list(frames)
    second = other.create(input="And?", previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    eventually(lambda: len(serving(service)) >= 2, 90, "two ingress replicas run")


@pytest.fixture
def own() -> Iterator[Service]:
    """A service of its own with one small model, not started yet."""
    config = read_config("two_chat_models.yaml")
    args: dict[str, Any] = config["applications"][0]["args"]
    args["models"] = [model for model in args["models"] if model["id"] == SMALL]
    service = Service(config)
    try:
        yield service
    finally:
        service.kill()
        service.remove()


def test_a_conversation_goes_on_when_everything_was_killed(own: Service) -> None:
    own.start()
    key = own.issue_unlimited()
    with Ingress(own.url, key) as ingress:
        first = ingress.create(model=SMALL, input=PROMPT)
        talk = ingress.http.post("/v1/conversations", json={}).json()["id"]
        ingress.create(model=SMALL, input="One.", conversation=talk)
        begun = ingress.create(model=SMALL, input=PROMPT, background=True, max_output_tokens=2000)
        own.kill()
        own.start()
        second = ingress.create(model=SMALL, input="And then?", previous_response_id=first["id"])
        assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]
        assert ingress.retrieve(first["id"]) == first
        ingress.create(model=SMALL, input="Two.", conversation=talk)
        items = ingress.http.get(f"/v1/conversations/{talk}/items?order=asc").json()["data"]
        assert [item["role"] for item in items] == ["user", "assistant", "user", "assistant"]

        def has_ended() -> bool:
            return ingress.retrieve(begun["id"])["status"] not in ("queued", "in_progress")

        eventually(has_ended, 60, "the background response was taken over", 0.5)
        final = fold(ingress.events(begun["id"]))
        assert final["usage"]["output_tokens"] == 2000
        for name in ("manta.db", "manta.db-wal"):
            path = own.state_dir / name
            assert not path.exists() or CANARY.encode() not in path.read_bytes()
    own.stop()


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
