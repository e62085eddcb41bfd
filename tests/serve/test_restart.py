"""Everything that is kept, over the end of the whole service: all is killed at once, and a fresh start goes on."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from openai.types import Batch

from deployments.state.usage.record import RequestRecord
from tests.databases import postgres_server, postgres_url
from tests.serve.batch_calls import check_complete, finish, line, submit, until_quarter_done
from tests.serve.conftest import scripted, service_config
from tests.serve.ingress import PROMPT, Ingress, answer_to, text_of
from tests.service import CANARY, CHAT, Service, eventually
from tests.twins.legal import fold

__all__ = ["postgres_server", "postgres_url"]
pytestmark = [pytest.mark.serve, pytest.mark.timeout(1800)]

NUM_LINES, NUM_TOKENS = 600, 2000
MINUTE_S = 45
"""So long after its requests, less than a minute, a key must still be refused."""


def stored(state: dict[str, Any], environment: dict[str, str]) -> Iterator[Service]:
    """Yield a small service with its state in one of the databases, not started yet."""
    model = scripted(CHAT, max_concurrent_requests=64, engine_kwargs={"step_s": 0.01})
    service = Service(service_config([model], state=state), environment)
    try:
        yield service
    finally:
        service.kill()
        service.remove()


@pytest.fixture
def over_sqlite() -> Iterator[Service]:
    yield from stored({}, {})


@pytest.fixture
def over_postgres(postgres_url: str) -> Iterator[Service]:
    yield from stored({"database_url": {"env": "MANTA_DATABASE_URL"}}, {"MANTA_DATABASE_URL": postgres_url})


@dataclass
class Caller:
    """Who asks: the secrets of two keys, and the id of the second."""

    free: str
    standard: str
    standard_id: str


def ask(service: Service, secret: str, model: str = CHAT) -> int:
    body = {"model": model, "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 3}
    headers = {"authorization": f"Bearer {secret}"}
    return httpx2.post(f"{service.url}/v1/chat/completions", json=body, headers=headers, timeout=200).status_code


def use_up(service: Service) -> Caller:
    """Use up the minute of a free key, and a part of another's."""
    _, free = asyncio.run(service.issue(tier="free", account="free"))
    issued, standard = asyncio.run(service.issue(tier="standard", account="standard"))
    assert Counter(ask(service, free, "none") for _ in range(12)) == {404: 10, 429: 2}  # What is not found counts too.
    assert [ask(service, standard, "none") for _ in range(4)] == [404] * 4
    return Caller(free, standard, issued.key_id)


def check_limits(service: Service, caller: Caller, used_at: float) -> None:
    """The keys are known, and the minute goes on."""
    assert "issued before" in service.output_path.read_text()
    if time.monotonic() - used_at < MINUTE_S:
        assert ask(service, caller.free, "none") == 429
    assert ask(service, caller.standard) == 200


def records_of(service: Service, caller: Caller) -> list[RequestRecord]:
    records: list[RequestRecord] = asyncio.run(
        service.with_usage(lambda usage: usage.last_requests(caller.standard_id, limit=10))
    )
    return records


def used_by(service: Service, caller: Caller) -> dict[str, tuple[int, int, int]]:
    """Return the requests, errors and completion tokens of a key by model."""
    rows = asyncio.run(service.with_usage(lambda usage: usage.by_day(key_id=caller.standard_id)))
    return {row.model: (row.num_requests, row.num_errors, row.completion_tokens) for row in rows}


class Work:
    """What is under way when the service is killed: a chain of responses, a conversation, one in the background, a
    batch.
    """

    def __init__(self, ingress: Ingress, client: OpenAI) -> None:
        self._ingress = ingress
        self._client = client

    def begin(self) -> None:
        self._first = self._ingress.create(input=PROMPT)
        self._talk = self._ingress.http.post("/v1/conversations", json={}).json()["id"]
        self._ingress.create(input="One.", conversation=self._talk)
        self._batch = submit(self._client, [line(number, max_tokens=64) for number in range(NUM_LINES)])
        self._begun = self._ingress.create(input=PROMPT, background=True, max_output_tokens=NUM_TOKENS)
        seen = until_quarter_done(self._client, self._batch).request_counts
        assert seen is not None
        self._num_done = seen.completed
        assert self._ingress.retrieve(self._begun["id"])["status"] == "in_progress"

    def go_on(self) -> None:
        batch: Batch = self._client.batches.retrieve(self._batch.id)
        assert batch.status == "in_progress"
        assert batch.request_counts is not None
        assert self._num_done <= batch.request_counts.completed
        self._check_responses()
        check_complete(self._client, finish(self._client, self._batch), NUM_LINES)

    def _check_responses(self) -> None:
        ingress = self._ingress
        second = ingress.create(input="And then?", previous_response_id=self._first["id"])
        assert second["usage"]["input_tokens"] > self._first["usage"]["input_tokens"]
        assert ingress.retrieve(self._first["id"]) == self._first
        ingress.create(input="Two.", conversation=self._talk)
        items = ingress.http.get(f"/v1/conversations/{self._talk}/items?order=asc").json()["data"]
        assert [item["role"] for item in items] == ["user", "assistant", "user", "assistant"]

        def has_ended() -> bool:
            return ingress.retrieve(self._begun["id"])["status"] not in ("queued", "in_progress")

        eventually(has_ended, 90, "the background response was taken over", 0.5)
        final = fold(ingress.events(self._begun["id"]))
        assert final["usage"]["output_tokens"] == NUM_TOKENS
        assert text_of(final) == answer_to(PROMPT, NUM_TOKENS)


def check_kill(service: Service) -> Caller:
    """Kill a service that has just started amid all kinds of work; start it again, and see all of it go on."""
    caller = use_up(service)
    used_at = time.monotonic()
    secret = service.issue_unlimited()
    with (
        Ingress(service.url, secret) as ingress,
        OpenAI(base_url=f"{service.url}/v1", api_key=secret, max_retries=3, timeout=120) as client,
    ):
        work = Work(ingress, client)
        work.begin()
        service.kill()
        service.start()
        check_limits(service, caller, used_at)
        work.go_on()
    return caller


def test_all_goes_on_after_a_kill_over_sqlite(over_sqlite: Service) -> None:
    over_sqlite.start()
    first_key = re.search(r"^API key +(\S+)$", over_sqlite.output_path.read_text(), re.M)
    assert first_key is not None
    caller = check_kill(over_sqlite)
    assert ask(over_sqlite, first_key[1]) == 200
    for name in ("manta.db", "manta.db-wal"):
        path = over_sqlite.state_dir / name
        assert not path.exists() or CANARY.encode() not in path.read_bytes()
    over_sqlite.stop()
    assert over_sqlite.failed_to_close() == []
    assert used_by(over_sqlite, caller) == {"": (4, 4, 0), CHAT: (1, 0, 3)}


def test_all_goes_on_after_a_kill_and_after_a_stop_over_postgres(over_postgres: Service) -> None:
    over_postgres.start()
    caller = check_kill(over_postgres)
    another = use_up(over_postgres)
    used_at = time.monotonic()
    over_postgres.stop()
    assert [record.status for record in records_of(over_postgres, another)] == [404] * 4
    assert sorted(record.status for record in records_of(over_postgres, caller)) == [200, *[404] * 4]
    assert not (over_postgres.state_dir / "manta.db").exists()

    over_postgres.start()
    check_limits(over_postgres, another, used_at)
    gatekeeper = over_postgres.process_named("ray::Gatekeeper")
    assert gatekeeper is not None
    gatekeeper.kill()
    assert ask(over_postgres, another.standard) == 200
    over_postgres.stop()
    assert used_by(over_postgres, another) == {"": (4, 4, 0), CHAT: (2, 0, 6)}
