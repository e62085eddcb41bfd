"""The console of a running service, in a real browser: behind the front, with a real model, by any ingress replica."""

import asyncio
import json

import pytest

from tests.contract.http.console.browser import browse
from tests.contract.http.console.test_browser import OPERATOR_PAGES, PAGES, sign_in
from tests.service import Service

pytestmark = [pytest.mark.cluster, pytest.mark.exhaustive, pytest.mark.timeout(1200)]


async def test_a_model_answers_in_the_playground_and_a_batch_ends(service: Service, tmp_path) -> None:
    # OPERATOR_PAGES has this account's page.
    _, secret = await service.issue(account="acct_one", tier="standard", retention="stored")
    _, admin = await service.issue(account="ops", tier="standard", is_admin=True)
    async with browse(service.url) as browsing:
        page = browsing.page
        await sign_in(browsing, secret)
        await browsing.open("/console/playground")
        model = await page.get_by_label("Model").input_value()
        await page.get_by_label("Max tokens").fill("16")
        for kind in ("chat", "responses"):
            await page.get_by_label("Interface").select_option(kind)
            await page.get_by_role("button", name="New chat").click()
            await page.get_by_label("Message").fill("Say this is a test.")
            await page.get_by_role("button", name="Send").click()
            await page.get_by_text("finish reason").wait_for(timeout=90_000)
            assert await page.locator(".turn.assistant .text").last.text_content()
        body = {"model": model, "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}
        lines = [
            {"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions", "body": body}
            for number in range(10)
        ]
        jsonl = tmp_path / "in.jsonl"
        jsonl.write_text("\n".join(map(json.dumps, lines)))
        await browsing.open("/console/batches/new")
        await page.get_by_label("Input file").set_input_files(jsonl)
        await page.get_by_role("button", name="Upload and check").click()
        await page.get_by_role("button", name="Start the batch").click()
        await page.locator("#batch[data-status=completed]").wait_for(timeout=90_000)
        for path in PAGES:
            await browsing.open(f"/console/{path}".rstrip("/"))
            await browsing.look("real-" + (path.replace("/", "-") or "overview"))
        await browsing.open("/console/responses")
        await page.get_by_role("link", name="Say this is a test.").first.wait_for()
        await browsing.open("/console/keys")
        await page.get_by_role("button", name="Rotate").first.click()
        await page.get_by_role("button", name="Create a new secret").click()
        rotated = await page.locator("#secret").text_content()
        await asyncio.sleep(1.5)  # For so long a replica may take the old secret.
        await browsing.open("/console/keys")
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_label("API key").wait_for()
        await sign_in(browsing, rotated)
        await page.get_by_role("button", name="Sign out").click()
        await sign_in(browsing, admin)
        for path in OPERATOR_PAGES:
            await browsing.open(f"/console/{path}")
            await browsing.look("real-" + path.replace("/", "-"))
        await browsing.open("/console/operator/cluster")
        await page.get_by_role("row", name="ingress").wait_for()
        assert not browsing.faults
