"""The most used actions of the console, by keyboard alone: Tab reaches each control, and its focus can be seen."""

import pytest

from tests.contract.http.conftest import serve
from tests.contract.http.console.browser import browse

MAX_TABS = 120
HAS_RING = "one => getComputedStyle(one).outlineStyle !== 'none' && one.getBoundingClientRect().width > 0"


async def reach(page, target):
    """Press Tab until the target has the focus."""
    for _ in range(MAX_TABS):
        if await target.evaluate("one => one === document.activeElement"):
            assert await target.evaluate(HAS_RING)
            return target
        await page.keyboard.press("Tab")
    raise AssertionError(f"{target} was not reached")


async def press(page, target, key="Enter"):
    await reach(page, target)
    await page.keyboard.press(key)


@pytest.fixture
async def site(world, console, secrets):
    async with serve(world.app()) as address:
        yield address


async def test_the_most_used_actions_need_no_mouse(site, secrets):
    async with browse(site) as browsing:
        page = browsing.page
        button, link = (lambda name: page.get_by_role("button", name=name, exact=True)), page.get_by_role

        # Signing in, the way past the navigation, and a page by its link.
        await browsing.open("/console/sign-in")
        await reach(page, page.get_by_label("API key"))
        await page.keyboard.type(secrets["ops"])
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="Overview").wait_for()
        await press(page, link("link", name="Skip to the content"))
        await press(page, link("link", name="Files"))
        await page.get_by_role("heading", name="Files").wait_for()

        # An upload, and a deletion that asks: Escape says no, and leads back to the button.
        await page.get_by_label("File", exact=True).set_input_files(
            {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"n"}
        )
        await press(page, button("Upload"))
        await page.get_by_text("The file was stored.").wait_for()
        await press(page, button("Delete"))
        await page.get_by_role("dialog").wait_for()
        await page.keyboard.press("Escape")
        await page.get_by_role("dialog").wait_for(state="hidden")
        assert await button("Delete").evaluate("one => one === document.activeElement")
        await page.keyboard.press("Enter")
        await press(page, button("Delete the file"))
        await page.get_by_text("The file was deleted.").wait_for()

        # A chat, its code in another language, and a new conversation.
        await press(page, link("link", name="Playground"))
        await page.get_by_label("Message").wait_for()
        await reach(page, page.get_by_label("Message"))
        await page.keyboard.type("Hello")
        await page.keyboard.press("Enter")
        await page.get_by_text("finish reason").wait_for()
        await press(page, button("View code"))
        await press(page, page.get_by_role("tab", name="curl"), "ArrowRight")
        await page.get_by_role("tab", name="Python", selected=True).wait_for()
        await page.keyboard.press("Escape")
        await press(page, button("New chat"))
        assert await page.get_by_label("Message").evaluate("one => one === document.activeElement")

        # The theme, and the end.
        await press(page, button("Dark"))
        await page.locator("html[data-theme=dark]").wait_for()
        await press(page, button("Sign out"))
        await page.get_by_label("API key").wait_for()
        assert not browsing.faults
