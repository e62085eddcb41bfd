"""The console in a real browser: every page, with data, by its links and forms alone."""

import json
import re
import statistics
from dataclasses import replace
from time import time

import pytest

from deployments.state.identity.keys import NewKey
from deployments.state.usage.store import add_lines
from tests.contract.http.answers import MODEL
from tests.contract.http.conftest import serve
from tests.contract.http.console.browser import browse, fetch_axe
from tests.contract.http.console.test_accounts import record
from tests.twins.cluster import ClusterTwin
from tests.waiting import eventually

PAGES = (
    "",
    "usage",
    "requests",
    "models",
    "keys",
    "files",
    "batches",
    "batches/new",
    "vector-stores",
    "chats",
    "responses",
    "conversations",
    "webhooks",
    "playground",
)
OPERATOR_PAGES = (
    "operator",
    "operator/accounts",
    "operator/accounts/acct_one",
    "operator/keys",
    "operator/keys/new",
    "operator/cluster",
    "operator/batches",
    "operator/audit",
)
MAX_PAGE_BYTES = 150_000
MAX_FIRST_PAINT_MS = 500
FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


@pytest.fixture
def cluster(world):
    world.cluster = ClusterTwin()


@pytest.fixture
async def site(world, cluster, console, secrets, batching):
    async with serve(world.app()) as address:
        yield address


def line(number, **body):
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], **body}
    return json.dumps({"custom_id": f"line-{number}", "method": "POST", "url": "/v1/chat/completions", "body": asked})


async def sign_in(browsing, secret):
    await browsing.open("/console/sign-in")
    await browsing.look("sign-in")
    await browsing.page.get_by_label("API key").fill(secret)
    await browsing.page.get_by_role("button", name="Sign in").click()
    await browsing.page.get_by_role("button", name="Sign out").wait_for()


async def test_an_account_holder_uses_every_page(world, site, secrets, tmp_path):
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text("\n".join(line(number) for number in range(20)))
    bad.write_text("\n".join([line(1), "not JSON", line(1)]))
    async with browse(site) as browsing:
        page = browsing.page
        await sign_in(browsing, secrets["acct_one"])

        # A response that is stored, and the playground in both interfaces.
        await browsing.open("/console/playground")
        for number, kind in enumerate(("chat", "responses")):
            await page.get_by_label("Interface").select_option(kind)
            await page.get_by_label("Message").fill("Say hello")
            await page.get_by_role("button", name="Send").click()
            await page.get_by_text("finish reason").nth(number).wait_for()
        await browsing.look("playground")
        await browsing.open("/console/responses")
        await page.get_by_role("link", name="Say hello").first.click()
        await page.get_by_text("Hello there!").last.wait_for()
        await browsing.look("response")

        # A batch: refused with its lines, then uploaded and watched to its end.
        await browsing.open("/console/batches/new")
        await page.get_by_label("Input file").set_input_files(bad)
        await page.get_by_role("button", name="Upload and check").click()
        await page.get_by_text("2 of its lines cannot be run").wait_for()
        assert await page.locator("tbody tr").count() == 2
        await browsing.look("batch-refused")
        await page.get_by_label("Input file").set_input_files(good)
        await page.get_by_role("button", name="Upload and check").click()
        await page.get_by_text("good.jsonl is ready").wait_for()
        await page.get_by_role("button", name="Start the batch").click()
        await page.locator("#batch[data-status=completed]").wait_for()
        await page.get_by_text("Lines completed: 20 of 20").wait_for()
        await browsing.look("batch")
        async with page.expect_download() as download:
            await page.get_by_role("link", name="Download the output").click()
        assert (await (await download.value).path()).read_text().count("\n") == 20

        # A file, then every list.
        await browsing.open("/console/files")
        await page.get_by_label("File", exact=True).set_input_files(
            {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"n"}
        )
        await page.get_by_role("button", name="Upload").click()
        await page.get_by_text("The file was stored.").wait_for()
        for path in PAGES:
            await browsing.open(f"/console/{path}".rstrip("/"))
            await browsing.look(path.replace("/", "-") or "overview")
        await browsing.open("/console/files")
        await page.get_by_text("Delete", exact=True).first.click()
        await page.get_by_role("button", name="Delete the file").click()
        await page.get_by_text("The file was deleted.").wait_for()

        # The theme, the key, the end.
        await page.get_by_role("button", name="Dark").click()
        assert await page.locator("html").get_attribute("data-theme") == "dark"
        await browsing.open("/console/keys")
        await page.get_by_role("button", name="Rotate").first.click()
        await page.get_by_role("button", name="Create a new secret").click()
        secret = await page.locator("#secret").text_content()
        assert secret.startswith("sk-manta-")
        assert secret != secrets["acct_one"]
        world.gatekeeper.principals[secret] = world.gatekeeper.principals.pop(secrets["acct_one"])
        world.gatekeeper._identified.clear()
        await browsing.open("/console/keys")
        assert secret not in await page.content()
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_label("API key").wait_for()
        assert not browsing.faults


async def test_an_operator_uses_every_page(site, secrets):
    async with browse(site) as browsing:
        page = browsing.page
        await sign_in(browsing, secrets["ops"])
        for path in OPERATOR_PAGES:
            await browsing.open(f"/console/{path}".rstrip("/"))
            await browsing.look(path.replace("/", "-") or "overview")
        await browsing.open("/console/operator/keys")
        await page.get_by_role("link", name="Create a key").click()
        await page.get_by_label("Account", exact=True).fill("new-account")
        await page.get_by_label("Requests per minute").fill("30")
        await page.get_by_label("chat", exact=True).check()
        await page.get_by_role("button", name="Create the key").click()
        await page.get_by_text("Copy it now: it is not shown again.").wait_for()
        assert (await page.locator("#secret").text_content()).startswith("sk-manta-")
        await page.get_by_role("link", name="Limits and scopes of the key").click()
        await page.get_by_label("Tokens per minute").fill("500")
        await page.get_by_role("button", name="Save").click()
        await page.get_by_text("The key is changed.").wait_for()
        await browsing.look("operator-key")
        await browsing.open("/console/operator/keys")
        row = page.locator("tbody tr", has_text="new-account")
        await row.get_by_text("Revoke", exact=True).click()
        await row.get_by_role("button", name="Revoke the key").click()
        await page.get_by_text("The key is revoked.").wait_for()
        await browsing.open("/console/operator/keys")
        assert await page.locator("tbody tr", has_text="new-account").count() == 0
        assert not browsing.faults


@pytest.fixture
async def wide_rows(key_store, console):
    """Lines of a batch whose cells are as wide as can be, one answered and one refused."""
    key, _ = await key_store.create(NewKey(account="acct_two", name="nightly job of the research department"))
    largest = {"prompt_tokens": 1_048_576, "cached_tokens": 1_000_000, "completion_tokens": 131_072, "ttft_s": 12.34}
    answered = replace(
        record(
            "req_1", "research@university.example.com", key_id=key.key_id, model="lab/Assistant-3.1-405B-Instruct-FP8"
        ),
        at=time() - 59 * 60,
        service_tier="priority",
        total_s=754.2,
        input_cost=12 * 10**12,
        **largest,
    )
    refused = replace(
        answered,
        request_id="req_2",
        at=answered.at - 1,
        method="DELETE",
        route="/v1/vector_stores/{vector_store_id}/files/{file_id}",
        status=404,
        code="previous_response_not_found",
    )
    async with key_store._database.write() as connection:
        await add_lines(connection, key_store._database, "batch_1", enumerate([answered, refused]))


async def test_an_operator_sees_all_of_each_request_without_scrolling(site, secrets, wide_rows):
    async with browse(site) as browsing:
        page = browsing.page
        await sign_in(browsing, secrets["ops"])
        for width in (390, 1280, 1400, 1920):
            await page.set_viewport_size({"width": width, "height": 860})
            await browsing.open("/console/requests")
            table = page.get_by_role("region", name="Requests")
            await table.get_by_text("priority").first.wait_for()
            assert await table.evaluate("box => box.scrollWidth - box.clientWidth") <= 0, width
            assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width
        # On phones the title of each value is beside it.
        parts = page.locator("tbody tr").last.locator("[data-label]")
        labels = await parts.evaluate_all("parts => parts.map(part => part.dataset.label)")
        assert labels == [
            *("Time", "Status", "Code", "Account", "Key", "Path", "Model"),
            *("Prompt (cached)", "Completion", "Total", "TTFT, tokens/s", "Cost"),
        ]
        assert not browsing.faults


@pytest.mark.exhaustive
async def test_every_page_can_be_used_by_everyone(site, secrets, tmp_path):
    axe = fetch_axe(tmp_path)
    async with browse(site, bypass_csp=True) as browsing:
        await browsing.open("/console/sign-in")
        found = {"sign-in": await browsing.serious_findings(axe)}
        await sign_in(browsing, secrets["ops"])
        for path in (*PAGES, *OPERATOR_PAGES):
            await browsing.open(f"/console/{path}".rstrip("/"))
            found[path] = await browsing.serious_findings(axe)
            await browsing.page.emulate_media(color_scheme="dark")
            found[f"{path}, dark"] = await browsing.serious_findings(axe)
            await browsing.page.emulate_media(color_scheme="light")
    assert {path: findings for path, findings in found.items() if findings} == {}


async def test_pages_are_small(cluster, visit, secrets):
    visitor = visit()
    await visitor.sign_in(secrets["ops"])
    for path in (*PAGES, *OPERATOR_PAGES):
        page = await visitor.read(f"/console/{path}".rstrip("/"))
        parts = set(re.findall(r'(?:src|href)="(/console/static/[^"]+)"', page))
        assert len(parts) >= 4, path
        sizes = [len(page.encode()), *[len(await visitor.read(part)) for part in parts]]
        assert sum(sizes) < MAX_PAGE_BYTES, path


@pytest.mark.exhaustive
async def test_pages_are_small_and_quick(site, secrets):
    async with browse(site) as browsing:
        page = browsing.page
        await sign_in(browsing, secrets["ops"])
        sizes, paints = {}, {}
        for path in (*PAGES, *OPERATOR_PAGES):
            network = await page.context.new_cdp_session(page)
            await network.send("Network.enable")
            await network.send("Network.setCacheDisabled", {"cacheDisabled": True})
            received = []
            network.on(
                "Network.loadingFinished", lambda event, received=received: received.append(event["encodedDataLength"])
            )
            await browsing.open(f"/console/{path}".rstrip("/"))
            await page.wait_for_load_state("load")
            await eventually(lambda received=received: len(received) >= 4)
            sizes[path] = sum(received)
            await eventually(lambda: page.evaluate(FIRST_PAINT))
            paints[path] = await page.evaluate(FIRST_PAINT)
            await network.detach()
    assert max(sizes.values()) < MAX_PAGE_BYTES, sizes
    assert statistics.median(paints.values()) < MAX_FIRST_PAINT_MS, paints
