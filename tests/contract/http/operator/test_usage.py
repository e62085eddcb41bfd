"""What was used, as it is asked for over HTTP: the figures are those of the clients, the metrics and the log."""

import asyncio
import csv
import io
import json
import re
import time
from collections import Counter

import openai
import pytest

from deployments.models.price import PriceConfig, Prices
from deployments.state.audit_log import AuditLog
from deployments.state.identity.key_store import KeyStore
from deployments.state.identity.keys import NewKey
from deployments.state.usage.reading import UsageReader
from deployments.state.usage.request_log import RequestFilter, RequestLogReader
from deployments.state.usage.store import UsageStore
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, SECRET
from tests.contract.http.batch_calls import finish, jsonl, line, submit
from tests.contract.http.operator.test_keys import ADMIN

USAGE = "/v1/organization/usage"
OTHER = "sk-manta-other-0123456789abcdefghijklmnopqrs"
MESSAGES = [{"role": "user", "content": "Question"}]
PRICES = {
    MODEL: PriceConfig(input=0.15, cached_input=0.075, output=0.6),
    EMBEDDING_MODEL: PriceConfig(input=0.02),
}


@pytest.fixture
async def desk(world, batch_stores):
    """Everything in one database, with the keys of two accounts and an admin key."""
    database = batch_stores.database
    world.clock.advance(time.time() - world.clock())
    world.keys = KeyStore(database, b"pepper" * 6, world.tiers)
    world.usage, world.request_log, world.audit = UsageReader(database), RequestLogReader(database), AuditLog(database)
    world.prices = Prices(PRICES)

    async def used_in_minute(key_ids, now):
        return {"key_1": (7, 70)}

    world.used_in_minute = used_in_minute
    world.principal(requests_per_minute=100_000)
    world.principal(OTHER, key_id="key_2", account="acct_2", requests_per_minute=100_000)
    world.principal(ADMIN, key_id="key_admin", account="operators", is_admin=True)
    return UsageStore(database)


async def keep(world, store):
    """Write down what the application has recorded, as the gatekeeper does."""
    records, world.log.records = world.log.records, []
    await store.add(records)
    return records


async def get(world, path, secret=ADMIN, status=200, **params):
    async with world.http(authorization=f"Bearer {secret}") as http:
        answer = await http.get(path, params=params)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.headers["content-type"] == "application/json" else answer


async def total(world, kind, *fields, secret=ADMIN, **params):
    page = await get(world, f"{USAGE}/{kind}", secret, start_time=int(time.time()) - 86_400, **params)
    found = Counter()
    for bucket in page["data"]:
        for result in bucket["results"]:
            found.update({field: result[field] for field in fields})
    return tuple(found[field] for field in fields)


async def ask_everything(world, client, batches):
    """Ask for some hundred answers of every kind; return the sums of the clients' own usage fields."""
    used = Counter()

    def count(usage, num_requests=1):
        usage = usage.model_dump()
        prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
        details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
        written = usage.get("completion_tokens", usage.get("output_tokens")) or 0
        kind = "text" if written else "embeddings"
        used.update({(kind, "requests"): num_requests, (kind, "prompt"): prompt, (kind, "written"): written})
        used.update({(kind, "cached"): details.get("cached_tokens") or 0})

    async def chat(tier):
        count((await client.chat.completions.create(model=MODEL, messages=MESSAGES, service_tier=tier)).usage)

    async def stream():
        options = {"include_usage": True}
        said = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, stream_options=options)
        async for chunk in said:
            if chunk.usage is not None:
                count(chunk.usage)

    async def respond():
        count((await client.responses.create(model=MODEL, input="Question", store=False)).usage)

    async def embed():
        count((await client.embeddings.create(model=EMBEDDING_MODEL, input=["a", "b"])).usage)

    async def fail():
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="none", messages=MESSAGES)

    for _ in range(40):
        await asyncio.gather(chat("default"), chat("flex"), stream(), respond(), embed(), fail())
    batch = await finish(client, await submit(client, jsonl(*map(line, range(40)), line(40, model="none"))))
    count(batch.usage, 40)
    batches.append(batch.id)
    return used


async def test_clients_usage_routes_metrics_the_log_and_the_command_line_have_the_same_figures(world, desk, batching):
    client, batches = world.client(), []
    used = await ask_everything(world, client, batches)
    records = await keep(world, desk)
    for record in batching.counted:
        world.metrics.end(record)
    text = tuple(used["text", name] for name in ("requests", "prompt", "cached", "written"))
    assert text[0] == 200
    fields = ("num_model_requests", "input_tokens", "input_cached_tokens", "output_tokens")
    assert await total(world, "completions", *fields) == text
    for more in ({"group_by": ["model", "batch"]}, {"bucket_width": "1h", "limit": 25, "group_by[]": "api_key_id"}):
        assert await total(world, "completions", *fields, **more) == text
    assert await total(world, "completions", *fields, batch="false") != text
    vectors = (used["embeddings", "requests"], used["embeddings", "prompt"])
    assert await total(world, "embeddings", "num_model_requests", "input_tokens") == vectors

    rows = await desk.by_day()
    assert sum(row.prompt_tokens for row in rows) == text[1] + vectors[1]
    assert sum(row.completion_tokens for row in rows) == text[3]
    log = [one async for page in world.request_log.every(RequestFilter()) for one in page if one.key_id]
    assert len(log) == len([one for one in records if one.key_id]) + 41 == sum(row.num_requests for row in rows)
    assert sum(one.prompt_tokens for one in log) == text[1] + vectors[1]
    assert sum(one.cached_tokens for one in log) == text[2]
    tokens = Counter()
    for kind, amount in re.findall(r'manta_tokens_total\{.*type="(\w+)"\} ([\d.e+]+)', world.metrics.render().decode()):
        tokens[kind] += float(amount)
    assert tokens == {"prompt": text[1] + vectors[1], "cached": text[2], "completion": text[3]}

    costs = await get(world, "/v1/organization/costs", start_time=int(time.time()) - 86_400)
    amounts = [result["amount"] for bucket in costs["data"] for result in bucket["results"]]
    assert {one["currency"] for one in amounts} == {"usd"}
    # Of 200 requests, 40 were flex and 40 lines of a batch: half price.
    exact = (5 * 150_000 + 4 * 75_000 + 3 * 600_000) * (120 + 80 // 2) + vectors[1] * 20_000
    assert sum(one["value"] for one in amounts) == pytest.approx(exact / 10**12, rel=1e-12)
    assert sum(one.cost for one in log) == exact
    items = await get(world, "/v1/organization/costs", start_time=int(time.time()) - 86_400, group_by="line_item")
    named = Counter()
    for bucket in items["data"]:
        for result in bucket["results"]:
            named[result["line_item"]] += result["quantity"]
    assert named[f"{MODEL}, output_tokens"] == text[3]
    assert named[f"{MODEL}, cached_input_tokens"] == text[2]

    of_batch = await get(world, "/v1/organization/requests", batch_id=batches[0], is_error="true")
    assert [(one["status"], one["code"], one["batch_id"]) for one in of_batch["data"]] == [
        (404, "model_not_found", batches[0])
    ]


async def test_openais_client_reads_usage_by_its_own_methods(world, desk):
    await world.client().chat.completions.create(model=MODEL, messages=MESSAGES)
    await keep(world, desk)
    admin = openai.AsyncOpenAI(
        api_key="none", admin_api_key=ADMIN, base_url="http://manta.test/v1", http_client=world.client()._client
    )
    start = int(time.time()) - 3 * 86_400
    usage = admin.admin.organization.usage
    groups = ["model", "project_id", "service_tier"]
    page = await usage.completions(start_time=start, group_by=groups, limit=2)
    assert (len(page.data), page.has_more) == (2, True)
    rest = await usage.completions(start_time=start, group_by=groups, page=page.next_page)
    (result,) = [result for bucket in rest.data for result in bucket.results]
    assert result.object == "organization.usage.completions.result"
    assert (result.model, result.project_id) == (MODEL, "acct_1")
    assert (result.input_tokens, result.output_tokens, result.service_tier) == (9, 3, "default")
    assert rest.data[0].start_time == page.data[-1].end_time
    assert not rest.has_more
    costs = await usage.costs(start_time=start, group_by=["project_id"])
    assert [one.project_id for bucket in costs.data for one in bucket.results] == ["acct_1"]
    for name in ("moderations", "vector_stores", "code_interpreter_sessions", "file_search_calls", "web_search_calls"):
        found = await getattr(usage, name)(start_time=start)
        assert [bucket.results for bucket in found.data] == [[]] * 4
    plain = openai.AsyncOpenAI(api_key=ADMIN, base_url="http://manta.test/v1", http_client=world.client()._client)
    got = await plain.get(
        "/organization/usage/completions", cast_to=object, options={"params": {"start_time": start, "limit": 5}}
    )
    assert got["object"] == "page"

    made = await admin.admin.organization.admin_api_keys.create(name="poller", expires_in_seconds=3600)
    assert made.value.startswith("sk-manta-")
    assert [one.id async for one in admin.admin.organization.admin_api_keys.list()] == [made.id]
    assert (await admin.admin.organization.admin_api_keys.retrieve(made.id)).expires_at is not None
    key, _ = await world.keys.create(NewKey(account="acct_1"))
    projects = admin.admin.organization.projects
    assert [one.id async for one in projects.list()] == ["acct_1", "operators"]
    assert [await projects.retrieve(one.id) async for one in projects.list()] == [one async for one in projects.list()]
    with pytest.raises(openai.NotFoundError):
        await projects.retrieve("acct_none")
    assert [one.id async for one in projects.api_keys.list("acct_1")] == [key.key_id]
    assert (await projects.api_keys.retrieve(key.key_id, project_id="acct_1")).redacted_value == key.display
    with pytest.raises(openai.NotFoundError):
        await projects.api_keys.retrieve(key.key_id, project_id="operators")
    await projects.api_keys.delete(key.key_id, project_id="acct_1")
    await admin.admin.organization.admin_api_keys.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        await admin.admin.organization.admin_api_keys.retrieve(made.id)

    log = admin.admin.organization.audit_logs
    entries = [one async for one in log.list(limit=2)]
    begun = ["api_key.created", "project.created"]
    assert [one.type for one in entries] == ["api_key.deleted", "api_key.deleted", *begun, *begun]
    actors = [one.actor.api_key and one.actor.api_key.id for one in entries]
    assert actors == ["key_admin", "key_admin", None, None, "key_admin", "key_admin"]
    assert [entries[place].project_created.id for place in (3, 5)] == ["acct_1", "operators"]
    assert entries[1].api_key_deleted.id == key.key_id
    named = await log.list(event_types=["api_key.deleted"], effective_at={"gte": int(time.time()) - 60})
    assert len(named.data) == 2
    assert (await log.list(effective_at={"lt": int(time.time()) - 60})).data == []


async def test_a_key_sees_its_own_account_only_and_only_with_the_scope(world, desk):
    await world.client().chat.completions.create(model=MODEL, messages=MESSAGES)
    await world.client(OTHER).chat.completions.create(model=MODEL, messages=MESSAGES)
    await keep(world, desk)
    for account in ("acct_1", "acct_2"):
        await world.keys.create(NewKey(account=account))
    start = {"start_time": int(time.time()) - 86_400, "bucket_width": "1d"}
    paths = [f"{USAGE}/completions", "/v1/organization/costs", "/v1/organization/latency"]
    for path in paths:
        everything = await get(world, path, ADMIN, **start, group_by="project_id")
        own = await get(world, path, SECRET, **start, group_by="project_id")
        assert own["data"][-1]["results"] != []
        if "latency" not in path:
            assert {one["project_id"] for one in everything["data"][-1]["results"]} == {"acct_1", "acct_2"}
            assert {one["project_id"] for one in own["data"][-1]["results"]} == {"acct_1"}
        foreign = await get(world, path, SECRET, **start, project_ids="acct_2")
        assert [bucket["results"] for bucket in foreign["data"]] == [[]] * len(foreign["data"])
    requests = await get(world, "/v1/organization/requests", SECRET)
    assert {one["project_id"] for one in requests["data"]} == {"acct_1"}
    assert (await get(world, "/v1/organization/requests", SECRET, project_id="acct_2"))["data"] == []
    limits = await get(world, "/v1/organization/limits", SECRET)
    assert {one["project_id"] for one in limits["data"]} == {"acct_1"}
    assert (await get(world, "/v1/organization/limits", SECRET, project_id="acct_2"))["data"] == []
    for path in ("/v1/organization/audit_logs", "/v1/organization/projects", "/v1/organization/admin_api_keys"):
        await get(world, path, SECRET, 403)
    world.principal(OTHER, key_id="key_2", account="acct_2", operations=("chat",))
    for path in (*paths, "/v1/organization/requests", "/v1/organization/limits"):
        refused = await get(world, path, OTHER, 403, **start)
        assert refused["error"]["code"] == "insufficient_permissions"
    world.principal(OTHER, key_id="key_2", account="acct_2", operations=("usage",))
    assert (await get(world, "/v1/organization/requests", OTHER))["data"] != []


async def test_the_request_log_is_paged_and_exported_without_content(world, desk):
    for _ in range(5):
        await world.client().chat.completions.create(model=MODEL, messages=MESSAGES)
    with pytest.raises(openai.NotFoundError):
        await world.client().chat.completions.create(model="none", messages=MESSAGES)
    await keep(world, desk)
    path = "/v1/organization/requests"
    first = await get(world, path, SECRET, limit=4)
    assert (len(first["data"]), first["has_more"]) == (4, True)
    rest = await get(world, path, SECRET, limit=4, after=first["next"])
    assert (len(rest["data"]), rest["has_more"], rest["next"]) == (2, False, None)
    shown = first["data"] + rest["data"]
    assert len({one["request_id"] for one in shown}) == 6
    failed, *answered = shown
    assert (failed["status"], failed["code"], failed["model"]) == (404, "model_not_found", None)
    assert {(one["operation"], one["input_tokens"], one["cost"]) for one in answered} == {("chat", 9, 2.85e-06)}
    lines = (await get(world, path, SECRET, format="jsonl")).text.splitlines()
    assert [json.loads(one) for one in lines] == shown
    table = list(csv.DictReader(io.StringIO((await get(world, path, SECRET, format="csv")).text)))
    assert [one["request_id"] for one in table] == [one["request_id"] for one in shown]
    assert [one["input_tokens"] for one in table[1:]] == ["9"] * 5
    assert "Question" not in repr(shown) + repr(table)
    await get(world, path, SECRET, 400, after="nonsense")
    await get(world, path, SECRET, 400, format="xml")
    await get(world, f"{USAGE}/completions", SECRET, 400)
    await get(world, f"{USAGE}/completions", SECRET, 400, start_time=0, limit=367)
    await get(world, f"{USAGE}/completions", SECRET, 400, start_time=0, page="page_7")
    await get(world, f"{USAGE}/completions", SECRET, 400, start_time=0, group_by="colour")
    await get(world, f"{USAGE}/completions", SECRET, 400, start_time=9, end_time=9)


async def test_limits_show_what_is_used_and_refused(world, desk):
    key, _ = await world.keys.create(NewKey(account="acct_1", tier="standard"))
    world.principal(key_id=key.key_id, requests_per_minute=1)
    for _ in range(3):
        async with world.http() as http:
            await http.post("/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES})
    await keep(world, desk)

    async def used_in_minute(key_ids, now):
        assert key_ids == [key.key_id]
        return {key.key_id: (1, 12)}

    world.used_in_minute = used_in_minute
    (limit,) = (await get(world, "/v1/organization/limits"))["data"]
    assert limit["requests"] == {"limit": 60, "used": 1}
    assert limit["tokens"] == {"limit": 200_000, "used": 12}
    assert (limit["api_key_id"], limit["refused"]) == (key.key_id, 2)
