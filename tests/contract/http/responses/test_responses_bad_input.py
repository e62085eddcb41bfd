"""Bad input to the responses interface: the status, and the exact error, of everything that is not to be answered."""

import openai
import pytest

from tests.contract.http.answers import MODEL
from tests.contract.http.response_calls import OTHER, WEATHER
from tests.twins.engine import Script
from tests.waiting import eventually

TURN_OF_ANOTHER, EXPIRED, DELETED = "(of another account)", "(expired)", "(deleted)"
FUNCTION = {"type": "function", "name": "f"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "x"}
WIDE = {"enum": [f"{number}" * 400 for number in range(2000)]}
LONG = {"type": "array", "minItems": 10**9, "items": {"type": "array", "minItems": 10**9}}
DEEP: dict = {"type": "object"}
for _ in range(40):
    DEEP = {"type": "array", "items": DEEP}
MANY = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(6000)}}
NESTED_REPETITIONS = {"type": "string", "pattern": "((a{100}){100}){100}"}
SCHEMA_BOMBS = {
    "wide": WIDE,
    "long": LONG,
    "deep": DEEP,
    "many": MANY,
    "nested repetitions": NESTED_REPETITIONS,
    "remote": {"$ref": "http://169.254.169.254/"},
}


def text_format(schema, **more):
    return {"text": {"format": {"type": "json_schema", "name": "n", "schema": schema, **more}}}


def user(*parts):
    return {"input": [{"role": "user", "content": "a"}, {"role": "user", "content": list(parts)}]}


REFUSED = {
    "unknown turn": ({"previous_response_id": "resp_none"}, "previous_response_id", "previous_response_not_found"),
    "foreign turn": ({"previous_response_id": TURN_OF_ANOTHER}, "previous_response_id", "previous_response_not_found"),
    "expired turn": ({"previous_response_id": EXPIRED}, "previous_response_id", "previous_response_not_found"),
    "deleted turn": ({"previous_response_id": DELETED}, "previous_response_id", "previous_response_not_found"),
    "turn and conversation": (
        {"previous_response_id": "resp_1", "conversation": "conv_1"},
        "previous_response_id",
        "mutually_exclusive_parameters",
    ),
    "background that is not stored": (
        {"background": True, "store": False},
        "background",
        "invalid_parameter_combination",
    ),
    "output without its call": ({"input": [OUTPUT]}, "input[0].call_id", "invalid_value"),
    "output before its call": ({"input": [OUTPUT, CALL]}, "input[0].call_id", "invalid_value"),
    "output of another turn's call": (
        {"input": [{"role": "user", "content": "a"}, {**OUTPUT, "call_id": "other"}]},
        "input[1].call_id",
        "invalid_value",
    ),
    "two outputs of one call": ({"input": [CALL, OUTPUT, OUTPUT]}, "input[2].call_id", "invalid_value"),
    "call without its output": ({"input": [CALL]}, "input", None),
    "item of no kind": ({"input": [{}]}, "input[0].type", "missing_required_parameter"),
    "item that is no object": ({"input": ["a", 5]}, "input[0]", "invalid_type"),
    "part of no kind": (user({"text": "a"}), "input[1].content[0].type", "missing_required_parameter"),
    "part that is no object": (user({"type": "input_text", "text": "a"}, 5), "input[1].content[1]", "invalid_type"),
    "part of another kind": (
        user({"type": "input_audio", "data": ""}),
        "input[1].content[0].type",
        "invalid_value",
    ),
    "annotation of a wrong type": (
        {"input": [{"role": "assistant", "content": [{"type": "output_text", "text": "a", "annotations": 5}]}]},
        "input[0].content[0].annotations",
        "invalid_type",
    ),
    "summary of a wrong type": (
        {"input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": 5}]}]},
        "input[0].summary[0].text",
        "invalid_type",
    ),
    "output part of a wrong type": (
        {"input": [CALL, {**OUTPUT, "output": [{"type": "input_text", "text": [1]}]}]},
        "input[1].output[0].text",
        "invalid_type",
    ),
    "unknown field at depth": (
        user({"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit", "x": 1}}),
        "input[1].content[0].prompt_cache_breakpoint.x",
        "unknown_parameter",
    ),
    "tool choice that names nothing": (
        {"tools": [WEATHER], "tool_choice": {"type": "function", "name": "none"}},
        "tool_choice.name",
        "invalid_value",
    ),
    **{
        f"{name} schema of a text": (text_format(schema), "text.format.schema", "invalid_value")
        for name, schema in SCHEMA_BOMBS.items()
    },
    **{
        f"{name} schema of a tool": (
            {"tools": [WEATHER, {**FUNCTION, "parameters": schema}]},
            "tools[1].parameters",
            "invalid_value",
        )
        for name, schema in SCHEMA_BOMBS.items()
    },
    "schema that is not strict": (text_format({"type": "object"}, strict=True), "text.format.schema", "invalid_value"),
    "too many tools": ({"tools": [FUNCTION] * 5000}, "tools", "array_above_max_length"),
}


@pytest.fixture
async def http(world):
    async with world.http() as http:
        yield http


async def create(world, secret=None):
    client = world.client() if secret is None else world.client(secret)
    return (await client.responses.create(model=MODEL, input="x")).id


def is_error(answer, status, param, code):
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert isinstance(error["message"], str)
    assert {**error, "message": ""} == {
        "message": "",
        "type": "invalid_request_error",
        "param": param,
        "code": code,
    }
    return error["message"]


async def refer(world, body):
    """Return a body with a turn that cannot be continued in the place of what says why."""
    reason = body.get("previous_response_id")
    if reason == TURN_OF_ANOTHER:
        world.principal(OTHER, key_id="key_2", account="acct_2")
        return {**body, "previous_response_id": await create(world, OTHER)}
    if reason in (EXPIRED, DELETED):
        made = await create(world)
        if reason == DELETED:
            await world.client().responses.delete(made)
        else:
            world.clock.advance(86_400)
        return {**body, "previous_response_id": made}
    return body


@pytest.mark.parametrize("name", REFUSED)
async def test_bad_input_is_refused_by_name_whether_streamed_or_not(world, http, name):
    body, param, code = REFUSED[name]
    body = await refer(world, body)
    num_asked = len(world.chat.requests)
    for is_stream in (False, True):
        answer = await http.post("/v1/responses", json={"model": MODEL, "input": "x", "stream": is_stream, **body})
        is_error(answer, 400, param, code)
    assert len(world.chat.requests) == num_asked


@pytest.mark.parametrize(
    ("items", "param", "words"),
    [
        ([{"role": "user", "content": "a"}, OUTPUT], "input[1].call_id", "No tool call found"),
        ([CALL, OUTPUT, OUTPUT], "input[2].call_id", "Another output"),
        ([CALL, {"role": "user", "content": "a"}], "input", "No tool output found"),
        ([{**OUTPUT, "call_id": "d"}, CALL], "input[0].call_id", "No tool call found"),
    ],
)
async def test_outputs_without_calls_and_calls_without_outputs_are_refused(world, responses, items, param, words):
    with pytest.raises(openai.BadRequestError, match=words) as caught:
        await responses.create(model=MODEL, input=items)
    assert caught.value.param == param
    assert not world.chat.requests
    assert world.gatekeeper.settled == []


async def test_a_million_items_are_refused_before_they_are_looked_at(world, http):
    body = b'{"model":"demo/chat","input":[' + b",".join([b"{}"] * 1_000_000) + b"]}"
    for path in ("responses", "responses/input_tokens", "responses/compact"):
        answer = await http.post(f"/v1/{path}", content=body, headers={"content-type": "application/json"})
        assert "too many" in is_error(answer, 400, None, None)
    assert not world.chat.requests


async def test_unknown_conversations_are_not_found(world, http):
    answer = await http.post("/v1/responses", json={"model": MODEL, "input": "x", "conversation": "conv_none"})
    assert is_error(answer, 404, "conversation", None) == "Conversation with id 'conv_none' not found."


async def test_unknown_items_are_not_found(world, http):
    items = [{"role": "user", "content": "a"}, {"type": "item_reference", "id": "msg_none"}]
    answer = await http.post("/v1/responses", json={"model": MODEL, "input": items})
    assert "Item with id 'msg_none' not found." in is_error(answer, 404, "input[1].id", None)


@pytest.mark.parametrize(
    "path", ["", "?stream=true", "?stream=true&starting_after=3", "/input_items", "/cancel", "(delete)"]
)
async def test_responses_that_are_not_there_are_not_found(world, http, path):
    world.principal(OTHER, key_id="key_2", account="acct_2")
    foreign, expired = await create(world, OTHER), await create(world)
    world.clock.advance(86_400)
    for response_id in (foreign, expired, "resp_none"):
        if path == "/cancel":
            answer = await http.post(f"/v1/responses/{response_id}/cancel")
        elif path == "(delete)":
            answer = await http.delete(f"/v1/responses/{response_id}")
        else:
            answer = await http.get(f"/v1/responses/{response_id}{path}")
        assert is_error(answer, 404, None, None) == f"Response with id '{response_id}' not found."


async def test_streams_cannot_start_after_their_end(world, http):
    made = await create(world)
    last = len((await http.get(f"/v1/responses/{made}?stream=true")).text.split("\n\n")) - 3
    for after in (last + 1, 10**12, -2):
        answer = await http.get(f"/v1/responses/{made}?stream=true&starting_after={after}")
        assert f"The last one is {last}." in is_error(answer, 400, "starting_after", "invalid_value")
    assert (await http.get(f"/v1/responses/{made}?stream=true&starting_after={last}")).status_code == 200


@pytest.mark.parametrize("is_background", [False, True])
async def test_finished_responses_cannot_be_cancelled(world, http, is_background):
    world.chat.script = lambda request: Script([ValueError("It fails.")]) if is_background else Script()
    body = {"model": MODEL, "input": "x", "background": is_background}
    made = (await http.post("/v1/responses", json=body)).json()["id"]
    if is_background:
        await eventually(lambda: world.log.records and world.log.records[-1].status == 500)
    told = is_error(await http.post(f"/v1/responses/{made}/cancel"), 400, None, None)
    assert ("status 'failed'" if is_background else "synchronous") in told


@pytest.mark.parametrize("path", ["responses", "responses/input_tokens"])
@pytest.mark.parametrize("wanted", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}])
async def test_keys_that_keep_nothing_cannot_go_on_from_what_is_kept(world, http, path, wanted):
    world.principal(retention="strict")
    answer = await http.post(f"/v1/{path}", json={"model": MODEL, "input": "x", **wanted})
    assert "retention policy" in is_error(answer, 403, next(iter(wanted)), "retention_policy")
    item = {"type": "item_reference", "id": "msg_1"}
    is_error(await http.post(f"/v1/{path}", json={"model": MODEL, "input": [item]}), 404, "input[0].id", None)


async def test_keys_that_keep_nothing_run_nothing_in_the_background_and_have_no_conversations(world, http):
    world.principal(retention="strict")
    body = {"model": MODEL, "input": "x", "background": True}
    is_error(await http.post("/v1/responses", json=body), 403, "background", "retention_policy")
    is_error(await http.post("/v1/conversations", json={}), 403, None, "retention_policy")
    assert world.stored.count() == 0


async def test_unparsable_bodies_are_told_so(http):
    headers = {"content-type": "application/json"}
    for body in (b"{", b"[]", b'{"model":' + b"[" * 10_000 + b"]" * 10_000 + b"}"):
        is_error(await http.post("/v1/responses", content=body, headers=headers), 400, None, None)
