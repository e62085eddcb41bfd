"""Account holders manage the keys of their account, within what their own key may; nothing of another account."""

import html
import re
import time
from dataclasses import replace

import pytest

from deployments.state.audit_log import AuditFilter
from deployments.state.identity.keys import NewKey
from deployments.state.identity.tiers import Tiers

KEYS = "/console/keys"
DAY_S = 86_400


@pytest.fixture
def own(world, secrets):
    return world.gatekeeper.principals[secrets["acct_one"]]


@pytest.fixture
def bind_own(world, secrets, own):
    """Changes the key of the session."""

    def change(**values):
        world.gatekeeper.principals[secrets["acct_one"]] = replace(own, **values)

    return change


async def key_named(key_store, name, account="acct_one"):
    (found,) = [key for key in await key_store.list_keys(account, include_revoked=True) if key.name == name]
    return found


async def test_a_new_key_has_what_was_asked_for_and_shows_its_secret_once(world, holder, own, key_store):
    answer = await holder.send(
        KEYS,
        name="for tests",
        requests_per_minute="5",
        operations="chat",
        models="demo/*",
        expires_at="2099-01-01T00:00",
    )
    assert answer.status_code == 200
    key = await key_named(key_store, "for tests")
    secret = re.search(r"sk-manta-[\w-]{43}", answer.text)[0]
    _, stored = await key_store.find(world_digest(secret))
    assert stored.key_id == key.key_id
    assert secret not in await holder.read(KEYS)
    assert (key.account, key.organization, key.tier) == (own.account, own.organization, own.tier)
    assert (key.requests_per_minute, key.tokens_per_minute) == (5, own.tokens_per_minute)
    assert (key.operations, key.models, key.retention) == (("chat",), ("demo/*",), own.retention)
    assert key.expires_at == 4070908800
    (entry, *_), _ = await world.audit.page(AuditFilter(targets=(key.key_id,)), 10)
    assert (entry.event, entry.actor.kind, entry.actor.id) == ("api_key.created", "session", own.key_id)


def world_digest(secret):
    from deployments.state.identity.keys import digest_of

    return digest_of(secret, b"pepper" * 6)


async def test_a_form_names_no_account_tier_and_admin_of_its_own(holder, own, key_store):
    sent = {"account": "acct_two", "organization": "x", "tier": "enterprise", "is_admin": "on", "regions": "asia"}
    assert (await holder.send(KEYS, name="n", **sent)).status_code == 200
    key = await key_named(key_store, "n")
    assert (key.organization, key.tier, key.is_admin, key.regions) == (own.organization, own.tier, False, None)
    assert [key.name for key in await key_store.list_keys("acct_two")] == ["key of acct_two"]


@pytest.mark.parametrize(
    ("holding", "more", "words"),
    [
        ({}, {"requests_per_minute": "1001"}, "more requests per minute"),
        ({}, {"tokens_per_minute": "1000001"}, "more tokens per minute"),
        ({"retention": "strict"}, {"retention": "ephemeral"}, "stores more than its own"),
        ({"expires_at": 4e9}, {"expires_at": "2099-01-01T00:00"}, "expires"),
    ],
    ids=["requests", "tokens", "retention", "expiry"],
)
async def test_a_key_with_more_than_the_holder_has_is_refused(holder, bind_own, key_store, holding, more, words):
    bind_own(**holding)
    made = await holder.send(KEYS, name="small", retention="strict")
    assert made.status_code == 200
    small = await key_named(key_store, "small")
    for path in (KEYS, f"{KEYS}/{small.key_id}"):
        answer = await holder.send(path, name="large", **{"retention": "strict", **more})
        assert answer.status_code == 403
        assert words in html.unescape(answer.text)
    assert {key.name for key in await key_store.list_keys("acct_one")} == {"small", "key of acct_one"}


@pytest.fixture
def few(world):
    """At most two keys; it is known before the application is made."""
    world.tiers = Tiers.model_validate({"standard": {"keys": 2}})


async def test_an_account_has_as_many_keys_as_its_tier_allows(few, holder, key_store, monkeypatch):
    assert (await holder.send(KEYS, name="second")).status_code == 200
    refused = await holder.send(KEYS, name="third")
    assert refused.status_code == 400
    assert "2 keys, which is the limit" in refused.text
    await holder.send(f"{KEYS}/{(await key_named(key_store, 'second')).key_id}/revoke")
    assert "wait a minute" in (await holder.send(KEYS, name="third")).text
    monkeypatch.setattr(key_store, "_clock", lambda: time.time() + 61)
    assert (await holder.send(KEYS, name="third")).status_code == 200


async def test_a_key_is_changed_and_an_empty_field_is_that_of_the_holder(holder, own, key_store):
    key, _ = await key_store.create(
        NewKey(account="acct_one", tier="standard", requests_per_minute=7, operations=("chat",), expires_at=4e9)
    )
    path = f"{KEYS}/{key.key_id}"
    page = await holder.read(path)
    assert 'value="7"' in page
    assert re.search(r'value="chat" checked', page)
    changed = await holder.send(path, name="new", tokens_per_minute="9", retention="strict")
    assert changed.headers["location"] == path + "?done=changed"
    key = await key_store.show(key.key_id)
    assert (key.name, key.requests_per_minute, key.tokens_per_minute) == ("new", own.requests_per_minute, 9)
    assert (key.operations, key.retention, key.expires_at) == (None, "strict", None)


async def test_a_key_changes_of_itself_the_name_alone(holder, own, key_store):
    before = await key_store.show(own.key_id)
    answer = await holder.send(f"{KEYS}/{own.key_id}", name="mine", requests_per_minute="1", operations="chat")
    assert answer.status_code == 303
    assert await key_store.show(own.key_id) == replace(before, name="mine")


async def test_the_old_secret_lasts_for_a_day_unless_another_time_is_chosen(world, holder, key_store):
    await holder.send(KEYS, name="other")
    key = await key_named(key_store, "other")
    answer = await holder.send(f"{KEYS}/{key.key_id}/rotate")
    assert "after a day" in answer.text
    assert (await key_store.show(key.key_id)).previous_expires_at == world.clock() + DAY_S
    await holder.send(f"{KEYS}/{key.key_id}/rotate", overlap="0")
    assert (await key_store.show(key.key_id)).previous_expires_at is None
    assert (await holder.send(f"{KEYS}/{key.key_id}/rotate", overlap="12")).status_code == 400


async def test_the_last_key_that_manages_keys_cannot_revoke_itself(holder, own, key_store):
    await holder.send(KEYS, name="limited", operations="chat")
    path = f"{KEYS}/{own.key_id}/revoke"
    refused = await holder.send(path)
    assert refused.status_code == 409
    assert "only key of the account" in refused.text
    await holder.send(KEYS, name="full")
    ended = await holder.send(path)
    assert ended.headers["location"] == "/console/sign-in"
    assert "manta_session" not in holder.http.cookies
    assert (await key_store.show(own.key_id)).revoked_at is not None


async def test_a_key_that_may_do_more_is_shown_and_not_managed(holder, key_store):
    strong, _ = await key_store.create(
        NewKey(account="acct_one", name="strong", tier="enterprise", requests_per_minute=10**6, tokens_per_minute=10**9)
    )
    admin, _ = await key_store.create(NewKey(account="acct_one", name="operator", is_admin=True))
    page = await holder.read(KEYS)
    for key in (strong, admin):
        path = f"{KEYS}/{key.key_id}"
        assert f'href="{path}"' in page
        assert path + "/revoke" not in page
        assert "may do more" in await holder.read(path)
        for form in (path, path + "/rotate", path + "/revoke"):
            assert (await holder.send(form, name="x")).status_code == 403
        assert await key_store.show(key.key_id) == key


async def test_a_key_without_the_scope_for_usage_finds_no_other_key(holder, own, bind_own, key_store):
    other, _ = await key_store.create(NewKey(account="acct_one", name="other"))
    bind_own(operations=frozenset({"chat"}))
    await holder.read(f"{KEYS}/{own.key_id}")
    await holder.read(f"{KEYS}/{other.key_id}", 404)
    assert (await holder.send(f"{KEYS}/{other.key_id}/revoke")).status_code == 404
