"""The playground in a real browser: conversations, errors, function calls, two models, and what the browser keeps."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import orjson
import pytest

from deployments.models.contract.errors import RequestRejected
from deployments.models.contract.events import Finished, ReasoningDelta, ToolArgumentsDelta, ToolCallStart
from deployments.models.price import PriceConfig, Prices
from deployments.operations import operations_of
from tests.contract.http.answers import MODEL, USAGE, answer, pieces, said
from tests.contract.http.conftest import serve
from tests.contract.http.console.browser import NARROW, WIDE, browse
from tests.contract.http.console.test_browser import sign_in
from tests.twins.engine import MemoryDirectory, Script, ScriptedEngine, model_card
from tests.waiting import eventually

SECOND = "demo/second"
FUNCTIONS = '[{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]'
CALL = [
    [ReasoningDelta("reasoning", 0, "I must look.")],
    [ToolCallStart("tool_call", 0, 0, "call_1", "weather"), ToolArgumentsDelta("tool_arguments", 0, 0, "{}")],
    [Finished("finished", 0, "tool_calls")],
]


@pytest.fixture
def models(world):
    """Two chat models, the first with everything and a price."""
    world.chat.card = model_card(MODEL, *operations_of("generate"), has_tools=True, has_reasoning=True, has_images=True)
    second = ScriptedEngine(model_card(SECOND, *operations_of("generate")), answer)
    world.directory = MemoryDirectory([world.chat, second])
    world.prices = Prices({MODEL: PriceConfig(input=1.0, output=2.0)})
    return world.chat, second


@pytest.fixture
def opened(world, models, console, secrets):
    """Opens the playground in a browser."""

    @asynccontextmanager
    async def open_playground(**options):
        async with serve(world.app()) as address, browse(address, **options) as browsing:
            await sign_in(browsing, secrets["acct_one"])
            await browsing.open("/console/playground")
            yield browsing
            assert not browsing.faults

    return open_playground


async def ask(page, text, *, answers=1):
    number = await page.locator(".turn.assistant").count()
    await page.get_by_label("Message").fill(text)
    await page.get_by_label("Message").press("Enter")
    await eventually(lambda: _count_is(page, number + answers))
    await page.get_by_text("finish reason").nth(number + answers - 1).wait_for()


async def _count_is(page, number):
    return await page.locator(".turn.assistant").count() == number


def body_of(engine, number=-1):
    return orjson.loads(engine.requests[number].body)


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
async def test_the_message_box_stays_in_view_and_the_newest_answer_too(opened, size):
    async with opened() as browsing:
        page = browsing.page
        await page.set_viewport_size(size)
        for number in range(8):
            await ask(page, f"Message {number}")
        for shown in (page.get_by_label("Message"), page.locator(".turn.assistant").last):
            box = await shown.bounding_box()
            assert 0 <= box["y"] < box["y"] + min(box["height"], 40) <= size["height"]
        assert await page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        await browsing.look("playground-long")


async def test_each_answer_says_what_it_took(opened):
    async with opened() as browsing:
        await ask(browsing.page, "Hello")
        figures = await browsing.page.get_by_text("finish reason").text_content()
        assert "9 prompt tokens (4 cached) · 3 completion tokens · TTFT" in figures
        assert figures.endswith("0.000015 USD · finish reason stop")


@pytest.mark.parametrize("kind", ["chat", "responses"])
async def test_a_failed_message_stays_and_is_sent_again_once(opened, models, kind):
    engine, _ = models
    engine.script = lambda request: Script([RequestRejected("It will not do.")])
    async with opened() as browsing:
        page = browsing.page
        await page.get_by_label("Interface").select_option(kind)
        await page.get_by_label("Message").fill("Is it there?")
        await page.get_by_label("Message").press("Enter")
        await page.locator("#error", has_text="It will not do.").wait_for()
        assert await page.get_by_label("Message").input_value() == "Is it there?"
        assert await page.locator(".turn.user").count() == 1
        engine.script = answer
        browsing.faults.clear()  # The browser reports the 400 itself.
        await ask(page, "Is it there?")
        assert await page.locator(".turn.user").count() == 1
        assert [one["role"] for one in body_of(engine)["messages"]] == ["user"]


async def test_an_answer_can_be_stopped_and_asked_for_again(opened, models):
    engine, _ = models
    first, *_ = said("Hello")
    engine.script = lambda request: Script([pieces(request, [first])[0], asyncio.Event()])
    async with opened() as browsing:
        page = browsing.page
        await page.get_by_label("Message").fill("Hello")
        await page.get_by_label("Message").press("Enter")
        await page.locator(".turn.assistant .text", has_text="Hello").wait_for()
        await page.get_by_role("button", name="Stop").click()
        await page.get_by_text("finish reason stopped").wait_for()
        await eventually(lambda: engine.streams[-1].is_aborted)
        engine.script = answer
        await ask(page, "Again")
        assert [one["role"] for one in body_of(engine)["messages"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize("kind", ["chat", "responses"])
async def test_a_function_call_is_answered(opened, models, kind):
    engine, _ = models
    engine.script = lambda request: Script(pieces(request, CALL), usage=USAGE, finish_reasons=("tool_calls",))
    async with opened() as browsing:
        page = browsing.page
        await page.get_by_label("Interface").select_option(kind)
        await page.get_by_label("Functions").fill(FUNCTIONS)
        await ask(page, "How is the weather?")
        await page.get_by_text("weather({})").wait_for()
        await page.get_by_text("Reasoning", exact=True).click()
        await page.get_by_text("I must look.").wait_for()
        await page.get_by_label("Message").fill("Well?")
        await page.get_by_label("Message").press("Enter")
        await page.get_by_text("waits for the results").wait_for()
        engine.script = answer
        await page.get_by_label("Result of weather").fill("sunny")
        await page.get_by_role("button", name="Send results").click()
        await page.locator(".turn.assistant .text", has_text="Hello there!").wait_for()
        *_, last = body_of(engine)["messages"]
        assert (last["role"], last["content"]) == ("tool", "sunny")


async def test_two_models_answer_side_by_side(opened, models):
    first, second = models
    async with opened() as browsing:
        page = browsing.page
        await page.get_by_label("Functions").fill(FUNCTIONS)
        await page.get_by_role("button", name="Compare").click()
        assert await page.get_by_label("Model").nth(1).input_value() == SECOND
        await ask(page, "Who are you?", answers=2)
        await browsing.look("playground-compare")
        assert "tools" in body_of(first)
        assert "tools" not in body_of(second)  # It cannot call functions.
        await page.get_by_role("button", name="Stop comparing").click()
        assert await page.locator(".turn.assistant").count() == 1


async def test_the_code_is_the_request_that_was_sent(opened, models):
    async with opened() as browsing:
        page = browsing.page
        await page.get_by_label("Seed").fill("7")
        await page.get_by_label("JSON schema").fill('{"type": "object"}')
        await ask(page, "Who are you?")
        await page.get_by_role("button", name="View code").click()
        shown = page.get_by_role("dialog").get_by_role("tabpanel")
        sent = orjson.loads((await shown.text_content()).partition("-d '")[2].removesuffix("'"))
        assert [one["content"] for one in sent["messages"]] == ["Who are you?"]
        assert (sent["seed"], sent["response_format"]["type"]) == (7, "json_schema")
        await page.get_by_role("tab", name="Python").press("ArrowRight")
        await page.get_by_role("tab", name="Node", selected=True).wait_for()
        assert "new OpenAI()" in await shown.text_content()
        await browsing.look("playground-code")
        await page.keyboard.press("Escape")
        await page.get_by_role("dialog").wait_for(state="hidden")


async def test_code_is_copied_also_without_a_secure_origin(opened):
    async with opened() as browsing:
        page = browsing.page
        await page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
        await page.reload()
        await page.get_by_role("button", name="View code").click()
        await page.get_by_role("button", name="Copy").click()
        await page.get_by_role("button", name="Copied").wait_for()
        await page.keyboard.press("Escape")
        await page.get_by_label("Message").focus()
        await page.keyboard.press("Control+V")
        assert "$OPENAI_BASE_URL/chat/completions" in await page.get_by_label("Message").input_value()


async def test_a_picture_is_sent(opened, models):
    engine, _ = models
    async with opened() as browsing:
        page = browsing.page
        picture = {"name": "a.png", "mimeType": "image/png", "buffer": b"not a picture, but sent as one"}
        await page.get_by_label("Add images").set_input_files(picture)
        await page.get_by_role("button", name="Remove").wait_for()
        await ask(page, "What is it?")
        text, image = body_of(engine)["messages"][0]["content"]
        assert text["text"] == "What is it?"
        assert image["image_url"]["url"].startswith("data:image/png;base64,")


async def test_a_reload_keeps_the_conversation_and_signing_out_deletes_it(opened):
    async with opened() as browsing:
        page = browsing.page
        await page.get_by_label("Instructions").fill("Be kind.")
        await page.get_by_label("Temperature").fill("0.3")
        await page.get_by_role("button", name="Save").click()
        await page.get_by_label("Name").fill("kind")
        await page.get_by_role("button", name="Save the preset").click()
        await ask(page, "Hello")
        await page.get_by_label("Message").fill("Half a")
        await page.reload()
        await page.locator(".turn.assistant .text", has_text="Hello there!").wait_for()
        assert await page.get_by_label("Message").input_value() == "Half a"
        await page.get_by_label("Instructions").fill("")
        await page.get_by_label("Preset", exact=True).select_option("kind")
        assert await page.get_by_label("Instructions").input_value() == "Be kind."
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_label("API key").wait_for()
        assert await page.evaluate("sessionStorage.length") == 0
        assert (
            await page.evaluate("Object.keys(localStorage).filter((one) => one.startsWith('playground')).length") == 0
        )


async def test_another_key_sees_none_of_what_the_browser_kept(opened, secrets):
    async with opened() as browsing:
        page = browsing.page
        await ask(page, "My secret")
        await page.context.clear_cookies()
        await sign_in(browsing, secrets["acct_two"])
        await browsing.open("/console/playground")
        await page.get_by_label("Message").wait_for()
        assert "My secret" not in await page.content()
        assert "My secret" not in (await page.evaluate("JSON.stringify(sessionStorage)"))


@pytest.mark.parametrize(
    ("scopes", "sentence"),
    [
        ({"operations": frozenset({"files"})}, "may not create chats or responses"),
        ({"models": frozenset({"none"})}, "Ask the operator for one"),
        ({"models": frozenset({"none"}), "is_admin": True}, "in the Serve file"),
    ],
)
async def test_a_key_without_a_chat_model_is_told_what_to_do(world, visit, secrets, scopes, sentence):
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    holder = world.gatekeeper.principals[secrets["acct_one"]]
    world.gatekeeper.principals[secrets["acct_one"]] = replace(holder, **scopes)
    assert sentence in await browser.read("/console/playground")
