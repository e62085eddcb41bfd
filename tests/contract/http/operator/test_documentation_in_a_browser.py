"""The API reference and the guides in a real browser, under their content security policy."""

import json

import pytest

from tests.contract.http.answers import MODEL, SECRET
from tests.contract.http.conftest import serve
from tests.contract.http.console.browser import NARROW, browse, fetch_axe

CHAT = "#post_v1_chat_completions"
PAGES = ("/docs", "/docs/api/responses", "/docs/api/files", "/docs/guide", "/docs/guide/guides/options")


@pytest.fixture
async def site(world, file_store):
    async with serve(world.app()) as address:
        yield address


async def send(page, section, answer):
    await page.locator(f"{section} .try > summary").click()
    await page.locator(f"{section} [data-key]").fill(SECRET)
    await page.locator(f"{section} button.main").click()
    await page.locator(f"{section} [data-status]", has_text=answer).wait_for()
    return await page.locator(f"{section} [data-answer]").text_content()


async def test_a_route_is_tried_with_a_key(site):
    async with browse(site) as browsing:
        page = browsing.page
        await browsing.open("/docs/api/chat-completions")
        body = json.loads(await page.locator(f"{CHAT} [data-body]").input_value()) | {"model": MODEL}
        await page.locator(f"{CHAT} .try > summary").click()
        await page.locator(f"{CHAT} [data-body]").fill(json.dumps(body))
        await page.locator(f"{CHAT} .try > summary").click()
        answer = json.loads(await send(page, CHAT, "200 OK"))
        assert answer["choices"][0]["message"]["content"]
        await page.locator(f"{CHAT} [data-body]").fill(json.dumps({**body, "stream": True}))
        await page.locator(f"{CHAT} button.main").click()
        await page.locator(f"{CHAT} [data-answer]", has_text="data: [DONE]").wait_for()

        # The key is there on the next page, in this tab alone.
        await browsing.open("/docs/api/models")
        assert await page.locator("#get_v1_models [data-key]").input_value() == SECRET
        await page.locator("#get_v1_models_model .try > summary").click()
        await page.locator("#get_v1_models_model input[name=model]").fill("no/such")
        await page.locator("#get_v1_models_model button.main").click()
        await page.locator("#get_v1_models_model [data-status]", has_text="404").wait_for()
        assert [fault for fault in browsing.faults if "404" not in fault] == []


async def test_a_file_is_uploaded_with_the_form(site, tmp_path):
    (tmp_path / "notes.txt").write_text("A note.")
    async with browse(site) as browsing:
        page, upload = browsing.page, "#post_v1_files"
        await browsing.open("/docs/api/files")
        await page.locator(f"{upload} .try > summary").click()
        await page.locator(f"{upload} input[name=purpose]").fill("user_data")
        await page.locator(f"{upload} input[name=file]").set_input_files(tmp_path / "notes.txt")
        await page.locator(f"{upload} .try > summary").click()
        assert json.loads(await send(page, upload, "200 OK"))["filename"] == "notes.txt"
        assert browsing.faults == []


async def test_the_language_of_examples_is_kept_and_code_is_copied(site):
    async with browse(site, permissions=["clipboard-read", "clipboard-write"]) as browsing:
        page = browsing.page
        await browsing.open("/docs/api/chat-completions")
        await page.locator(CHAT).get_by_role("tab", name="Python").click()
        assert not await page.locator(f"{CHAT} [data-sample=curl]").is_visible()
        await page.locator(f"{CHAT} [data-sample=Python] [data-copy]").click()
        assert "client.chat.completions.create(" in await page.evaluate("navigator.clipboard.readText()")
        await browsing.open("/docs/api/files")
        assert await page.locator("#get_v1_files [data-sample=Python]").is_visible()
        assert browsing.faults == []


async def test_the_search_leads_to_a_route_and_to_a_guide(site):
    async with browse(site) as browsing:
        page = browsing.page
        for words, first, address in (
            ("upload file", "Upload a file", "/docs/api/files#post_v1_files"),
            ("service tiers", "Service tiers", "/docs/guide/guides/chat#service-tiers"),
        ):
            await browsing.open("/docs")
            await page.keyboard.press("/")
            await page.keyboard.type(words)
            assert (await page.locator(".docs-search a").first.text_content()).startswith(first)
            await page.keyboard.press("Enter")
            await page.wait_for_url(site + address)
        assert browsing.faults == []


async def test_pages_fit_a_phone_and_are_accessible(site, tmp_path):
    axe = fetch_axe(tmp_path)
    async with browse(site) as browsing:
        for path in PAGES:
            await browsing.open(path)
            await browsing.look(path.strip("/").replace("/", "-"))
            assert await browsing.serious_findings(axe) == [], path
            await browsing.page.set_viewport_size(NARROW)
            assert await browsing.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
            await browsing.page.locator(".docs-bar .menu").click()
            assert await browsing.page.locator("#side a").first.is_visible()
            await browsing.page.set_viewport_size({"width": 1400, "height": 900})
        assert browsing.faults == []
