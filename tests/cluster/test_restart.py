"""The service over PostgreSQL: keys, limits and usage survive a restart."""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.cluster.cluster import SMALL, Service, read_config
from tests.databases import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture
def stored(postgres_url: str) -> Iterator[Service]:
    """A service whose state is in PostgreSQL and whose one small model runs when it is asked; not started yet."""
    config = read_config("two_chat_models.yaml")
    args: dict[str, Any] = config["applications"][0]["args"]
    args["models"] = [model for model in args["models"] if model["id"] == SMALL]
    args["models"][0]["autoscaling_config"] = {"min_replicas": 0, "max_replicas": 1, "target_ongoing_requests": 8}
    args["models"][0]["scale_to_zero_wait_s"] = 180
    args["state"] = {"database_url": {"env": "MANTA_DATABASE_URL"}}
    service = Service(config, {"MANTA_DATABASE_URL": postgres_url})
    try:
        yield service
    finally:
        service.kill()
        service.remove()


async def test_keys_limits_and_usage_survive_a_restart(stored: Service) -> None:
    def ask(secret: str, model: str = SMALL) -> int:
        body = {"model": model, "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 3}
        headers = {"authorization": f"Bearer {secret}"}
        return httpx2.post(f"{stored.url}/v1/chat/completions", json=body, headers=headers, timeout=200).status_code

    stored.start()
    _, free = await stored.issue(tier="free", account="free")
    issued, standard = await stored.issue(tier="standard", account="standard")
    assert Counter(ask(free, "none") for _ in range(12)) == {404: 10, 429: 2}  # What is not found counts as well.
    assert [ask(standard, "none") for _ in range(4)] == [404] * 4
    stopping_at = time.monotonic()
    stored.stop()
    records = await stored.with_usage(lambda usage: usage.last_requests(issued.key_id, limit=10))
    assert [record.status for record in records] == [404] * 4
    assert not (stored.state_dir / "manta.db").exists()

    stored.start()
    assert "issued before" in stored.output_path.read_text()
    if time.monotonic() - stopping_at < 45:
        assert ask(free, "none") == 429  # The minute goes on.
    assert ask(standard) == 200
    gatekeeper = stored.process_named("ray::Gatekeeper")
    assert gatekeeper is not None
    gatekeeper.kill()
    assert ask(standard) == 200
    stored.stop()
    rows = await stored.with_usage(lambda usage: usage.by_day(key_id=issued.key_id))
    used = {row.model: (row.num_requests, row.num_errors, row.completion_tokens) for row in rows}
    assert used == {"": (4, 4, 0), SMALL: (2, 0, 6)}
