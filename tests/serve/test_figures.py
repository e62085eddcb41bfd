"""Mixed requests side by side: clients, routes, console, command line, log and metrics have the same sums."""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI, BadRequestError, DefaultAsyncHttpxClient, NotFoundError, RateLimitError

from tests.serve.batch_calls import ENDED, URL
from tests.serve.configurations import TIER
from tests.service import CHAT, EMBED, Service
from tests.waiting import eventually

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1200)]

ACCOUNT = "figures"
NUM_ADMITTED = 5
AT_ONCE = 24
FIELDS = ("prompt", "cached", "completion")

Sums = Counter[str]


@dataclass
class Clients:
    """What the clients of the account have seen: every answer by status, and the sums of their own `usage` by kind."""

    statuses: Counter[int] = field(default_factory=Counter)
    text: Sums = field(default_factory=Counter)
    vectors: Sums = field(default_factory=Counter)

    @property
    def tokens(self) -> dict[str, int]:
        return {name: self.text[name] + self.vectors[name] for name in FIELDS}

    async def note(self, answer: httpx2.Response) -> None:
        self.statuses[answer.status_code] += 1

    def add(self, usage: Any, num_requests: int = 1) -> None:
        told = usage.model_dump()
        written = told.get("completion_tokens", told.get("output_tokens"))
        details = told.get("prompt_tokens_details") or told.get("input_tokens_details") or {}
        (self.vectors if written is None else self.text).update(
            requests=num_requests,
            prompt=told.get("prompt_tokens", told.get("input_tokens")),
            cached=details.get("cached_tokens") or 0,
            completion=written or 0,
        )

    @asynccontextmanager
    async def open(self, service: Service, secret: str) -> AsyncIterator[AsyncOpenAI]:
        http = DefaultAsyncHttpxClient(event_hooks={"response": [self.note]})
        base_url = f"{service.url}/v1"
        async with AsyncOpenAI(
            base_url=base_url, api_key=secret, max_retries=0, timeout=180, http_client=http
        ) as client:
            yield client


@dataclass(frozen=True)
class Asks:
    """One request of each kind, told apart by its number; `limited` may send few in a minute."""

    seen: Clients
    client: AsyncOpenAI
    limited: AsyncOpenAI

    async def chat(self, number: int) -> None:
        tier = "flex" if number % 2 else "default"
        self.seen.add((await self.client.chat.completions.create(**body_of(number), service_tier=tier)).usage)

    async def stream(self, number: int) -> None:
        more = {"stream": True, "stream_options": {"include_usage": True}}
        async for chunk in await self.client.chat.completions.create(**body_of(number), **more):
            if chunk.usage is not None:
                self.seen.add(chunk.usage)

    async def complete(self, number: int) -> None:
        prompt = ["Once upon a time", "There was a king"]
        self.seen.add(
            (await self.client.completions.create(model=CHAT, prompt=prompt, max_tokens=number % 5 + 1)).usage
        )

    async def respond(self, number: int) -> None:
        fields = {"model": CHAT, "input": "Tell me of the hills behind it.", "max_output_tokens": number % 7 + 1}
        self.seen.add((await self.client.responses.create(**fields)).usage)

    async def stream_response(self, number: int) -> None:
        fields = {"model": CHAT, "input": "Tell me of the sea.", "max_output_tokens": number % 7 + 1, "store": False}
        async for event in await self.client.responses.create(**fields, stream=True):
            if event.type == "response.incomplete":
                self.seen.add(event.response.usage)

    async def embed(self, number: int) -> None:
        texts = ["the sea", "a ship " * (number % 5 + 1)]
        self.seen.add((await self.client.embeddings.create(model=EMBED, input=texts)).usage)

    async def name_no_model(self, number: int) -> None:
        with pytest.raises(NotFoundError):
            await self.client.chat.completions.create(**body_of(number) | {"model": f"none-{number}"})

    async def say_nothing(self, number: int) -> None:
        with pytest.raises(BadRequestError):
            await self.client.chat.completions.create(**body_of(number) | {"messages": []})

    async def ask_too_often(self, number: int) -> None:
        with suppress(RateLimitError):
            self.seen.add((await self.limited.chat.completions.create(**body_of(number))).usage)

    async def run(self, num_requests: int) -> None:
        """Send `num_requests`, all kinds in turn, and a batch of a tenth as many lines beside them."""
        kinds = (
            self.chat,
            self.stream,
            self.complete,
            self.respond,
            self.stream_response,
            self.embed,
            self.name_no_model,
            self.say_nothing,
            self.ask_too_often,
        )
        numbers = iter(range(num_requests))

        async def ask() -> None:
            for number in numbers:
                await kinds[number % len(kinds)](number)

        async with asyncio.TaskGroup() as group:
            group.create_task(
                run_batch(self.seen, self.client, [body_of(number) for number in range(num_requests // 10)])
            )
            for _ in range(AT_ONCE):
                group.create_task(ask())


def body_of(number: int) -> dict[str, Any]:
    words = "Tell me of the sea and of ships. " * (number % 3 + 1)
    return {"model": CHAT, "max_tokens": number % 7 + 1, "messages": [{"role": "user", "content": words}]}


async def run_batch(seen: Clients, client: AsyncOpenAI, bodies: list[dict[str, Any]]) -> None:
    """Run a batch of these lines, and of one that names no model."""
    lines = [
        {"custom_id": str(number), "method": "POST", "url": URL, "body": body}
        for number, body in enumerate([*bodies, bodies[0] | {"model": "none"}])
    ]
    content = "".join(json.dumps(one) + "\n" for one in lines).encode()
    file = await client.files.create(file=("in.jsonl", content), purpose="batch")
    batch = await client.batches.create(input_file_id=file.id, endpoint=URL, completion_window="24h")
    while batch.status not in ENDED:
        await asyncio.sleep(1)
        batch = await client.batches.retrieve(batch.id)
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (len(bodies), 1)
    seen.add(batch.usage, len(bodies))
    seen.statuses.update({200: len(bodies), 404: 1})


@dataclass
class Desk:
    """What an operator asks of the service: over HTTP with an admin key, in the console, at the command line."""

    service: Service
    http: httpx2.AsyncClient

    async def results(self, path: str, **params: Any) -> list[dict[str, Any]]:
        """Return the results of all periods since yesterday, page by page."""
        found: list[dict[str, Any]] = []
        params = {"start_time": int(time.time()) - 86_400, "project_ids": ACCOUNT, **params}
        while True:
            answer = await self.http.get(f"/v1/organization/{path}", params=params)
            assert answer.status_code == 200, answer.text
            page = answer.json()
            found += [result for bucket in page["data"] for result in bucket["results"]]
            if not page["has_more"]:
                return found
            params["page"] = page["next_page"]

    async def text_usage(self, **params: Any) -> dict[str, int]:
        found = await self.results("usage/completions", **params)
        names = ("num_model_requests", "input_tokens", "input_cached_tokens", "output_tokens")
        return dict(zip(("requests", *FIELDS), (sum(one[name] for one in found) for name in names), strict=True))

    async def overview(self) -> dict[str, list[int]]:
        """Return the figures of the console's overview by their label, and those of its table by model."""
        page = (await self.http.get("/console", params={"account": ACCOUNT, "span": "day"})).text
        shown = re.findall(r"<dt>([^<]+)</dt><dd>(.*?)</dd>", page)
        rows = re.findall(r'<th scope="row" class="mono">(.*?)</tr>', page, re.DOTALL)
        named = [(re.sub("<[^>]+>", "", row.partition("</th>")[0]), re.findall(r'num">([^<]+)<', row)) for row in rows]
        return {label: numbers(cell) for label, cell in [*shown, *((name, "; ".join(cells)) for name, cells in named)]}

    async def metrics(self) -> tuple[Sums, Counter[int]]:
        """Return the tokens by type and the requests by status of the tier, as Ray's agents show them."""
        tokens: Sums = Counter()
        requests: Counter[int] = Counter()
        for target in self.service.metrics_targets():
            page = (await self.http.get(f"http://{target}/metrics")).text
            for name, labels, amount in re.findall(r"^ray_(manta_\w+?)(?:_total)?\{(.*?)\} ([\d.e+]+)$", page, re.M):
                about = dict(re.findall(r'(\w+)="([^"]*)"', labels))
                if about.get("tier") != TIER:
                    continue
                if name == "manta_tokens":
                    tokens[about["type"]] += int(float(amount))
                elif name == "manta_requests":
                    requests[int(about["status"])] += int(float(amount))
        return tokens, requests


def numbers(cell: str) -> list[int]:
    """Return the whole numbers in a cell of a page."""
    return [int(one) for one in re.findall(r"\d+", cell.replace(",", ""))]


@asynccontextmanager
async def desk_of(service: Service) -> AsyncIterator[Desk]:
    _, secret = await service.issue(account="operators", tier="standard", is_admin=True)
    headers = {"authorization": f"Bearer {secret}"}
    async with httpx2.AsyncClient(base_url=service.url, headers=headers, timeout=60) as http:
        answer = await http.post("/console/sign-in", data={"key": secret}, headers={"origin": service.url})
        assert answer.status_code == 303, answer.text
        # Replicas that speak TLS set a secure cookie, which no client sends to a front that speaks plain HTTP.
        http.headers["cookie"] = answer.headers["set-cookie"].partition(";")[0]
        yield Desk(service, http)


async def test_all_that_is_shown_of_requests_side_by_side_is_what_their_clients_saw(
    fixed: Service, pytestconfig: pytest.Config
) -> None:
    seen, num_requests = Clients(), 2_000 if pytestconfig.getoption("exhaustive") else 300
    _, secret = await fixed.issue(account=ACCOUNT, tier=TIER)
    _, few = await fixed.issue(account=ACCOUNT, tier=TIER, requests_per_minute=NUM_ADMITTED)
    async with seen.open(fixed, secret) as client, seen.open(fixed, few) as limited:
        await Asks(seen, client, limited).run(num_requests)
    num_all = seen.statuses.total()
    num_errors = sum(num for status, num in seen.statuses.items() if status >= 400)
    assert seen.statuses[400] == num_requests // 9
    assert seen.statuses[429] > 0
    assert seen.text["cached"] > 0

    async with desk_of(fixed) as desk:

        async def are_written() -> bool:
            rows = await fixed.with_usage(lambda usage: usage.by_day(account=ACCOUNT))
            return sum(row.num_requests for row in rows) >= num_all

        await eventually(are_written, 60)
        text = {name: seen.text[name] for name in ("requests", *FIELDS)}
        groups = ["model", "project_id", "api_key_id", "batch", "service_tier", "operation"]
        assert await desk.text_usage(bucket_width="1d") == text
        assert await desk.text_usage(bucket_width="1h", **{"group_by[]": groups}) == text
        assert await desk.text_usage(bucket_width="1m", limit=1440, **{"group_by[]": groups}) == text
        vectors = await desk.results("usage/embeddings", bucket_width="1h")
        assert sum(one["num_model_requests"] for one in vectors) == seen.vectors["requests"]
        assert sum(one["input_tokens"] for one in vectors) == seen.vectors["prompt"]

        pages = await desk.overview()
        calls, other = pages["Model calls"], pages["Other and refused requests"]
        assert (calls[0] + other[0], calls[1] + other[1], other[2]) == (num_all, num_errors, seen.statuses[429])
        assert pages["Prompt tokens"] == [seen.tokens["prompt"], seen.tokens["cached"]]
        assert pages["Completion tokens"] == [seen.tokens["completion"]]
        assert pages[CHAT][:5] == [text["requests"], 0, text["prompt"], text["cached"], text["completion"]]
        assert pages[EMBED][:3] == [seen.vectors["requests"], 0, seen.vectors["prompt"]]

        told = await asyncio.to_thread(fixed.run_command, "usage", "--account", ACCOUNT, "--json")
        rows = json.loads(told)
        assert sum(row["num_requests"] for row in rows) == num_all
        assert sum(row["num_errors"] for row in rows) == num_errors
        assert {name: sum(row[f"{name}_tokens"] for row in rows) for name in FIELDS} == seen.tokens

        log = await desk.http.get("/v1/organization/requests", params={"project_id": ACCOUNT, "format": "jsonl"})
        lines = [json.loads(one) for one in log.text.splitlines()]
        assert Counter(one["status"] for one in lines) == seen.statuses
        assert sum(one["input_tokens"] for one in lines) == seen.tokens["prompt"]
        assert sum(one["output_tokens"] for one in lines) == seen.tokens["completion"]

        amounts = await desk.results("costs", bucket_width="1d")
        assert sum(one["amount"]["value"] for one in amounts) == pytest.approx(sum(one["cost"] for one in lines))

        async def are_measured() -> bool:  # Ray's agents are handed it now and then.
            tokens, requests = await desk.metrics()
            return requests.total() >= num_all and tokens.total() >= sum(seen.tokens.values())

        await eventually(are_measured, 60)
        assert await desk.metrics() == (Counter(seen.tokens), seen.statuses)
