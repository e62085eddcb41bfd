"""What is known of requests afterwards, the request log and usage by key and model; and what probes get."""

import asyncio
import json

import httpx2
import pytest
from openai import AsyncOpenAI, NotFoundError

from tests.serve.records import first_records
from tests.service import CHAT, EMBED, Service, eventually

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1200)]


async def test_requests_and_usage_are_kept_for_the_account_holder(service: Service) -> None:
    issued, secret = await service.issue(tier="standard", account="reader")
    async with AsyncOpenAI(base_url=f"{service.url}/v1", api_key=secret, max_retries=0) as client:
        chat = await client.chat.completions.create(
            model=CHAT, messages=[{"role": "user", "content": "Hi."}], max_tokens=5
        )
        stream = await client.chat.completions.create(
            model=CHAT, messages=[{"role": "user", "content": "Hi."}], max_tokens=7, stream=True
        )
        async for _ in stream:
            pass
        await client.embeddings.create(model=EMBED, input="cat")
        with pytest.raises(NotFoundError):
            await client.chat.completions.create(model="none", messages=[{"role": "user", "content": "Hi."}])
    records = await first_records(service, issued.key_id, 4)
    by_id = {record.request_id: record for record in records}
    assert chat.usage is not None
    assert by_id[str(chat._request_id)].prompt_tokens == chat.usage.prompt_tokens
    assert sorted(record.status for record in records) == [200, 200, 200, 404]
    streamed = next(record for record in records if record.stream)
    assert streamed.completion_tokens == 7
    assert streamed.ttft_s is not None
    assert 0 < streamed.ttft_s <= streamed.total_s

    rows = json.loads(await asyncio.to_thread(service.run_command, "usage", "--key", issued.key_id, "--json"))
    by_model = {row["model"]: row for row in rows}
    assert by_model[CHAT]["num_requests"] == 2
    assert by_model[CHAT]["completion_tokens"] == 12
    assert by_model[EMBED]["completion_tokens"] == 0
    assert sum(row["num_errors"] for row in rows) == 1
    shown = json.loads(await asyncio.to_thread(service.run_command, "requests", issued.key_id, "--json"))
    assert {record["request_id"] for record in shown} == by_id.keys()


def test_probes_answer_without_a_key(service: Service) -> None:
    for url in [service.url, *service.ingress_urls()]:
        assert httpx2.get(f"{url}/livez", timeout=30).json() == {"status": "ok"}
        ready = httpx2.get(f"{url}/readyz", timeout=30)
        assert ready.status_code == 200
        assert ready.json()["checks"] == {"gatekeeper": True, "models": True}
        eventually(
            lambda url=url: httpx2.get(f"{url}/readyz", timeout=30).json()["models_starting"] == 0,  # type: ignore[misc]
            60,
            "every model has started that is kept running",
        )
        assert httpx2.get(f"{url}/openapi.json", timeout=30).json()["openapi"].startswith("3.")
        assert httpx2.get(f"{url}/docs", timeout=30).status_code == 200
