import asyncio

import pytest
from pydantic import ValidationError
from sqlalchemy import text

from deployments.state.database.connection import Database
from deployments.state.identity.key_store import MAX_OVERLAP_S, KeyNotFound, KeyRefused, KeyStore
from deployments.state.identity.keys import KeyChange, NewKey, digest_of
from deployments.state.identity.tiers import Tiers
from tests.twins.gatekeeper import TestClock

PEPPER = b"pepper" * 8


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def store(database: Database, clock: TestClock) -> KeyStore:
    return KeyStore(database, PEPPER, clock=clock)


async def test_a_new_key_has_the_limits_of_its_tier(store: KeyStore) -> None:
    free, _ = await store.create(NewKey())
    standard, _ = await store.create(NewKey(tier="standard"))
    custom, _ = await store.create(NewKey(tier="enterprise", requests_per_minute=7, tokens_per_minute=10**12))
    limits = [(key.requests_per_minute, key.tokens_per_minute) for key in (free, standard, custom)]
    assert limits == [(10, 40_000), (60, 200_000), (7, 10**12)]
    assert await store.show(custom.key_id) == custom


async def test_a_secret_is_random_and_shown_once(store: KeyStore, database: Database) -> None:
    key, secret = await store.create(NewKey(name="mine"))
    _, other = await store.create(NewKey(name="mine"))
    assert secret != other
    assert secret.startswith("sk-manta-")
    assert len(secret) == len("sk-manta-") + 43
    assert key.display == f"{secret[:12]}...{secret[-4:]}"
    async with database.read() as connection:
        everything = repr((await connection.execute(text("SELECT * FROM api_keys"))).all())
    assert secret not in everything
    assert secret[9:-4] not in everything
    assert repr(digest_of(secret, PEPPER)) in everything


async def test_an_enterprise_key_without_limits_is_refused(store: KeyStore) -> None:
    with pytest.raises(KeyRefused, match="enterprise tier needs requests_per_minute"):
        await store.create(NewKey(tier="enterprise", tokens_per_minute=1))


async def test_no_more_keys_are_created_at_once_than_there_is_room_for(store: KeyStore, clock: TestClock) -> None:
    first, _ = await store.create(NewKey(account="acme"))
    await store.create(NewKey(account="other"))
    made = await asyncio.gather(
        *(store.create(NewKey(account="acme"), max_keys=3) for _ in range(5)), return_exceptions=True
    )
    refused = [one for one in made if isinstance(one, KeyRefused)]
    assert len(refused) == 3
    assert "3 keys, which is the limit" in str(refused[0])
    await store.revoke(first.key_id)
    with pytest.raises(KeyRefused, match="wait a minute"):  # Its requests of this minute still count.
        await store.create(NewKey(account="acme"), max_keys=3)
    clock.advance(61)
    await store.create(NewKey(account="acme"), max_keys=3)
    assert len(await store.list_keys("acme")) == 3


async def test_keys_are_found_by_their_ids(store: KeyStore) -> None:
    keys = [(await store.create(NewKey(account=account)))[0] for account in ("acme", "other", "acme")]
    await store.revoke(keys[0].key_id)
    found = await store.find_all([keys[0].key_id, keys[1].key_id, "key_none"])
    assert sorted(found) == sorted(key.key_id for key in keys[:2])
    assert found[keys[1].key_id] == keys[1]


async def test_a_key_that_is_over_before_it_begins_is_refused(store: KeyStore, clock: TestClock) -> None:
    with pytest.raises(KeyRefused, match="in the past"):
        await store.create(NewKey(expires_at=clock() - 1))


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"requests_per_minute": 0}, "requests_per_minute"),
        ({"requests_per_minute": 10**8}, "requests_per_minute"),
        ({"tokens_per_minute": -1}, "tokens_per_minute"),
        ({"tokens_per_minute": 10**13}, "tokens_per_minute"),
        ({"tier": "Gold!"}, "tier"),
        ({"tier": "x" * 17}, "tier"),
        ({"retention": "forever"}, "retention"),
        ({"operations": ["chat", "fly"]}, "operations"),
        ({"operations": []}, "operations"),
        ({"operations": "chat"}, "operations"),
        ({"models": [""]}, "models"),
        ({"models": ["a b"]}, "models"),
        ({"models": ["x"] * 101}, "models"),
        ({"models": ["x" * 257]}, "models"),
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "nul\0"}, "name"),
        ({"account": "../other"}, "account"),
        ({"account": "x" * 65}, "account"),
        ({"organization": "a\0"}, "organization"),
        ({"expires_at": float("nan")}, "expires_at"),
        ({"expires_at": 1e300}, "expires_at"),
        ({"is_admin": True, "models": ["x"]}, "key"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_values_out_of_bounds_are_refused_by_name(values: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        NewKey(**values)  # type: ignore[arg-type]
    assert [*refused.value.errors()[0]["loc"], "key"][0] == field


async def test_only_what_is_named_changes(store: KeyStore) -> None:
    key, _ = await store.create(NewKey(tier="standard", models=("a/*",), operations=("chat",)))
    changed = await store.limit(key.key_id, KeyChange(requests_per_minute=5))
    assert changed.requests_per_minute == 5
    assert (changed.tokens_per_minute, changed.models, changed.operations) == (200_000, ("a/*",), ("chat",))
    cleared = await store.limit(key.key_id, KeyChange(requests_per_minute=None, models=None))
    assert (cleared.requests_per_minute, cleared.models, cleared.operations) == (60, None, ("chat",))


async def test_a_change_of_nothing_is_refused(store: KeyStore) -> None:
    key, _ = await store.create(NewKey())
    with pytest.raises(KeyRefused, match="nothing to change"):
        await store.limit(key.key_id, KeyChange())


async def test_a_change_must_leave_a_valid_key(store: KeyStore, clock: TestClock) -> None:
    key, _ = await store.create(NewKey())
    admin, _ = await store.create(NewKey(is_admin=True))
    with pytest.raises(KeyRefused, match="enterprise"):
        await store.limit(key.key_id, KeyChange(tier="enterprise"))
    with pytest.raises(KeyRefused, match="in the past"):
        await store.limit(key.key_id, KeyChange(expires_at=clock() - 1))
    with pytest.raises(KeyRefused, match="admin key"):
        await store.limit(admin.key_id, KeyChange(operations=("chat",)))
    assert await store.show(key.key_id) == key


async def test_a_rotated_key_keeps_its_id_and_the_old_secret_for_the_overlap(store: KeyStore, clock: TestClock) -> None:
    key, old = await store.create(NewKey())
    rotated, new = await store.rotate(key.key_id, overlap_s=60)
    assert (rotated.key_id, rotated.rotated_at, rotated.previous_expires_at) == (key.key_id, clock(), clock() + 60)
    assert rotated.display.endswith(new[-4:])
    _, (stored,) = await store.changes_since(1)
    assert stored.digest == digest_of(new, PEPPER)
    assert stored.previous_digest == digest_of(old, PEPPER)
    await store.rotate(key.key_id)
    _, (stored,) = await store.changes_since(2)
    assert (stored.previous_digest, stored.previous_expires_at) == (None, None)


@pytest.mark.parametrize("overlap_s", [-1, MAX_OVERLAP_S + 1, float("nan"), float("inf")])
async def test_an_overlap_out_of_bounds_is_refused(store: KeyStore, overlap_s: float) -> None:
    key, _ = await store.create(NewKey())
    with pytest.raises(KeyRefused, match="overlap"):
        await store.rotate(key.key_id, overlap_s)


async def test_a_revoked_key_stays_revoked(store: KeyStore, clock: TestClock) -> None:
    key, _ = await store.create(NewKey())
    revoked = await store.revoke(key.key_id)
    assert revoked.status(clock()) == "revoked"
    revision, (stored,) = await store.changes_since(1)
    assert stored.principal is None
    clock.advance(10)
    assert await store.revoke(key.key_id) == revoked
    assert (await store.changes_since(revision)) == (revision, [])
    with pytest.raises(KeyRefused, match="revoked"):
        await store.rotate(key.key_id)
    with pytest.raises(KeyRefused, match="revoked"):
        await store.limit(key.key_id, KeyChange(requests_per_minute=1))


@pytest.mark.parametrize("key_id", ["key_unknown", "", "' OR 1=1 --", "x" * 10_000, "nul\0", "é\ud7ff"])
async def test_a_key_that_does_not_exist_is_not_found(store: KeyStore, key_id: str) -> None:
    await store.create(NewKey())
    for call in (store.show(key_id), store.revoke(key_id), store.rotate(key_id)):
        with pytest.raises(KeyNotFound):
            await call


async def test_keys_are_listed_newest_first_and_by_account(store: KeyStore, clock: TestClock) -> None:
    first, _ = await store.create(NewKey(account="one"))
    clock.advance(1)
    second, _ = await store.create(NewKey(account="two"))
    clock.advance(1)
    third, _ = await store.create(NewKey(account="one"))
    await store.revoke(first.key_id)
    assert [key.key_id for key in await store.list_keys()] == [third.key_id, second.key_id]
    assert [key.key_id for key in await store.list_keys("one", include_revoked=True)] == [third.key_id, first.key_id]
    assert await store.list_keys("' OR 1=1 --") == []


async def test_an_account_names_the_organization_unless_it_is_given(store: KeyStore) -> None:
    plain, _ = await store.create(NewKey(account="acme"))
    named, _ = await store.create(NewKey(account="acme", organization="Acme Inc."))
    assert (plain.organization, named.organization) == ("acme", "Acme Inc.")


async def test_expiry_ends_a_key(store: KeyStore, clock: TestClock) -> None:
    key, _ = await store.create(NewKey(expires_at=clock() + 10))
    assert key.status(clock()) == "active"
    assert key.status(clock() + 10) == "expired"


async def test_changes_are_numbered_without_gaps_when_made_at_once(store: KeyStore) -> None:
    await asyncio.gather(*(store.create(NewKey(name=str(index))) for index in range(20)))
    revision, changed = await store.changes_since(0)
    assert revision == 20
    assert [key.revision for key in changed] == list(range(1, 21))
    assert len({key.key_id for key in changed}) == 20


async def test_a_tier_that_lost_its_limits_leaves_the_least(database: Database) -> None:
    key, _ = await KeyStore(database, PEPPER).create(NewKey())
    bare = Tiers.model_validate({"free": {"requests_per_minute": None, "tokens_per_minute": None}})
    shown = await KeyStore(database, PEPPER, bare).show(key.key_id)
    assert (shown.requests_per_minute, shown.tokens_per_minute) == (1, 1)


async def test_a_key_outlives_its_tier_with_the_least(database: Database) -> None:
    research = {"research": {"requests_per_minute": 7, "tokens_per_minute": 700, "enqueued_tokens": None}}
    with_it = KeyStore(database, PEPPER, Tiers.model_validate(research))
    key, _ = await with_it.create(NewKey(tier="research"))
    assert (key.requests_per_minute, key.tokens_per_minute) == (7, 700)
    without = KeyStore(database, PEPPER)
    shown = await without.show(key.key_id)
    assert (shown.tier, shown.requests_per_minute, shown.tokens_per_minute) == ("research", 1, 1)
    renamed = await without.limit(key.key_id, KeyChange(name="still here", tokens_per_minute=9))
    assert (renamed.name, renamed.requests_per_minute, renamed.tokens_per_minute) == ("still here", 1, 9)
    with pytest.raises(KeyRefused, match="no tier 'research' in the configuration"):
        await without.limit(key.key_id, KeyChange(tier="research"))


async def test_an_unknown_tier_is_refused_with_those_that_there_are(store: KeyStore) -> None:
    with pytest.raises(KeyRefused, match=r"no tier 'gold'.*Its tiers are: free, standard, enterprise") as refused:
        await store.create(NewKey(tier="gold"))
    assert refused.value.param == "tier"
    key, _ = await store.create(NewKey())
    with pytest.raises(KeyRefused, match="no tier 'gold'"):
        await store.limit(key.key_id, KeyChange(tier="gold"))
    assert (await store.show(key.key_id)).tier == "free"


async def test_accounts_are_listed_by_name_with_their_keys_in_pages(store: KeyStore, clock: TestClock) -> None:
    began = clock()
    first, _ = await store.create(NewKey(account="beta_1"))
    clock.advance(5)
    await store.create(NewKey(account="beta_1"))
    await store.create(NewKey(account="alpha"))
    await store.create(NewKey(account="betaX1"))
    await store.revoke(first.key_id)
    named = {one.name: one for one in (await store.list_accounts(10))[0]}
    assert (named["beta_1"].num_keys, named["beta_1"].num_revoked, named["beta_1"].created_at) == (1, 1, began)
    assert named["alpha"].num_revoked == 0
    page, has_more = await store.list_accounts(2)
    rest, is_more = await store.list_accounts(2, after=page[-1].name)
    assert (len(page), has_more, len(rest), is_more) == (2, True, 1, False)
    assert {one.name for one in (*page, *rest)} == {"alpha", "betaX1", "beta_1"}
    assert [one.name for one in (await store.list_accounts(10, named="A_1"))[0]] == ["beta_1"]
    assert await store.list_accounts(10, named="\0%") == ([], False)
