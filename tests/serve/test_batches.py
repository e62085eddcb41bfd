"""Batches: from upload to download, beside kills of everything that runs them."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import httpx2
import psutil
import pytest
from openai import InternalServerError, OpenAI
from openai.types import Batch

from batch.config import BatchConfig
from tests.serve.batch_calls import ENDED, SAID, check_complete, finish, line, output_of, submit, until_quarter_done
from tests.service import CANARY, EMBED, SMALL, Service, eventually, is_living

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1200)]

COORDINATOR, WORKER, JOB_WORKER = (
    "ray::BatchCoordinator",
    "ray::WorkerProcess",
    "ray::MapWorker(MapBatches(LineCaller))",
)
NUM_TO_CANCEL = 450


@pytest.fixture(scope="module", autouse=True)
def rest(service: Service, client: OpenAI) -> Iterator[None]:
    """Leave the models to the next tests as they were: what was killed has been replaced, what was added is gone."""
    yield

    def is_as_before() -> bool:
        return [replica.state for replica in service.replicas(SMALL)] == ["RUNNING"] and answers(client)

    eventually(is_as_before, 180, "one replica is left, and it answers")


def num_done(client: OpenAI, batch: Batch) -> int:
    counts = client.batches.retrieve(batch.id).request_counts
    return 0 if counts is None else counts.completed


def answers(client: OpenAI) -> bool:
    try:
        client.chat.completions.create(model=SMALL, messages=[{"role": "user", "content": "?"}], max_tokens=1)
    except InternalServerError:  # Until Serve has noticed that an engine is gone.
        return False
    return True


def start_and_finish(client: OpenAI, num_lines: int) -> float:
    """Return the seconds until a batch has started; its answers are complete."""
    started = time.monotonic()
    batch = submit(client, [line(number) for number in range(num_lines)])
    eventually(lambda: client.batches.retrieve(batch.id).status != "validating", 60, "the batch starts")
    started_after_s = time.monotonic() - started
    check_complete(client, finish(client, batch), num_lines)
    return started_after_s


@pytest.mark.timed
def test_a_small_batch_starts_within_a_second(service: Service, client: OpenAI) -> None:
    start_and_finish(client, 1)  # The worker is there from now on, whatever ran before.
    assert median(start_and_finish(client, 20) for _ in range(3)) < 1


def test_a_small_batch_needs_no_job(service: Service, client: OpenAI) -> None:
    start_and_finish(client, 20)
    assert service.process_named(JOB_WORKER) is None


def test_a_model_may_have_replicas_for_batches_alone(service: Service, client: OpenAI) -> None:
    assert service.running(f"batch:{EMBED}") == []
    online = service.running(EMBED)
    embed = {"custom_id": "e", "method": "POST", "url": "/v1/embeddings", "body": {"model": EMBED, "input": "cat"}}
    batch = submit(client, [embed], "/v1/embeddings")
    eventually(lambda: service.arrived(f"batch:{EMBED}"), 240, "a replica for batches runs")
    (one,) = output_of(client, finish(client, batch))
    there = client.embeddings.create(model=EMBED, input="cat", encoding_format="float").data[0].embedding
    here = one["response"]["body"]["data"][0]["embedding"]
    assert len(here) == 384
    assert max(abs(one - other) for one, other in zip(here, there, strict=True)) < 1e-4
    assert service.running(EMBED) == online
    eventually(lambda: not service.replicas(f"batch:{EMBED}"), 120, "it goes when there are no batches")


def test_a_large_batch_runs_through_ray_data_and_its_progress_moves(service: Service, client: OpenAI) -> None:
    batch = submit(client, [line(number, max_tokens=16) for number in range(1500)])
    seen: set[int] = set()

    def look() -> Batch | None:
        now = client.batches.retrieve(batch.id)
        assert now.request_counts is not None
        seen.add(now.request_counts.completed)
        return now if now.status in ENDED else None

    check_complete(client, eventually(look, 300, "the batch ends"), 1500)
    assert len(seen - {0, 1500}) >= 4, seen
    pieces = list(shared_memory(service))
    assert any(b"ray.data" in piece for piece in pieces)  # What Ray Data did carry is found.
    assert not any(SAID.encode() in piece for piece in pieces)


def shared_memory(service: Service) -> Iterator[bytes]:
    """Yield what is or was in Ray's object store, as far as nothing has been written over it."""
    (raylet,) = (one for one in service.processes() if is_living(one) and one.name() == "raylet")
    places = {link: os.readlink(link) for link in Path(f"/proc/{raylet.pid}/fd").iterdir()}
    with next(link for link, target in places.items() if "/plasma" in target).open("rb") as memory:
        end, size = 0, os.fstat(memory.fileno()).st_size
        while end < size:
            try:
                start = os.lseek(memory.fileno(), end, os.SEEK_DATA)
            except OSError:  # The rest was never written to.
                return
            end = os.lseek(memory.fileno(), start, os.SEEK_HOLE)
            yield os.pread(memory.fileno(), end - start, start)


def test_a_cancelled_batch_ends_with_the_lines_that_were_in_flight(service: Service, client: OpenAI) -> None:
    batch = submit(client, [line(number, max_tokens=100) for number in range(NUM_TO_CANCEL)])
    eventually(lambda: num_done(client, batch), 60, "lines are done")
    client.batches.cancel(batch.id)
    num_before = num_done(client, batch)
    batch = finish(client, batch, 60)
    assert batch.status == "cancelled"
    output = output_of(client, batch)
    assert [one["custom_id"] for one in output] == [f"line-{number}" for number in range(NUM_TO_CANCEL)]
    counts = batch.request_counts
    assert counts is not None
    done = [one for one in output if one["response"] is not None]
    assert 0 < counts.completed == len(done) <= num_before + BatchConfig().max_lines_in_flight
    assert counts.completed + counts.failed == counts.total == NUM_TO_CANCEL


@pytest.mark.exhaustive
def test_a_large_batch_is_paused_and_goes_on(service: Service, client: OpenAI) -> None:
    secret = asyncio.run(service.issue(account="operators", tier="standard", is_admin=True))[1]
    headers = {"authorization": f"Bearer {secret}"}
    with httpx2.Client(base_url=service.url, headers=headers, timeout=60) as operator:
        batch = submit(client, [line(number, max_tokens=64) for number in range(700)])
        path = f"/v1/organization/admin/batches/{batch.id}"
        eventually(lambda: num_done(client, batch), 120, "lines are done")
        assert operator.post(f"{path}/pause").json()["status"] == "in_progress"

        def rests() -> bool:
            before = num_done(client, batch)
            time.sleep(3)
            return num_done(client, batch) == before

        eventually(rests, 120, "no line runs any more")
        assert num_done(client, batch) < 700
        assert operator.post(f"{path}/resume").json()["paused_at"] is None
    check_complete(client, finish(client, batch), 700)


def kill(service: Service, title: str) -> None:
    eventually(lambda: service.process_named(title), 60, f"{title} runs").kill()


@pytest.mark.parametrize(
    ("num_lines", "max_tokens", "victim"),
    [
        pytest.param(400, 96, COORDINATOR, marks=pytest.mark.exhaustive),
        pytest.param(400, 96, WORKER, marks=pytest.mark.exhaustive),
        (1200, 32, COORDINATOR),
        pytest.param(1200, 32, JOB_WORKER, marks=pytest.mark.exhaustive),
    ],
)
def test_a_batch_survives_kills(service: Service, client: OpenAI, num_lines: int, max_tokens: int, victim: str) -> None:
    batch = submit(client, [line(number, max_tokens=max_tokens) for number in range(num_lines)])
    until_quarter_done(client, batch)
    kill(service, victim)
    check_complete(client, finish(client, batch), num_lines)


def test_a_batch_survives_an_engine_that_is_killed(service: Service, client: OpenAI) -> None:
    batch = submit(client, [line(number, SMALL, max_tokens=48) for number in range(160)])
    until_quarter_done(client, batch)
    service.engine_of(service.running(SMALL)[0]).kill()
    check_complete(client, finish(client, batch), 160)


def test_a_batch_survives_an_ingress_replica_that_is_killed(service: Service, client: OpenAI) -> None:
    patient = client.with_options(max_retries=8)  # What the killed replica was just answering is asked again.
    batch = submit(patient, [line(number, max_tokens=96) for number in range(400)])
    until_quarter_done(patient, batch)
    before = service.running("ingress")
    psutil.Process(before[0].pid).kill()
    check_complete(patient, finish(patient, batch), 400)
    eventually(
        lambda: len({one.replica_id for one in service.running("ingress")} - {before[0].replica_id}) >= 2,
        120,
        "the ingress is whole again",
    )
    again = submit(patient, [line(number) for number in range(5)])  # Whichever replica is asked now.
    check_complete(patient, finish(patient, again), 5)


def test_nothing_that_lines_say_is_written_in_the_clear(service: Service, client: OpenAI) -> None:
    check_complete(client, finish(client, submit(client, [line(number) for number in range(5)])), 5)
    found = [
        str(path)
        for path in service.folder.rglob("*")
        if path.is_file() and not path.is_symlink() and CANARY.encode() in path.read_bytes()
    ]
    assert found == []
