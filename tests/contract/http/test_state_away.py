"""A database that is away: requests are told so and may come again, lines of batches wait for it."""

import pytest
from sqlalchemy.exc import OperationalError

from tests.contract.http.answers import MODEL
from tests.contract.http.conftest import run_batches
from tests.contract.http.test_batches import finish, jsonl, line, lines_of, submit
from tests.twins.responses import MemoryResponses

ASK = {"model": MODEL, "input": "Hi."}


class Away:
    """A method of a store that fails so often before it does its work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, num_failures: int) -> None:
        self.num_left = num_failures
        real = getattr(MemoryResponses, name)

        async def flaky(store, *args, **kwargs):
            if self.num_left > 0:
                self.num_left -= 1
                raise OperationalError(None, None, ConnectionRefusedError("db.internal refuses"))
            return await real(store, *args, **kwargs)

        monkeypatch.setattr(MemoryResponses, name, flaky)


async def test_a_request_that_needs_the_database_is_told_that_it_is_away(world, monkeypatch):
    Away(monkeypatch, "load", 1)
    async with world.http() as http:
        made = (await http.post("/v1/responses", json=ASK)).json()
        answer = await http.get(f"/v1/responses/{made['id']}")
        assert answer.status_code == 503
        assert answer.json()["error"] == {
            "message": "The database cannot be reached right now. Please retry your request.",
            "type": "server_error",
            "param": None,
            "code": None,
        }
        assert answer.headers["retry-after"] == "1"
        assert (await http.get(f"/v1/responses/{made['id']}")).json()["id"] == made["id"]


@pytest.mark.parametrize("name", ["save", "chain"])
async def test_a_line_that_asks_for_a_response_waits_for_the_database(world, batch_stores, monkeypatch, name):
    async with world.http() as http:
        previous = (await http.post("/v1/responses", json=ASK)).json()["id"]
    world.principal(requests_per_minute=10_000)
    away = Away(monkeypatch, name, 2)
    monkeypatch.setattr("batch.calls._MAX_WAIT_S", 0.01)
    async with run_batches(world, batch_stores):
        client = world.client()
        asked = [
            line(number, url="/v1/responses", body={**ASK, "previous_response_id": previous}) for number in range(2)
        ]
        batch = await finish(client, await submit(client, jsonl(*asked), endpoint="/v1/responses"))
        output = await lines_of(client, batch.output_file_id)
    assert away.num_left == 0
    assert [one["response"]["status_code"] for one in output] == [200, 200]
    assert len(world.state.kept) == 3


async def test_a_line_gives_up_on_a_database_that_stays_away(world, batch_stores, monkeypatch):
    world.principal(requests_per_minute=10_000)
    away = Away(monkeypatch, "save", 1000)
    monkeypatch.setattr("batch.calls._MAX_WAIT_S", 0.001)
    async with run_batches(world, batch_stores):
        client = world.client()
        asked = line(0, url="/v1/responses", body=ASK)
        batch = await finish(client, await submit(client, jsonl(asked), endpoint="/v1/responses"))
        (output,) = await lines_of(client, batch.output_file_id)
    assert away.num_left == 940
    assert output["response"]["status_code"] == 503
    assert "db.internal" not in str(output)
