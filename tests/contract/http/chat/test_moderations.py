"""Moderations through OpenAI's client: verdicts, what they cost, and what is refused."""

import openai
import orjson
import pytest

from deployments.models.contract.engine import Usage
from deployments.models.contract.errors import Overloaded
from serve_app.operations.safety.moderation import ModerationConfig
from tests.contract.http.answers import MODEL, SECRET, pieces, said
from tests.contract.http.batch_calls import finish, jsonl, submit
from tests.contract.http.conftest import run_batches
from tests.twins.engine import Script

PATTERNS = ModerationConfig(patterns={"violence": (r"(?i)\bkill",), "self-harm/intent": ("hurt myself",)})
GUARDED = ModerationConfig(guard_model=MODEL)


async def test_texts_are_judged(world):
    world.moderation = PATTERNS
    answer = await world.client().moderations.create(model="omni-moderation-latest", input=["I hurt myself", "fine"])
    one, other = answer.results
    assert (one.flagged, one.categories.self_harm_intent, one.categories.violence) == (True, True, False)
    assert (one.category_scores.self_harm_intent, one.category_scores.violence) == (1, 0)
    assert one.category_applied_input_types.violence == ["text"]
    assert not other.flagged
    assert (answer.model, answer.id[:5]) == ("manta/moderation", "modr-")


@pytest.mark.parametrize(
    "text", ["He kills.", ["He kills."], [{"type": "text", "text": "He"}, {"type": "text", "text": "kills."}]]
)
async def test_every_form_of_input_is_read(world, text):
    world.moderation = PATTERNS
    (result,) = (await world.client().moderations.create(input=text)).results
    assert result.categories.violence


async def test_it_takes_a_request_and_no_tokens(world):
    world.moderation = PATTERNS
    world.principal(SECRET, tokens_per_minute=10)
    answer = await world.client().moderations.with_raw_response.create(input="fine " * 1000)
    assert answer.headers["x-ratelimit-remaining-tokens"] == "10"
    (record,) = world.log.records
    assert (record.route, record.model, record.prompt_tokens) == ("/v1/moderations", "manta/moderation", 0)


async def test_tokens_of_the_guard_model_count(world):
    world.moderation = GUARDED
    world.chat.script = lambda request: Script(pieces(request, said("violence")), Usage(100, 3))
    answer = await world.client().moderations.with_raw_response.create(input=["one", "two"])
    assert [result.categories.violence for result in answer.parse().results] == [True, True]
    assert answer.headers["x-ratelimit-remaining-tokens"] == str(1_000_000 - 206)
    assert (world.log.records[0].prompt_tokens, world.log.records[0].completion_tokens) == (200, 6)
    assert {request.operation for request in world.chat.requests} == {"chat"}
    world.principal(SECRET, tokens_per_minute=100)
    with pytest.raises(openai.RateLimitError):
        await world.client().moderations.create(input="one")


async def test_guard_model_reads_what_accounts_ask_with_their_own_salts(world):
    world.moderation = GUARDED
    world.chat.script = lambda request: Script(pieces(request, said("safe")), Usage(100, 3))
    world.principal("sk-manta-another-secret-0000", key_id="key_2", account="acct_2")
    for secret in (SECRET, "sk-manta-another-secret-0000"):
        await world.client(secret).moderations.create(input="one")
    one, other = (request.cache_salt for request in world.chat.requests)
    assert one != other


async def test_guard_model_that_is_full_says_so(world):
    world.moderation = GUARDED
    world.chat.script = lambda _: Script([Overloaded("full")])
    with pytest.raises(openai.InternalServerError) as refused:
        await world.client().moderations.create(input="one")
    assert refused.value.status_code == 503


async def test_it_is_off_unless_it_is_configured(world):
    with pytest.raises(openai.NotFoundError, match="Moderations are not switched on in this service"):
        await world.client().moderations.create(input="one")


async def test_key_must_know_the_model(world):
    world.moderation = PATTERNS
    with pytest.raises(openai.NotFoundError) as refused:
        await world.client().moderations.create(input="one", model=MODEL)
    assert refused.value.code == "model_not_found"
    world.principal(SECRET, models=["demo/*"])
    with pytest.raises(openai.NotFoundError):
        await world.client().moderations.create(input="one")


@pytest.mark.parametrize(
    ("text", "param", "code"),
    [
        ([], "input", "empty_array"),
        ([1], "input[0]", "invalid_type"),
        (["x"] * 2049, "input", "array_above_max_length"),
        ("x" * 1_000_001, "input", "string_above_max_length"),
        ([{"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}], "input[0].type", "unsupported_value"),
        ([{"type": "text"}], "input[0].text", "missing_required_parameter"),
        (None, "input", "invalid_type"),
    ],
)
async def test_what_is_wrong_is_named(world, text, param, code):
    world.moderation = PATTERNS
    with pytest.raises(openai.BadRequestError) as refused:
        await world.client().moderations.create(input=text)
    assert (refused.value.param, refused.value.code) == (param, code)


async def test_lines_of_batches_are_judged(world, batch_stores):
    world.moderation = PATTERNS
    client, path = world.client(), "/v1/moderations"
    body = {"model": "omni-moderation-latest", "input": "He kills."}
    line = {"custom_id": "one", "method": "POST", "url": path, "body": body}
    async with run_batches(world, batch_stores):
        batch = await finish(client, await submit(client, jsonl(line), path))
    output = orjson.loads((await client.files.content(batch.output_file_id)).content)
    assert output["response"]["body"]["results"][0]["categories"]["violence"] is True
