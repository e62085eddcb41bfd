"""Signing in and out of the console: cookies, forged forms, brute force, keys that end."""

import asyncio
from collections import Counter

import httpx2
import pytest

from deployments.state.audit_log import AuditFilter
from deployments.state.console_sessions import FAILURES_S, FORGOTTEN_S, LINK_S, SESSION_S, ConsoleSessions
from deployments.state.identity.keys import NewKey
from serve_app.console.session import MAX_ALL_FAILURES, MAX_FAILURES
from tests.contract.http.conftest import principal
from tests.contract.http.console.conftest import FORM, SITE

ADDRESS = "127.0.0.1"


async def test_without_a_session_every_page_leads_to_the_form(visit):
    browser = visit()
    for path in ("/console/models", "/console/batches/new", "/console/operator/keys"):
        answer = await browser.http.get(path)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/console/sign-in?next=")
    assert "API key" in await browser.read("/console/sign-in")


async def test_a_session_has_a_strict_cookie_and_none_of_the_key(visit, secrets):
    browser = visit()
    answer = await browser.sign_in(secrets["acct_one"])
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/console" in cookie
    assert "secure" not in cookie.replace("samesite", "")
    assert secrets["acct_one"].lower() not in cookie
    assert "acct_one" in await browser.read("/console/models")


async def test_behind_tls_the_cookie_is_secure(visit, secrets):
    browser = visit(**{"x-forwarded-proto": "https"})
    answer = await browser.http.post("/console/sign-in", data={"key": secrets["acct_one"]}, headers=FORM)
    assert "; secure" in answer.headers["set-cookie"].lower()


async def test_every_page_has_a_strict_policy(visit, secrets):
    browser = visit()
    await browser.sign_in(secrets["ops"])
    for path in ("/console/sign-in?link=x", "/console/models", "/console/nowhere", "/console/operator/keys"):
        answer = await browser.http.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "<script>" not in answer.text
        assert "style=" not in answer.text


async def test_signing_out_ends_the_session_for_every_copy_of_its_cookie(visit, secrets):
    browser, copy = visit(), visit()
    await browser.sign_in(secrets["acct_one"])
    copy.http.cookies.update(browser.http.cookies)
    assert (await copy.http.get("/console/models")).status_code == 200
    assert (await browser.send("/console/sign-out")).status_code == 303
    assert (await copy.http.get("/console/models")).status_code == 303


async def test_a_revoked_key_ends_its_session(world, visit, secrets):
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    del world.gatekeeper.principals[secrets["acct_one"]]
    world.gatekeeper._identified.clear()
    assert (await browser.http.get("/console/models")).status_code == 303


async def test_changed_scopes_hold_at_once(world, visit, secrets):
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    await browser.read("/console/files")
    world.gatekeeper.principals[secrets["acct_one"]] = principal(account="acct_one", operations=frozenset({"chat"}))
    assert "does not have permission" in await browser.read("/console/files", 403)


def bind(world, secret, *regions):
    world.gatekeeper.principals[secret] = principal(account="acct_one", retention="stored", regions=regions)


async def test_a_key_that_is_bound_to_another_region_has_no_session_here(world, buckets, visit, secrets):
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    bind(world, secrets["acct_one"], "asia")
    assert "region" in await browser.read("/console/models", 403)
    assert (await visit().sign_in(secrets["acct_one"])).status_code == 403
    assert "API key" in await browser.read("/console/sign-in")
    assert (await browser.sign_in(secrets["acct_two"])).status_code == 303


async def test_what_a_bound_key_uploads_is_in_the_bucket_of_its_region_alone(world, buckets, visit, secrets):
    near, far = buckets
    bind(world, secrets["acct_one"], "us")
    browser = visit()
    await asyncio.create_task(browser.sign_in(secrets["acct_one"]))  # It marks the task that it runs in.
    assert (await browser.upload("/console/upload/file", "a.txt", b"a", purpose="user_data")).status_code == 303
    assert (len(near.modified_at), far.modified_at) == (1, {})


async def test_a_session_lasts_twelve_hours_after_its_last_use(world, visit, secrets):
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    for _ in range(3):
        world.clock.advance(SESSION_S - 60)
        await browser.read("/console/models")
    world.clock.advance(SESSION_S + 1)
    assert (await browser.http.get("/console/models")).status_code == 303
    assert await world.console.sweep() == 1


@pytest.mark.parametrize(
    "headers",
    [{}, {"origin": "http://evil.test"}, {"origin": "null"}, {"origin": SITE, "sec-fetch-site": "cross-site"}],
    ids=["no origin", "another origin", "no named origin", "another site"],
)
async def test_a_form_of_another_site_is_refused(visit, secrets, headers):
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    answer = await browser.http.post("/console/sign-out", data={"csrf": browser.csrf}, headers=headers)
    assert answer.status_code == 403
    answer = await visit().http.post("/console/sign-in", data={"key": secrets["acct_one"]}, headers=headers)
    assert answer.status_code == 403
    await browser.read("/console/models")


async def test_a_form_without_the_token_of_its_session_is_refused(visit, secrets):
    browser, other = visit(), visit()
    await browser.sign_in(secrets["acct_one"])
    await other.sign_in(secrets["acct_two"])
    for token in ("", "0" * 64, other.csrf, "\ud800"):
        answer = await browser.http.post(
            "/console/keys",
            content=f"csrf={token!r}&overlap=0",
            headers={**FORM, "content-type": "application/x-www-form-urlencoded"},
        )
        assert answer.status_code == 403, token
    answer = await browser.http.post("/console/upload/file", files={"file": ("a.txt", b"a")}, headers=FORM)
    assert answer.status_code == 403


async def test_brute_force_from_one_address_is_limited_and_the_answer_tells_nothing(world, visit, secrets):
    browser = visit()
    answers = [await browser.sign_in(secret) for secret in ("", "x", "sk-manta-" + "a" * 43, "é" * 400)]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.text for answer in answers}) == 1
    many = await asyncio.gather(*(browser.sign_in(f"sk-manta-{number:043}") for number in range(MAX_FAILURES + 10)))
    assert sum(answer.status_code == 401 for answer in many) <= MAX_FAILURES - 4
    refused = await browser.sign_in(secrets["acct_one"])
    assert refused.status_code == 429
    world.clock.advance(int(refused.headers["retry-after"]))
    assert (await browser.sign_in(secrets["acct_one"])).status_code == 303


async def test_tries_while_it_is_limited_do_not_prolong_that(world, visit, secrets):
    browser = visit()
    await asyncio.gather(*(browser.sign_in("none") for _ in range(MAX_FAILURES)))
    for _ in range(4):
        world.clock.advance(60)
        assert {(await browser.sign_in("none")).status_code for _ in range(5)} == {429}
    world.clock.advance(120)
    assert (await browser.sign_in(secrets["acct_one"])).status_code == 303


@pytest.mark.parametrize("second", [0, 30, 59])
async def test_a_failure_counts_for_five_minutes_whenever_in_a_minute_it_was(world, console, second):
    world.clock.now = 60.0 * 30_000_000 + second
    await console.note_failure(ADDRESS)
    world.clock.advance(FAILURES_S - 1)
    await console.sweep()
    assert await console.note_failure(ADDRESS, 0) == (1, 1)
    world.clock.advance(FORGOTTEN_S - FAILURES_S + 1)
    assert await console.note_failure(ADDRESS, 0) == (0, 0)


async def test_signing_in_and_out_is_in_the_audit_log(world, visit, secrets):
    browser = visit()
    await browser.sign_in("sk-manta-" + "a" * 43)
    await browser.sign_in(secrets["acct_one"])
    await browser.send("/console/sign-out")
    await asyncio.gather(*(browser.sign_in("none") for _ in range(MAX_FAILURES + 10)))
    operator = world.client(secrets["ops"])
    events = ["login.succeeded", "logout.succeeded", "login.failed"]
    shown = await operator.get(
        "/organization/audit_logs",
        cast_to=object,
        options={"params": {"event_types": events, "limit": 100}},
    )
    found = Counter(one["type"] for one in shown["data"])
    assert (found["login.succeeded"], found["logout.succeeded"]) == (1, 1)
    assert 1 < found["login.failed"] <= MAX_FAILURES  # More are refused before a key is looked at.
    for one in shown["data"]:
        session = one["actor"]["session"]
        assert session["ip_address"] == ADDRESS
        if one["type"] == "login.failed":
            assert (one["login.failed"], session["user"]["id"]) == (
                {"id": ADDRESS, "error_code": "invalid_api_key"},
                ADDRESS,
            )
        else:
            assert (one["project"]["id"], session["user"]["id"]) == ("acct_one", one[one["type"]]["id"])
    assert "sk-manta" not in repr(shown)


async def test_refused_links_fill_no_audit_log(world, console):
    async with local(world, "http://localhost:8000") as client:
        for _ in range(MAX_FAILURES * 2):
            answer = await client.post(
                "/console/sign-in/link", data={"link": "none"}, headers={"origin": "http://localhost:8000"}
            )
            assert answer.status_code == 401
    log, _ = await world.audit.page(AuditFilter(events=("login.failed",)), 100)
    assert [entry.details["error_code"] for entry in log] == ["invalid_link"] * MAX_FAILURES


async def test_the_eleventh_failure_from_an_address_is_refused(visit):
    browser = visit()
    assert [(await browser.sign_in("none")).status_code for _ in range(11)] == [401] * 10 + [429]


async def test_signing_in_with_good_keys_is_not_limited(visit, secrets):
    browser = visit()
    for _ in range(MAX_FAILURES * 2):
        assert (await browser.sign_in(secrets["acct_one"])).status_code == 303


async def test_failures_of_all_addresses_together_are_limited(console, visit, secrets):
    await console.note_failure("192.0.2.1", MAX_ALL_FAILURES - 1)
    assert (await visit().sign_in(secrets["acct_one"])).status_code == 303
    await console.note_failure("192.0.2.1")
    assert (await visit().sign_in(secrets["acct_one"])).status_code == 429


async def test_a_one_time_link_signs_in_once(world, console, key_store, visit, secrets):
    key = next(key for key in await key_store.list_keys("acct_one"))
    token = await console.create_link(key.key_id)
    browser = local_visitor(world)
    assert "one-time link" in await browser.read(f"/console/sign-in?link={token}")
    for place in ("http://localhost:8000", "http://127.0.0.1:8000", "http://[::1]:8000"):
        async with local(world, place) as client:
            answer = await client.post("/console/sign-in/link", data={"link": token}, headers={"origin": place})
            assert answer.status_code == (303 if place.startswith("http://localhost") else 401)
    assert "set-cookie" not in answer.headers


def local(world, place, address="127.0.0.1"):
    transport = httpx2.ASGITransport(app=world.app(), client=(address, 5000))
    return httpx2.AsyncClient(transport=transport, base_url=place)


def local_visitor(world):
    from tests.contract.http.console.conftest import Visitor

    return Visitor(local(world, "http://localhost:8000"))


@pytest.mark.parametrize(
    ("place", "address"),
    [("http://manta.test", "127.0.0.1"), ("http://localhost:8000", "192.0.2.7"), ("http://10.0.0.5", "10.0.0.5")],
)
async def test_a_link_works_on_this_machine_only(world, console, key_store, secrets, place, address):
    key = next(key for key in await key_store.list_keys("acct_one"))
    token = await console.create_link(key.key_id)
    async with local(world, place, address) as client:
        answer = await client.post("/console/sign-in/link", data={"link": token}, headers={"origin": place})
        assert answer.status_code == 401
    async with local(world, "http://localhost:8000") as client:
        headers = {"origin": "http://localhost:8000"}
        assert (await client.post("/console/sign-in/link", data={"link": token}, headers=headers)).status_code == 303


async def test_a_link_ends_after_a_quarter_of_an_hour_and_with_its_key(world, console, key_store, secrets):
    key = next(key for key in await key_store.list_keys("acct_one"))
    old = await console.create_link(key.key_id)
    world.clock.advance(LINK_S + 1)
    assert await console.use_link(old) is None
    await key_store.revoke(key.key_id)
    assert await console.create_link(key.key_id) is None


async def test_sessions_are_in_the_database_so_that_every_replica_knows_them(world, visit, secrets):
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    world.console = ConsoleSessions(world.keys._database, world.clock)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=world.app()), base_url=SITE, cookies=browser.http.cookies
    ) as other:
        assert (await other.get("/console/models")).status_code == 200


async def test_the_place_after_signing_in_is_one_of_the_console(visit, secrets):
    for place, wanted in (
        ("/console/batches", "/console/batches"),
        ("//evil.test", "/console"),
        ("https://evil.test/console/", "/console"),
        ("/console/../v1", "/console/../v1"),
        ("/console/\r\nx: y", "/console"),
    ):
        data = {"key": secrets["acct_one"], "next": place}
        answer = await visit().http.post("/console/sign-in", data=data, headers=FORM)
        assert answer.headers["location"] == wanted, place


async def test_a_new_key_has_a_session_of_its_own(key_store, visit, secrets):
    await key_store.create(NewKey(account="acct_one"))
    assert (await visit().sign_in(secrets["acct_one"])).status_code == 303
