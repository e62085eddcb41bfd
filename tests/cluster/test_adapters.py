"""LoRA adapters of a model, over the whole service."""

import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from deployments.state.usage.store import UsageRow
from tests.serve.batch_calls import finish, output_of
from tests.service import ADAPTERS, CHAT, Service
from tests.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 12, "temperature": 0}


def test_adapters_are_models_that_say_their_own(client: OpenAI) -> None:
    names = [CHAT, *(f"{CHAT}:{name}" for name in ADAPTERS)]
    assert set(names) <= {model.id for model in client.models.list()}
    said = []
    for name in names:
        whole = client.chat.completions.create(model=name, **ASKED)
        assert whole.model == name
        chunks = list(client.chat.completions.create(model=name, **ASKED, stream=True))
        assert {chunk.model for chunk in chunks} == {name}
        text = whole.choices[0].message.content
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
        response = client.responses.create(model=name, input="Hello!", max_output_tokens=12, temperature=0)
        assert (response.model, response.output_text) == (name, text)
        said.append(text)
    assert len(set(said)) == len(names)


def test_the_adapter_of_another_account_and_a_path_do_not_exist(client: OpenAI) -> None:
    listed = {model.id for model in client.models.list()}
    for name in ("hidden", "none", "..", f"../{ADAPTERS[0]}", ""):
        assert f"{CHAT}:{name}" not in listed
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model=f"{CHAT}:{name}", **ASKED)


def test_lines_of_a_batch_name_adapters_and_tiers_change_nothing_of_an_answer(client: OpenAI) -> None:
    name = f"{CHAT}:{ADAPTERS[0]}"
    expected = client.chat.completions.create(model=name, **ASKED, service_tier="flex")
    assert expected.service_tier == "flex"
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": name, **ASKED}}
    content = json.dumps(line).encode() + b"\n"
    upload = client.uploads.upload_file_chunked(
        file=content,
        filename="in.jsonl",
        bytes=len(content),
        mime_type="application/jsonl",
        purpose="batch",
        part_size=50,
    )
    assert upload.file is not None
    batch = finish(
        client,
        client.batches.create(input_file_id=upload.file.id, endpoint="/v1/chat/completions", completion_window="24h"),
    )
    assert batch.output_file_id is not None
    (one,) = output_of(client, batch)
    told = one["response"]["body"]
    assert told["model"] == name
    assert told["choices"][0]["message"]["content"] == expected.choices[0].message.content


async def test_usage_is_counted_under_the_adapter_s_name(service: Service) -> None:
    name = f"{CHAT}:{ADAPTERS[1]}"
    issued, secret = await service.issue(tier="enterprise", requests_per_minute=100, tokens_per_minute=1_000_000)
    async with AsyncOpenAI(base_url=f"{service.url}/v1", api_key=secret, max_retries=0, timeout=120) as client:
        prompts = [(await client.chat.completions.create(model=name, **ASKED)).usage.prompt_tokens for _ in range(3)]
    rows: list[UsageRow] = []

    async def is_written() -> bool:
        rows[:] = await service.with_usage(lambda usage: usage.by_day(key_id=issued.key_id))
        return sum(row.num_requests for row in rows) == len(prompts)

    await eventually(is_written)
    assert {row.model for row in rows} == {name}
    assert sum(row.prompt_tokens for row in rows) == sum(prompts)
    assert sum(row.completion_tokens for row in rows) == len(prompts) * ASKED["max_tokens"]
