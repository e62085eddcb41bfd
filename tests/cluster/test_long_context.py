"""A million tokens through HTTP, limits, tokenizer and engine, by a model that is not even running at first."""

import asyncio
import time

import httpx2
import pytest
from openai import AsyncOpenAI, BadRequestError, RateLimitError

from tests.service import CHAT, LONG, Service, eventually, is_living

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

SHORT = [{"role": "user", "content": "Hello."}]


async def test_million_tokens_do_not_fit_a_standard_key_and_wake_no_model(service: Service) -> None:
    _, secret = await service.issue(tier="standard", account="modest")
    async with AsyncOpenAI(base_url=f"{service.url}/v1", api_key=secret, max_retries=2, timeout=60) as client:
        with pytest.raises(RateLimitError) as refused:
            await client.chat.completions.create(
                model=LONG, messages=[{"role": "user", "content": "river " * 1_000_000}], max_tokens=8
            )
    assert "Request too large" in str(refused.value)
    assert refused.value.request.headers["x-stainless-retry-count"] == "0"
    assert service.replicas(LONG) == []


@pytest.mark.exhaustive
async def test_first_requests_wait_for_a_model_that_is_scaled_to_zero(
    service: Service, async_client: AsyncOpenAI
) -> None:
    assert service.running(LONG) == []
    answers = await asyncio.gather(
        *[async_client.chat.completions.create(model=LONG, messages=SHORT, max_tokens=4) for _ in range(3)]  # type: ignore[arg-type]
    )
    assert [answer.choices[0].finish_reason for answer in answers] == ["length"] * 3
    assert len(service.running(LONG)) == 1


@pytest.mark.exhaustive
async def test_million_tokens_are_answered_while_short_requests_stay_quick(async_client: AsyncOpenAI) -> None:
    create = async_client.chat.completions.create
    await create(model=LONG, messages=SHORT, max_tokens=4)  # type: ignore[call-overload]
    prompt = "river " * 1_000_000
    began = time.monotonic()
    long = asyncio.create_task(
        create(model=LONG, messages=[{"role": "user", "content": prompt}], max_tokens=8, temperature=0)
    )
    waits = []
    while not long.done():
        started = time.monotonic()
        await create(model=LONG, messages=SHORT, max_tokens=4)  # type: ignore[call-overload]
        waits.append(time.monotonic() - started)
    answer = await long
    took_s = time.monotonic() - began
    assert answer.usage is not None
    assert 1_000_000 <= answer.usage.prompt_tokens < 1_048_576
    assert answer.usage.completion_tokens == 8
    assert answer.choices[0].message.content
    assert len(waits) > 10, "short requests, one after the other, beside the long one"
    assert max(waits) < took_s / 2


@pytest.mark.parametrize("model", [CHAT, pytest.param(LONG, marks=pytest.mark.exhaustive)])
async def test_millions_of_bytes_are_refused_where_the_context_is_shorter(
    async_client: AsyncOpenAI, model: str
) -> None:
    prompt = "river " * 1_060_000
    with pytest.raises(BadRequestError) as refused:
        await async_client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": prompt}], max_tokens=8
        )
    assert refused.value.code == "context_length_exceeded"


@pytest.mark.exhaustive
def test_model_is_scaled_to_zero_again_and_its_memory_is_free(service: Service, http: httpx2.Client) -> None:
    answer = http.post("/v1/chat/completions", json={"model": LONG, "messages": SHORT, "max_tokens": 4}, timeout=180)
    assert answer.status_code == 200
    engine = service.engine_of(service.running(LONG)[0])
    eventually(lambda: not service.replicas(LONG), 120, "no replica is left")
    eventually(lambda: not is_living(engine), 30, "its engine is gone")
