"""A batch over the end of the whole cluster: everything is killed at once, and a fresh start goes on with it."""

from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from tests.cluster.batch_calls import check_complete, finish, line, submit, until_half_done
from tests.cluster.cluster import CHAT, Service, read_config
from tests.databases import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture(params=["sqlite", "postgres"])
def stored(request: pytest.FixtureRequest) -> Iterator[Service]:
    """A service with one chat model and its state in one of the databases; not started yet."""
    config = read_config("local.yaml")
    args: dict[str, Any] = config["applications"][0]["args"]
    args["models"] = [model for model in args["models"] if model["id"] == CHAT]
    del args["tools"]  # They would want the other model.
    environment = {}
    if request.param == "postgres":
        args["state"] = {"database_url": {"env": "MANTA_DATABASE_URL"}}
        environment["MANTA_DATABASE_URL"] = request.getfixturevalue("postgres_url")
    service = Service(config, environment)
    try:
        yield service
    finally:
        service.kill()
        service.remove()


def test_a_batch_survives_the_end_of_the_cluster(stored: Service) -> None:
    stored.start()
    key = stored.issue_unlimited()
    with OpenAI(base_url=f"{stored.url}/v1", api_key=key, max_retries=3, timeout=120) as client:
        batch = submit(client, [line(number, max_tokens=32) for number in range(1200)])
        seen = until_half_done(client, batch).request_counts
        stored.kill()
        stored.start()
        again = client.batches.retrieve(batch.id)
        assert again.status == "in_progress"
        assert again.request_counts is not None
        assert seen is not None
        assert seen.completed <= again.request_counts.completed
        check_complete(client, finish(client, batch), 1200)
    stored.stop()
