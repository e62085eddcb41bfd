"""Responses that outlive what made them: their client, their ingress replica."""

import httpx2
import pytest

from tests.serve.ingress import (
    PROMPT,
    Ingress,
    answer_to,
    frames_of,
    kill_ingress,
    outlive_ingress,
    serving,
    text_of,
    two,
)
from tests.service import CHAT, Service, eventually
from tests.twins.legal import fold

__all__ = ["two"]
pytestmark = [pytest.mark.serve, pytest.mark.timeout(1200)]


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
    eventually(lambda: one.retrieve(long["id"])["status"] == "in_progress", 30, "it runs")
    cancelled = other.http.post(f"/v1/responses/{long['id']}/cancel")
    assert cancelled.status_code == 200
    assert cancelled.json()["status"] == "cancelled"
    assert fold(one.events(long["id"]))["status"] == "cancelled"


def test_a_background_response_outlives_its_client(two: list[Ingress]) -> None:
    one, other = two
    body = {"model": CHAT, "input": PROMPT, "background": True, "stream": True, "max_output_tokens": 300}
    with one.http.stream("POST", "/v1/responses", json=body) as answer:
        frames = frames_of(answer)
        response_id = next(frames)["response"]["id"]
        seen = [next(frames) for _ in range(12)]
    events = other.events(response_id, after=seen[-1]["sequence_number"])
    assert [event["sequence_number"] for event in events] == list(range(13, 13 + len(events)))
    assert events[-1]["response"]["usage"]["output_tokens"] == 300


def test_a_background_response_outlives_its_ingress_replica(service: Service, two: list[Ingress]) -> None:
    final = outlive_ingress(service, *two, 800)
    assert text_of(final) == answer_to(PROMPT, 800)


def test_a_conversation_goes_on_when_its_ingress_replica_is_killed(
    service: Service, key: str, two: list[Ingress]
) -> None:
    one, other = two
    first = one.create(input=PROMPT)
    body = {"model": CHAT, "input": "And?", "previous_response_id": first["id"], "stream": True}
    with one.http.stream("POST", "/v1/responses", json={**body, "max_output_tokens": 3500}) as answer:
        frames = frames_of(answer)
        for _ in range(20):
            next(frames)
        kill_ingress(service, one.url)
        with pytest.raises(httpx2.HTTPError):
            list(frames)
    second = other.create(input="And?", previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    eventually(lambda: len(serving(service)) >= 2, 90, "two ingress replicas run")
