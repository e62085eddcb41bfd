"""Ingress replicas one by one, past the front: what one begins the other goes on with."""

from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

import httpx2
import psutil
import pytest

from tests.service import CANARY, CHAT, Service, eventually, is_living
from tests.twins.legal import fold, read_frame, split

PROMPT = f"{CANARY} tells the river about the hills behind it, and the hills about the sea. " * 4


class Ingress:
    """One ingress replica, asked past the front."""

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


def two_ingress_replicas(service: Service) -> list[int]:
    """Return the process ids of two or more ingress replicas that serve."""

    def look() -> list[int]:
        pids = [replica.pid for replica in service.running("ingress")]
        living = [pid for pid in pids if psutil.pid_exists(pid) and is_living(psutil.Process(pid))]
        return living if len(living) >= 2 else []

    return eventually(look, 120, "two ingress replicas run")


def num_in_flight(urls: list[str]) -> list[float]:
    """Return how many requests each of these ingress replicas has not answered."""
    with httpx2.Client(timeout=10, verify=False) as http:  # Without certificates a client costs a hundredth.
        pages = [http.get(f"{url}/metrics").text for url in urls]
    lines = [line for page in pages for line in page.splitlines() if line.startswith("manta_requests_in_flight ")]
    assert len(lines) == len(pages)
    return [float(line.split()[1]) - 1 for line in lines]  # Each page counts its own request.


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


def outlive_ingress(service: Service, one: Ingress, other: Ingress, num_tokens: int) -> dict[str, Any]:
    """Begin a background response in a replica and kill it; return the response as the other shows it at its end."""
    begun = one.create(input=PROMPT, background=True, max_output_tokens=num_tokens)
    with other.http.stream("GET", f"/v1/responses/{begun['id']}?stream=true") as answer:
        frames = frames_of(answer)
        seen = [next(frames) for _ in range(60)]
    kill_ingress(service, one.url)

    def has_ended() -> bool:
        return other.retrieve(begun["id"])["status"] not in ("queued", "in_progress")

    eventually(has_ended, 90, "the response ends")
    events = other.events(begun["id"])
    assert events[: len(seen)] == seen
    final = fold(events)
    assert final["incomplete_details"] == {"reason": "max_output_tokens"}, final["error"]
    assert final["usage"]["output_tokens"] == num_tokens
    return final


def frames_of(answer: httpx2.Response) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream as they come."""
    left = b""
    for piece in answer.iter_bytes():
        left += piece
        while b"\n\n" in left:
            frame, _, left = left.partition(b"\n\n")
            if frame != b"data: [DONE]" and not frame.startswith(b":"):
                yield read_frame(frame)


def text_of(response: dict[str, Any]) -> str:
    """Return the text of a response's only message."""
    ((part,),) = (item["content"] for item in response["output"])
    text: str = part["text"]
    return text


def answer_to(prompt: str, num_tokens: int) -> str:
    """Return what a scripted engine says."""
    return "".join(f"{word} " for word in islice(cycle(prompt.split()), num_tokens))
