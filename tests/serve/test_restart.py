"""Everything that is kept, over the end of the whole service: all is killed at once, and a fresh start goes on."""

import asyncio
import re
from collections import Counter
from dataclasses import dataclass

import httpx2
import pytest
from openai import OpenAI
from openai.types import Batch

from deployments.limits.snapshots import load_snapshot, save_snapshot
from deployments.state.database.connection import Database
from deployments.state.usage.record import RequestRecord
from tests.serve.batch_calls import check_complete, finish, line, submit, until_quarter_done
from tests.serve.ingress import PROMPT, Ingress, answer_to, text_of
from tests.service import CANARY, CHAT, START_S, Service, eventually
from tests.twins.legal import fold

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1800)]

NUM_LINES, NUM_TOKENS = 500, 2000


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


def start(service: Service, caller: Caller) -> None:
    """Start it again: the keys are known, and the minute goes on."""
    asyncio.run(service.with_database(prolong_minute))
    for path in (service.state_dir / "limiter").iterdir():
        path.write_text(
            re.sub(r"(?m)^(r \d+ \S+) (\S+)", lambda line: f"{line[1]} {float(line[2]) + START_S}", path.read_text())
        )
    service.start()
    assert "issued before" in service.output_path.read_text()
    assert ask(service, caller.free, "none") == 429
    assert ask(service, caller.standard) == 200


async def prolong_minute(database: Database) -> None:
    """Have what was charged count for as long as a start may take, as if it had been asked so much later."""
    snapshot = await load_snapshot(database)
    assert snapshot is not None
    later = [one._replace(requests=[(at + START_S, number) for at, number in one.requests]) for one in snapshot.charges]
    await save_snapshot(database, snapshot._replace(charges=later))


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
        self._batch = submit(self._client, [line(number, max_tokens=80) for number in range(NUM_LINES)])
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

        eventually(has_ended, 90, "the background response was taken over")
        final = fold(ingress.events(self._begun["id"]))
        assert final["usage"]["output_tokens"] == NUM_TOKENS
        assert text_of(final) == answer_to(PROMPT, NUM_TOKENS)


def go_on_after_kill(service: Service) -> Caller:
    """Kill a service amid all kinds of work; start it again, and see all of it go on."""
    caller = use_up(service)
    secret = service.issue_unlimited()
    with (
        Ingress(service.url, secret) as ingress,
        OpenAI(base_url=f"{service.url}/v1", api_key=secret, max_retries=3, timeout=120) as client,
    ):
        work = Work(ingress, client)
        work.begin()
        service.kill()
        start(service, caller)
        work.go_on()
    return caller


def test_all_goes_on_after_a_kill_over_sqlite(service: Service) -> None:
    first_key = re.search(r"^API key +(\S+)$", service.output_path.read_text(), re.M)
    assert first_key is not None
    caller = go_on_after_kill(service)
    assert ask(service, first_key[1]) == 200
    for name in ("manta.db", "manta.db-wal"):
        path = service.state_dir / name
        assert not path.exists() or CANARY.encode() not in path.read_bytes()
    service.stop()
    assert service.failed_to_close() == []
    assert used_by(service, caller) == {"": (4, 4, 0), CHAT: (1, 0, 3)}


def test_all_goes_on_after_a_stop_over_postgres(fixed: Service) -> None:
    caller = use_up(fixed)
    fixed.stop()
    assert [record.status for record in records_of(fixed, caller)] == [404] * 4
    assert not (fixed.state_dir / "manta.db").exists()

    start(fixed, caller)
    gatekeeper = fixed.process_named("ray::Gatekeeper")
    assert gatekeeper is not None
    gatekeeper.kill()
    assert ask(fixed, caller.standard) == 200
    fixed.stop()
    assert fixed.failed_to_close() == []
    assert used_by(fixed, caller) == {"": (4, 4, 0), CHAT: (2, 0, 6)}


@pytest.mark.exhaustive
def test_all_goes_on_after_a_kill_over_postgres(fixed: Service) -> None:
    if fixed.has_ended:
        fixed.start()
    caller = go_on_after_kill(fixed)
    fixed.stop()
    assert sorted(record.status for record in records_of(fixed, caller)) == [200, *[404] * 4]
    assert used_by(fixed, caller) == {"": (4, 4, 0), CHAT: (1, 0, 3)}
