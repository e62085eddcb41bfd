"""What a page shows: an account's own things and nothing of another's, and hostile names as text."""

import asyncio
import json
import re
from dataclasses import replace
from time import time

import pytest

from deployments.models.price import NO_PRICES, PriceConfig, Prices
from deployments.state.identity.keys import NewKey
from deployments.state.identity.tiers import Tiers
from deployments.state.usage.record import RequestRecord
from deployments.state.usage.store import UsageStore
from deployments.state.vector_stores.rows import NewStore
from serve_app.console.routes import ROUTES
from tests.contract.http.answers import MODEL, telling
from tests.contract.http.console.conftest import FORM, Visitor

HOSTILE = {
    "script": "<script>alert(1)</script>",
    "attribute": '" onmouseover="alert(1)" x=\'',
    "long": "n" * 10_000,
    "backwards": "\u202egpj.exe\u2066",
}


async def fill(world, visitor, secrets, account):
    """Give an account one of everything, by the console or the interface; return its ids by the parameter of paths."""
    client = world.client(secrets[account])
    file = await client.files.create(file=(f"{account}.txt", b"text"), purpose="user_data")
    rows = [
        {
            "custom_id": f"{account}-line",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]},
        }
    ]
    jsonl = await client.files.create(file=("in.jsonl", json.dumps(rows[0]).encode()), purpose="batch")
    batch = await client.batches.create(
        input_file_id=jsonl.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    store = await client.vector_stores.create(name=f"store of {account}")
    response = await client.responses.create(model=MODEL, input=f"said by {account}")
    conversation = await client.conversations.create(metadata={"topic": f"topic of {account}"})
    telling(world)
    chat = await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": f"asked by {account}"}], store=True
    )
    request_id = f"req_of_{account}"
    await UsageStore(world.keys._database).add([record(request_id, account)])
    key, _ = await world.keys.create(NewKey(account=account, name=f"spare of {account}", tier="standard"))
    return {
        "file_id": file.id,
        "batch_id": batch.id,
        "vector_store_id": store.id,
        "response_id": response.id,
        "conversation_id": conversation.id,
        "completion_id": chat.id,
        "request_id": request_id,
        "key_id": key.key_id,
    }


def record(request_id, account, **more):
    values = {
        "key_id": f"key of {account}",
        "tier": "free",
        "method": "POST",
        "route": "/v1/chat/completions",
        "model": MODEL,
        "status": 200,
        "code": None,
        "stream": True,
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "cached_tokens": 0,
        "ttft_s": 0.1,
        "total_s": 0.5,
    }
    return RequestRecord(request_id=request_id, at=time(), account=account, **values | more)


@pytest.fixture
async def ids(world, visit, secrets):
    return {account: await fill(world, visit(), secrets, account) for account in ("acct_one", "acct_two")}


PAGES = [
    route.path
    for route in ROUTES
    if "GET" in (route.methods or ())
    and not route.path.startswith(("/console/static", "/console/sign-in", "/console/upload", "/console/{path"))
]
FORMS = [
    route.path
    for route in ROUTES
    if "POST" in (route.methods or ())
    and "{" in route.path
    and not {"operator", "webhooks"} & set(route.path.split("/"))  # Webhooks have no page of their own.
]


@pytest.mark.parametrize("path", [path for path in PAGES if "/operator" not in path])
async def test_a_page_shows_nothing_of_another_account(visit, secrets, ids, path):
    mine, other = ids["acct_one"], ids["acct_two"]
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    text = await browser.read(path.format(**mine))
    for theirs in (*other.values(), "acct_two", "store of acct_two"):
        assert theirs not in text
    if "{" in path:
        answer = await browser.http.get(path.format(**other))
        assert answer.status_code == 404
        for theirs in ("acct_two.txt", "said by acct_two", "topic of acct_two", "asked by acct_two"):
            assert theirs not in answer.text


@pytest.mark.parametrize("path", FORMS)
async def test_a_form_changes_nothing_of_another_account(visit, secrets, ids, path):
    browser, owner = visit(), visit()
    await browser.sign_in(secrets["acct_one"])
    await owner.sign_in(secrets["acct_two"])
    answer = await browser.send(path.format(**ids["acct_two"]), query="text")
    assert answer.status_code == 404
    page = path.rpartition("/")[0].replace("/upload/", "/").format(**ids["acct_two"])
    await owner.read(page + ("/content" if "/files/" in page else ""))


async def test_a_page_shows_what_the_account_has(visit, secrets, ids):
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    for path, words in (
        ("/console/files", "acct_one.txt"),
        ("/console/vector-stores", "store of acct_one"),
        (f"/console/responses/{ids['acct_one']['response_id']}", "said by acct_one"),
        ("/console/conversations", "topic of acct_one"),
        ("/console/requests", "req_of_acct_one"),
        ("/console", ">9 <small>"),
        ("/console/usage", MODEL),
        ("/console/models", MODEL),
        ("/console/keys", "key of acct_one"),
        (f"/console/batches/{ids['acct_one']['batch_id']}", "validating"),
    ):
        assert words in await browser.read(path), path


@pytest.mark.parametrize("path", [path for path in PAGES if "/operator" in path])
async def test_pages_of_operators_need_an_admin_key(visit, secrets, ids, path):
    browser, operator = visit(), visit()
    await browser.sign_in(secrets["acct_one"])
    assert "for operators" in await browser.read(path, 403)
    await operator.sign_in(secrets["ops"])
    answer = await operator.http.get(path.format(account="acct_one", **ids["acct_one"]))
    assert answer.status_code == (404 if path.endswith("cluster") else 200), answer.text[:300]


async def test_an_operator_sees_all_accounts_or_one(visit, secrets, ids):
    operator = visit()
    await operator.sign_in(secrets["ops"])
    text = await operator.read("/console/requests")
    assert "acct_one" in text
    assert "acct_two" in text
    assert "acct_two" not in await operator.read("/console/requests?account=acct_one")
    text = await operator.read("/console/operator/batches")
    assert all(one["batch_id"][:17] in text for one in ids.values())


async def test_an_operator_pauses_resumes_and_cancels_a_batch_of_another_account(visit, secrets, ids):
    operator, owner = visit(), visit()
    await operator.sign_in(secrets["ops"])
    await owner.sign_in(secrets["acct_one"])
    batch_id = ids["acct_one"]["batch_id"]
    path = f"/console/operator/batches/{batch_id}"
    assert (await owner.send(path + "/pause")).status_code == 403
    assert (await operator.send(path + "/pause")).status_code == 303
    assert path + "/resume" in await operator.read("/console/operator/batches")
    assert path + "/resume" in await operator.read(path)
    assert "by an operator" in await owner.read(f"/console/batches/{batch_id}")
    assert (await operator.send(path + "/resume")).status_code == 303
    assert path + "/resume" not in await operator.read("/console/operator/batches")
    assert (await operator.send(path + "/cancel")).status_code == 303
    assert (await operator.send(path + "/pause")).status_code == 409


async def test_a_key_without_the_scope_sees_neither_usage_nor_the_log(world, visit, secrets, ids):
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    holder = world.gatekeeper.principals[secrets["acct_one"]]
    world.gatekeeper.principals[secrets["acct_one"]] = replace(holder, operations=frozenset({"chat"}))
    assert "Prompt tokens" not in await browser.read("/console")
    await browser.read("/console/usage", 403)
    await browser.read("/console/requests", 403)
    await browser.read("/console/batches", 403)
    refused = await browser.http.post(
        "/console/playground/responses",
        json={"model": MODEL, "input": "x"},
        headers={**FORM, "x-csrf-token": browser.csrf},
    )
    assert refused.status_code == 403


@pytest.mark.parametrize("scopes", [{"operations": frozenset({"chat"})}, {"models": ("demo/*",)}])
async def test_a_key_with_scopes_gets_no_secret_and_one_without_usage_sees_no_other_key(
    world, visit, secrets, key_store, scopes
):
    other, _ = await key_store.create(NewKey(account="acct_one", name="of another program"))
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    holder = world.gatekeeper.principals[secrets["acct_one"]]
    page = await browser.read("/console/keys")
    assert "Create a new secret" in page
    assert other.name in page
    world.gatekeeper.principals[secrets["acct_one"]] = replace(holder, **scopes)
    page = await browser.read("/console/keys")
    assert "Create a new secret" not in page
    assert holder.key_id in page
    assert (other.name in page) is ("operations" not in scopes)
    path = f"/console/keys/{holder.key_id}"
    for form in ("/console/keys", path, path + "/rotate", path + "/revoke"):
        assert (await browser.send(form, overlap="0", name="more")).status_code == 403


async def test_an_operator_whose_key_expires_issues_no_admin_key_that_lasts(world, visit, secrets, key_store):
    lasting, _ = await key_store.create(NewKey(account="ops", is_admin=True))
    holder = world.gatekeeper.principals[secrets["ops"]]
    world.gatekeeper.principals[secrets["ops"]] = replace(holder, expires_at=world.clock() + 3600)
    browser = visit()
    await browser.sign_in(secrets["ops"])
    assert (await browser.send(f"/console/operator/keys/{lasting.key_id}/rotate", overlap="0")).status_code == 403
    issued = await browser.send("/console/operator/keys", name="x", account="ops", is_admin="on", tier="standard")
    assert issued.status_code == 200
    (new,) = [key for key in await key_store.list_keys("ops") if key.name == "x"]
    assert new.expires_at == world.clock() + 3600


@pytest.mark.parametrize("kind", list(HOSTILE))
async def test_a_hostile_name_is_text(world, visit, secrets, key_store, kind):
    hostile = HOSTILE[kind]
    client = world.client(secrets["acct_one"])
    await client.files.create(file=(hostile[:250].replace("/", "") + ".txt", b"x"), purpose="user_data")
    service = world.file_search.service
    await service.stores.create(
        NewStore(
            store_id="vs_" + "0" * 32,
            account="acct_one",
            embedding_model="m",
            name=hostile,
            description=None,
            metadata={},
            expires_after_days=None,
        ),
        5,
    )
    conversation = await client.conversations.create(
        metadata={"topic": hostile[:500]}, items=[{"role": "user", "content": hostile}]
    )
    response = await client.responses.create(model=MODEL, input=hostile)
    await UsageStore(key_store._database).add(
        [record("req_hostile", "acct_one", code=hostile[:64], model=hostile[:200])]
    )
    if hostile.isprintable():
        await key_store.create(NewKey(account="acct_one", name=hostile[:100]))
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    for path in (
        "files",
        "vector-stores",
        "vector-stores/vs_" + "0" * 32,
        "conversations",
        f"conversations/{conversation.id}",
        "responses",
        f"responses/{response.id}",
        "requests",
        "requests/req_hostile",
        "keys",
        "",
    ):
        text = await browser.read(f"/console/{path}".rstrip("/"))
        assert "<script>" not in text
        assert not re.search(r"<[^>]*onmouseover=\"alert", text)
        if not path.startswith(("conversations/", "responses/")):
            assert "\u202e" not in text
            assert "n" * 300 not in text


async def test_the_playground_counts_as_the_interface_does_and_pages_count_as_nothing(world, visit, secrets):
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    world.log.records.clear()
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
    headers = {**FORM, "x-csrf-token": browser.csrf}
    answer = await browser.http.post("/console/playground/chat", json=asked, headers=headers)
    assert answer.json()["choices"][0]["message"]["content"] == "Hello there!"
    await browser.read("/console/files")
    await browser.send("/console/theme", theme="dark")
    counted = [one for one in world.log.records if one.key_id is not None]
    assert [(one.route, one.account, one.prompt_tokens, one.completion_tokens) for one in counted] == [
        ("/v1/chat/completions", "acct_one", 9, 3)
    ]
    bad = await browser.http.post("/console/playground/chat", json={"model": "none"}, headers=headers)
    assert bad.status_code == 400
    assert bad.json()["error"]["type"] == "invalid_request_error"


async def test_a_batch_that_ends_shows_the_errors_of_its_lines(world, visit, secrets, batching):
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    lines = [
        {
            "custom_id": "good",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]},
        },
        {
            "custom_id": "<b>bad",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "none", "messages": [{"role": "user", "content": "Hi"}]},
        },
    ]
    content = "\n".join(json.dumps(one) for one in lines).encode()
    # The form for files would refuse the bad line.
    file = await world.client(secrets["acct_one"]).files.create(file=("in.jsonl", content), purpose="batch")
    started = await browser.send("/console/batches/start", file=file.id, endpoint="/v1/chat/completions")
    place = started.headers["location"]
    while 'data-status="completed"' not in (text := await browser.read(place)):  # noqa: ASYNC110 - a browser polls.
        await asyncio.sleep(0.05)
    assert "&lt;b&gt;bad" in text
    assert "model_not_found" in text
    assert "hx-get" not in text.partition("<main")[2]


async def test_changes_of_keys_are_in_the_audit_log_under_the_session(world, visit, secrets, key_store):
    operator = visit()
    await operator.sign_in(secrets["ops"])
    issued = await operator.send(
        "/console/operator/keys", account="new", name="n", tier="free", operations="chat", retention="strict"
    )
    assert issued.status_code == 200
    (key,) = await key_store.list_keys("new")
    assert (key.operations, key.retention) == (("chat",), "strict")
    await operator.send(f"/console/operator/keys/{key.key_id}/revoke")
    text = await operator.read("/console/operator/audit?account=new")
    assert "api_key.created" in text
    assert "api_key.deleted" in text or "api_key.revoked" in text
    assert "session" in text
    refused = await operator.send("/console/operator/keys", account="<x>", tier="none")
    assert refused.status_code == 400
    assert "&lt;x&gt;" in refused.text


@pytest.fixture(
    params=[NO_PRICES, Prices({MODEL: PriceConfig(input=2.5, cached_input=0.075, output=10)})], ids=["without", "with"]
)
def priced(world, request) -> bool:
    """Whether the model has a price; it is known before the application is made."""
    world.prices = request.param
    return world.prices is not NO_PRICES


async def test_models_show_their_price_where_they_have_one(priced, visit, secrets):
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    text = await browser.read("/console/models")
    assert ("<dt>Price</dt>" in text, "2.50 USD prompt, 0.075 cached, 10.00 completion" in text) == (
        priced,
        priced,
    )


async def test_pages_count_as_calls_of_the_key(world, secrets):
    """A session is no way round what the key may do in a minute."""
    world.tiers = Tiers.model_validate({"standard": {"calls_per_minute": 3}})
    async with world.http() as http:
        await Visitor(http).sign_in(secrets["acct_one"])  # Which reads a page.
        statuses = [(await http.get(path)).status_code for path in ("/console", "/console/files", "/console/keys")]
    assert statuses == [200, 200, 429]
