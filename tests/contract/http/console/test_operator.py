"""The operator's pages: what they show of all accounts, what they change, and who reaches them."""

import asyncio
import re
from dataclasses import replace
from time import time

import pytest

from deployments.state.identity.keys import NewKey
from deployments.state.usage.store import UsageStore
from serve_app.console.pages.operator import cluster as home
from serve_app.console.routes import ROUTES
from serve_app.telemetry.series import PART_UP
from tests.contract.http.answers import MODEL
from tests.contract.http.conftest import serve
from tests.contract.http.console.browser import browse
from tests.contract.http.console.test_accounts import HOSTILE, fill, record
from tests.contract.http.console.test_browser import sign_in
from tests.twins.cluster import ClusterTwin

FORMS = [route.path for route in ROUTES if "POST" in (route.methods or ()) and "/operator" in route.path]
KEY = "/console/operator/keys"


@pytest.fixture
async def operator(visit, secrets):
    """A browser that has signed in with an admin key."""
    browser = visit()
    await browser.sign_in(secrets["ops"])
    return browser


@pytest.fixture
async def key(key_store):
    """A key of another account, with limits and scopes of its own."""
    new = NewKey(account="acct_two", name="nightly job", tier="standard", tokens_per_minute=900, models=["demo/*"])
    return (await key_store.create(new))[0]


def form(**changed):
    """The fields of that key's form as a browser sends them, some of them changed."""
    return {
        "name": "nightly job",
        "tier": "standard",
        "retention": "ephemeral",
        "requests_per_minute": "",
        "tokens_per_minute": "900",
        "models": "demo/*",
        "expires_at": "",
        **changed,
    }


@pytest.mark.parametrize("path", FORMS)
async def test_no_form_of_operators_takes_another_key(world, visit, secrets, key, key_store, path):
    browser = visit()
    await browser.sign_in(secrets["acct_two"])
    path = path.format(key_id=key.key_id, batch_id="batch_1")
    assert (await browser.send(path, overlap="0", account="acct_two", name="x")).status_code == 403
    assert await key_store.show(key.key_id) == key
    assert len(await key_store.list_keys("acct_two")) == 2
    holder = world.gatekeeper.principals[secrets["acct_two"]]
    world.gatekeeper.principals[secrets["acct_two"]] = replace(holder, operations=frozenset({"chat"}))
    assert (await browser.send(path, overlap="0", account="acct_two", name="x")).status_code == 403


@pytest.mark.parametrize("path", FORMS)
async def test_no_form_of_operators_works_from_another_site(operator, key, key_store, path):
    path = path.format(key_id=key.key_id, batch_id="batch_1")
    answer = await operator.http.post(path, data={"csrf": operator.csrf}, headers={"origin": "http://evil.test"})
    assert answer.status_code == 403
    answer = await operator.http.post(path, data={"csrf": "0" * 64}, headers={"origin": "http://manta.test"})
    assert answer.status_code == 403
    assert await key_store.show(key.key_id) == key


async def test_the_list_of_accounts_has_their_keys_and_usage(operator, key_store, key):
    await key_store.revoke(key.key_id)
    used = [record("req_1", "acct_two"), record("req_2", "acct_two", status=500, code="engine_died")]
    await UsageStore(key_store._database).add([*used, record("req_3", "acct_two", model=None, route="/v1/files")])
    text = await operator.read("/console/operator/accounts")
    (row,) = re.findall(r'<tr><th scope="row"><a href="/console/operator/accounts/acct_two">.*?</tr>', text, re.S)
    cells = [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td.*?</td>", row, re.S)]
    assert cells[:5] == ["1 + 1 revoked", "2", "1", "24", "–"]  # noqa: RUF001 - a dash, as pages have it.
    assert "ago" in cells[5] or cells[5] == "now"
    assert "acct_one" in text
    assert "acct_two" not in await operator.read("/console/operator/accounts?named=ONE")
    assert "No account has this name" in await operator.read("/console/operator/accounts?named=%25")


async def test_the_list_of_accounts_goes_on_after_a_page(operator, key_store, monkeypatch):
    monkeypatch.setattr("serve_app.console.pages.operator.accounts._PAGE_SIZE", 2)
    first = await operator.read("/console/operator/accounts?named=")
    assert ("acct_one" in first, "acct_two" in first, "accounts/ops" in first) == (True, True, False)
    (link,) = re.findall(r'href="([^"]+after=[^"]+)"', first)
    second = await operator.read(link.replace("&amp;", "&"))
    assert ("acct_two" in second, "accounts/ops" in second) == (False, True)


async def test_an_account_has_its_usage_keys_and_batches_and_nothing_of_another(
    world, visit, secrets, operator, key, monkeypatch
):
    ids = await fill(world, visit(), secrets, "acct_two")
    other = await fill(world, visit(), secrets, "acct_one")
    text = await operator.read("/console/operator/accounts/acct_two")
    for shown in (
        "nightly job",
        "key of acct_two",
        ids["batch_id"],
        MODEL,
        "200,000",
        "/console/requests?account=acct_two",
    ):
        assert shown in text, shown
    for hidden in (other["batch_id"], "acct_one"):
        assert hidden not in text
    monkeypatch.setattr("serve_app.console.pages.operator.accounts._KEYS_SHOWN", 1)
    text = await operator.read("/console/operator/accounts/acct_two")
    assert 'href="/console/operator/keys?account=acct_two">All 3 keys</a>' in text
    assert "There is no such account" in await operator.read("/console/operator/accounts/nobody", 404)


async def test_the_list_of_keys_goes_on_after_a_page(operator, key_store, key, monkeypatch):
    monkeypatch.setattr("serve_app.console.pages.operator.keys._PAGE_SIZE", 3)
    first = await operator.read(KEY)
    (link,) = re.findall(r'href="([^"]+after=[^"]+)"', first)
    second = await operator.read(link.replace("&amp;", "&"))
    shown = [set(re.findall(r"keys/(key_[0-9a-f]+)\"", text)) for text in (first, second)]
    assert [len(one) for one in shown] == [3, 1]
    assert shown[0] | shown[1] == {one.key_id for one in await key_store.list_keys()}


async def test_a_form_that_is_sent_as_it_was_changes_nothing(operator, key, key_store):
    refused = await operator.send(f"{KEY}/{key.key_id}", **form())
    assert (refused.status_code, "There is nothing to change" in refused.text) == (400, True)
    assert await key_store.show(key.key_id) == key


async def test_an_operator_changes_only_what_the_form_changes(world, operator, key, key_store):
    changed = form(
        name="weekly job",
        requests_per_minute="5",
        tokens_per_minute="",
        models="",
        operations="chat",
        retention="strict",
    )
    answer = await operator.send(f"{KEY}/{key.key_id}", **{**changed, "expires_at": "2033-05-18T03:33"})
    assert answer.headers["location"] == f"{KEY}/{key.key_id}?done=changed"
    now = await key_store.show(key.key_id)
    assert (now.name, now.requests_per_minute, now.tokens_per_minute) == ("weekly job", 5, 200_000)
    assert (now.operations, now.models, now.retention, now.expires_at) == (("chat",), None, "strict", 1_999_999_980)
    text = await operator.read(f"{KEY}/{key.key_id}?done=changed")
    assert "The key is changed." in text
    assert 'value="2033-05-18T03:33"' in text
    assert re.search(r'value="chat" checked', text)
    # The limit is that of the tier again, whatever it will be.
    world.clock.advance(1)
    await operator.send(f"{KEY}/{key.key_id}", **{**changed, "expires_at": "2033-05-18T03:33", "tier": "free"})
    assert (await key_store.show(key.key_id)).tokens_per_minute == 40_000
    log = await operator.read(f"/console/operator/audit?target={key.key_id}&action=api_key.updated")
    assert log.count("<tbody>") == 1
    newest = log.partition("<tbody>")[2].partition("</tr>")[0]
    assert ("free" in newest, "weekly job" in newest) == (True, False)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"tokens_per_minute": "0"}, "tokens_per_minute"),
        ({"tier": "none"}, "There is no tier"),
        ({"expires_at": "soon"}, "date"),
        ({"expires_at": "2001-01-01T00:00"}, "in the past"),
        ({"operations": "fly"}, "operations"),
    ],
)
async def test_a_change_that_is_refused_leaves_the_form_filled(operator, key, key_store, changed, reason):
    refused = await operator.send(f"{KEY}/{key.key_id}", **form(name="kept <b>", **changed))
    assert refused.status_code == 400
    assert reason in refused.text
    assert "kept &lt;b&gt;" in refused.text
    assert await key_store.show(key.key_id) == key


@pytest.fixture
def in_region(world):
    """A service of several regions; named before `visit`."""
    world.region = "us"


@pytest.mark.parametrize("bound", [{"expires_at": 1_700_003_600.0}, {"regions": ("us",)}], ids=["expiring", "regional"])
async def test_an_admin_key_gives_no_admin_key_more_than_it_has(in_region, world, visit, secrets, key_store, bound):
    lasting, _ = await key_store.create(NewKey(account="ops", name="lasting", is_admin=True))
    short = NewKey(account="ops", name="short", is_admin=True, expires_at=world.clock() + 3000, regions=["us"])
    within, _ = await key_store.create(short)
    world.gatekeeper.principals[secrets["ops"]] = replace(world.gatekeeper.principals[secrets["ops"]], **bound)
    browser = visit()
    await browser.sign_in(secrets["ops"])
    fields = {"name": "renamed", "tier": "free", "retention": "ephemeral", "regions": "us"}
    ends = "2023-11-14T23:03"  # As `short` ends.
    more = {"expires_at": ""} if "expires_at" in bound else {"expires_at": ends, "regions": ""}
    path = f"{KEY}/{within.key_id}"
    assert (await browser.send(path, **{**fields, **more})).status_code == 403
    assert await key_store.show(within.key_id) == within
    assert (await browser.send(path, **fields, expires_at=ends)).status_code == 303
    assert (await browser.send(path + "/rotate", overlap="0")).status_code == 200
    for action, sent in (("", {**fields, "expires_at": "", "regions": ""}), ("/rotate", {"overlap": "0"})):
        assert (await browser.send(f"{KEY}/{lasting.key_id}{action}", **sent)).status_code == 403
    assert await key_store.show(lasting.key_id) == lasting


@pytest.mark.parametrize(("overlap", "ends"), [("86400", "after a day"), ("0", "at once")])
async def test_the_old_secret_ends_when_the_form_says_so(world, operator, key, key_store, overlap, ends):
    page = await operator.read(f"{KEY}/{key.key_id}")
    assert '<option value="86400" selected>' in page
    rotated = await operator.send(f"{KEY}/{key.key_id}/rotate", overlap=overlap)
    assert f"The old secret ends {ends}" in rotated.text
    assert "sk-manta-" in rotated.text
    now = await key_store.show(key.key_id)
    assert now.previous_expires_at == (world.clock() + 86_400 if overlap != "0" else None)
    assert (await operator.send(f"{KEY}/{key.key_id}/rotate", overlap="5")).status_code == 400


async def test_a_key_that_is_revoked_can_no_longer_be_changed(operator, key):
    assert (await operator.send(f"{KEY}/{key.key_id}/revoke")).status_code == 303
    text = await operator.read(f"{KEY}/{key.key_id}?done=revoked")
    assert "The key is revoked." in text
    assert "Save" not in text
    refused = await operator.send(f"{KEY}/{key.key_id}", **form(name="other"))
    assert (refused.status_code, "is revoked" in refused.text) == (400, True)
    for path in (f"{KEY}/key_none", f"{KEY}/key_none/revoke"):
        await operator.read(path, 404) if path.endswith("none") else None
        assert (await operator.send(path, **form())).status_code == 404


async def test_the_form_of_a_new_key_shows_the_limits_of_the_tiers(operator):
    text = await operator.read(f"{KEY}/new?account=acct_two")
    assert 'value="acct_two"' in text
    assert "<option selected>ephemeral</option>" in text  # Not `stored`, which the operator's own key has.
    for shown in ("200,000", "set for each key", "Limits of the tiers"):
        assert shown in text
    refused = await operator.send(KEY, account="acct_two", name="kept", tokens_per_minute="0")
    assert (refused.status_code, 'value="kept"' in refused.text) == (400, True)


@pytest.fixture
def cluster(world):
    """A cluster with a model that starts and one that waits; named before `visit`."""
    world.cluster = ClusterTwin()
    return world.cluster


async def test_the_home_shows_what_is_wrong_who_is_busy_and_what_failed(cluster, operator, world, key_store):
    calm = await operator.read("/console/operator")
    assert "model:starting" in calm
    assert "Code interpreter is off: bubblewrap is not installed." in calm
    assert 'class="note bad"' not in calm
    world.metrics.add(PART_UP, ("database",), 0.0)
    cluster.seen["engines"][0]["waiting"] = 77.0
    failed = {"status": 503, "code": "overloaded"}
    await UsageStore(key_store._database).add(
        [
            record("req_1", "acct_one", prompt_tokens=70_000),
            *(record(f"req_{number}", "acct_two", **failed) for number in range(2, 5)),
        ]
    )
    text = await operator.read("/console/operator")
    for shown in ("The database does not answer.", "MantaPartAway", "77 requests are waiting", "70,003"):
        assert shown in text, shown
    assert re.search(r"code=overloaded&amp;model=.*?503.*?>3</td>", text, re.S)
    assert text.index("accounts/acct_one") < text.index("accounts/acct_two")


async def test_the_home_is_there_while_ray_does_not_answer(cluster, operator, monkeypatch):
    monkeypatch.setattr(home, "_LOOK_S", 0.01)
    monkeypatch.setattr(cluster, "look", asyncio.Event().wait)
    assert "Ray Serve has not answered" in await operator.read("/console/operator")


async def test_the_cluster_shows_states_and_how_busy_gpus_are(cluster, operator):
    text = await operator.read("/console/operator/cluster")
    for shown in ("scaled to zero", "starting", "ready", "0: 87 %, 1.1 GB of 4.3 GB", "bubblewrap is not installed"):
        assert shown in text, shown


async def test_batches_are_found_by_account_and_status(world, visit, secrets, operator):
    ids = {account: (await fill(world, visit(), secrets, account))["batch_id"] for account in ("acct_one", "acct_two")}
    path = "/console/operator/batches"
    assert (await operator.send(f"{path}/{ids['acct_one']}/pause")).headers["location"] == f"{path}/{ids['acct_one']}"
    for query, found in (
        ("", {"acct_one", "acct_two"}),
        ("?status=paused", {"acct_one"}),
        ("?status=validating", {"acct_two"}),
        ("?status=completed", set()),
        ("?account=acct_two", {"acct_two"}),
        ("?account=acct_two&status=paused", set()),
    ):
        text = await operator.read(path + query)
        assert {account for account, batch_id in ids.items() if f"{path}/{batch_id}" in text} == found, query


async def test_a_batch_of_any_account_is_shown_without_its_content(world, visit, secrets, operator):
    batch_id = (await fill(world, visit(), secrets, "acct_two"))["batch_id"]
    text = await operator.read(f"/console/operator/batches/{batch_id}")
    for shown in ("/console/operator/accounts/acct_two", "/v1/chat/completions", "Pause the batch", "Cancel the batch"):
        assert shown in text
    assert "acct_two-line" not in text
    assert "There is no such batch" in await operator.read("/console/operator/batches/batch_none", 404)


async def test_the_audit_log_is_filtered_and_leads_to_keys_and_accounts(operator, world, key, secrets):
    path = "/console/operator/audit"
    text = await operator.read(f"{path}?account=acct_two&action=api_key.created")
    assert f"{KEY}/{key.key_id}" in text
    assert "/console/operator/accounts/acct_two" in text
    assert "login.succeeded" not in text.partition("<tbody>")[2]
    assert "login.succeeded" in (await operator.read(f"{path}?account=ops")).partition("<tbody>")[2]
    assert "No entries match" in await operator.read(f"{path}?target=key_none")
    # The clock of the test stands in November 2023.
    assert (
        "api_key.created" in (await operator.read(f"{path}?since=2023-11-14&until=2023-11-14")).partition("<tbody>")[2]
    )
    for outside in ("since=2023-11-15", "until=2023-11-13"):
        assert "No entries match" in await operator.read(f"{path}?{outside}")
    await operator.read(f"{path}?since=yesterday", 400)
    await operator.read(f"{path}?since=2023-11-14&until=99999-01-01", 400)


@pytest.mark.parametrize("kind", list(HOSTILE))
async def test_a_hostile_name_is_text_for_operators_too(operator, key_store, kind):
    name = "".join(one for one in HOSTILE[kind][:100] if one.isprintable())
    hostile, _ = await key_store.create(NewKey(account="acct_two", name=name))
    codes = {"code": HOSTILE[kind][:64], "model": HOSTILE[kind][:200], "status": 400}
    await UsageStore(key_store._database).add([record("req_hostile", "acct_two", **codes)])
    for path in ("", "/keys", f"/keys/{hostile.key_id}", "/accounts", "/accounts/acct_two", "/audit"):
        text = await operator.read("/console/operator" + path)
        assert "<script>" not in text
        assert not re.search(r"<[^>]*onmouseover=\"alert", text)
        assert "\u202e" not in text


async def test_the_figures_of_the_home_are_those_of_today(operator, key_store):
    yesterday = replace(record("req_old", "acct_old"), at=time() - 86_400 * 2)
    await UsageStore(key_store._database).add([yesterday])
    text = await operator.read("/console/operator")
    assert "acct_old" not in text
    assert "No model has been called today" in text


REACHED = """
buttons => buttons.every(button => {
  button.scrollIntoView({ block: "center" });
  const box = button.getBoundingClientRect();
  const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return box.left >= 0 && box.right <= innerWidth && button.contains(top);
})
"""
"""Whether a pointer reaches each of the buttons without scrolling to the side."""


async def test_the_actions_of_rows_are_in_view_on_every_screen(world, visit, secrets, key_store):
    await fill(world, visit(), secrets, "acct_two")
    names = ("nightly job of the department of research", "a@b.example.com and some more words")
    for name in names:
        await key_store.create(NewKey(account="acct_two", name=name, tokens_per_minute=10**12, models=["demo/*"]))
    pages = {"keys": 2 * 6, "accounts/acct_two": 2 * 4 + 2, "batches": 2}
    async with serve(world.app()) as address, browse(address) as browsing:
        page = browsing.page
        await sign_in(browsing, secrets["ops"])
        for width in (390, 1280, 1400, 1920):
            await page.set_viewport_size({"width": width, "height": 860})
            for path, num_actions in pages.items():
                await browsing.open(f"/console/operator/{path}")
                actions = page.locator("td.actions > button")
                assert await actions.count() == num_actions, path
                assert await actions.evaluate_all(REACHED), f"{path} at {width}"
                assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} at {width}"
        assert not browsing.faults
