"""Tools that a conversation brings: by a search of the client's or the service's, or by an item of their own."""

import openai
import orjson
import pytest

from tests.contract.http.answers import MODEL, said
from tests.contract.http.background_calls import ended
from tests.contract.http.response_calls import (
    OTHER,
    WEATHER,
    calling,
    calls,
    lines_of,
    messages,
    of_type,
    script,
    stream_of,
)
from tests.twins.legal import fold

STOCK = {
    "type": "function",
    "name": "stock",
    "description": "Count what is in the warehouse.",
    "parameters": {"type": "object", "properties": {"thing": {"type": "string"}}},
    "defer_loading": True,
}
REFUND = {"type": "function", "name": "refund", "description": "Pay money back to a customer.", "defer_loading": True}
SHOP = {"type": "namespace", "name": "shop", "description": "The web shop.", "tools": [STOCK, REFUND]}
SEARCH = {"type": "tool_search"}
THEIRS = {
    "type": "tool_search",
    "execution": "client",
    "description": "Finds tools of apps.",
    "parameters": {
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "number"}},
        "required": ["query"],
    },
}
FOUND = {"type": "namespace", "name": "mcp__mail", "description": "Mail.", "tools": [{**STOCK, "name": "send"}]}


def tools_of(world, number: int = -1) -> list[str]:
    """Return the names of the functions that the model saw."""
    return [one["function"]["name"] for one in orjson.loads(world.chat.requests[number].body).get("tools", ())]


async def refused(world, **body) -> tuple[int, str, str]:
    async with world.http() as http:
        answer = await http.post("/v1/responses", json={"model": MODEL, "input": "x", **body})
    error = answer.json()["error"]
    return answer.status_code, error["param"], error["message"]


async def test_a_deferred_function_is_hidden_until_the_service_has_found_it(world):
    script(world, calls(("tool_search", {"query": "count warehouse"})), calls(("shop__stock", {"thing": "cups"})))
    events = await stream_of(world, {"input": "How many cups?", "tools": [WEATHER, SHOP, SEARCH]})
    final = fold(events)
    assert [item["type"] for item in final["output"]] == ["tool_search_call", "tool_search_output", "function_call"]
    call, output, wanted = final["output"]
    assert (call["id"][:4], call["execution"], call["status"]) == ("tsc_", "server", "completed")
    assert call["arguments"] == {"query": "count warehouse"}
    assert (output["id"][:4], output["execution"], output["call_id"]) == ("tso_", "server", call["call_id"])
    (found,) = output["tools"]
    assert (found["name"], [one["name"] for one in found["tools"]]) == ("shop", ["stock"])
    assert (wanted["namespace"], wanted["name"]) == ("shop", "stock")
    assert tools_of(world, 0) == ["weather", "tool_search"]
    assert tools_of(world, 1) == ["weather", "shop__stock", "tool_search"]
    searching = orjson.loads(world.chat.requests[0].body)["tools"][1]["function"]
    assert "- shop: The web shop." in searching["description"]
    assert messages(world, 1)[-1]["content"] == "These tools can be called now: shop__stock."


@pytest.mark.parametrize("store", [True, False])
async def test_what_was_found_stays_loaded_and_the_prompt_begins_alike(world, store):
    asked = {"input": [{"role": "user", "content": "x"}], "tools": [SHOP, WEATHER, SEARCH], "store": store}
    script(world, calls(("tool_search", {"query": "refund"})), calls(("shop__refund", {})), said("Done."))
    first = fold(await stream_of(world, asked))
    answer = {"type": "function_call_output", "call_id": of_type(first, "function_call")[0]["call_id"], "output": "ok"}
    more = [answer] if store else [*asked["input"], *first["output"], answer]
    following = {"previous_response_id": first["id"]} if store else {}
    await stream_of(world, {**asked, "input": more, **following})
    assert tools_of(world) == tools_of(world, 1) == ["weather", "shop__refund", "tool_search"]
    told, before = messages(world), messages(world, 1)
    for later, earlier in zip(told[1:3], before[1:3], strict=True):
        assert later["role"] == earlier["role"]
        assert later["content"] == earlier["content"]
    names = [call["function"]["name"] for message in told for call in message.get("tool_calls", ())]
    assert names == ["tool_search", "shop__refund"]
    assert orjson.loads(told[1]["tool_calls"][0]["function"]["arguments"]) == {"query": "refund"}


async def test_a_search_without_a_hit_or_a_query_says_so(world):
    body = {"input": "x", "tools": [SHOP, SEARCH]}
    script(world, calls(("tool_search", {"query": "weather"})), calls(("tool_search", {})), said("No."))
    final = fold(await stream_of(world, body))
    assert [item["type"] for item in final["output"][:3]] == [
        "tool_search_call",
        "tool_search_output",
        "tool_search_call",
    ]
    assert final["output"][1]["tools"] == []
    assert final["output"][2]["status"] == "incomplete"
    assert "No tool was found" in messages(world, 1)[-1]["content"]
    assert "without a query" in messages(world, 2)[-1]["content"]


async def test_a_stored_search_is_read_and_streamed_again(world, responses):
    script(world, calls(("tool_search", {"query": "refund"})), said("Done."))
    first = await responses.create(model=MODEL, input="x", tools=[SHOP, SEARCH])
    assert [item.type for item in first.output] == ["tool_search_call", "tool_search_output", "message"]
    events = [event async for event in await responses.retrieve(first.id, stream=True)]
    assert events[-1].response.output == first.output
    live = fold(await stream_of(world, {"input": "x", "tools": [SHOP, SEARCH]}))
    assert live["tools"][0]["tools"][0]["defer_loading"] is True


async def test_a_background_response_and_a_batch_search_too(world, responses):
    script(
        world,
        calls(("tool_search", {"query": "refund"})),
        said("Done."),
        calls(("tool_search", {"query": "refund"})),
        said("Done."),
    )
    job = await responses.create(model=MODEL, input="x", tools=[SHOP, SEARCH], background=True)
    final = await ended(responses, job.id)
    assert [item.type for item in final.output] == ["tool_search_call", "tool_search_output", "message"]
    ((status, body),) = await lines_of(world, {"model": MODEL, "input": "x", "tools": [SHOP, SEARCH]})
    assert (status, len(body["output"])) == (200, 3)


async def test_a_search_of_the_clients_is_a_call_that_ends_the_turn(world):
    query = '{"query":"mail","limit":3}'
    body = {"input": [{"role": "user", "content": "Mail it."}], "tools": [WEATHER, THEIRS]}
    script(
        world, calling(("call_1", "tool_search", query)), calling(("call_2", "mcp__mail__send", "{}")), said("Done.")
    )
    first = fold(await stream_of(world, body))
    (call,) = first["output"]
    assert call == {
        "id": call["id"],
        "type": "tool_search_call",
        "status": "completed",
        "call_id": "call_1",
        "execution": "client",
        "arguments": {"query": "mail", "limit": 3},
    }
    assert tools_of(world) == ["weather", "tool_search"]
    output = {"type": "tool_search_output", "call_id": "call_1", "execution": "client", "tools": [FOUND]}
    second = fold(await stream_of(world, {**body, "input": [*body["input"], call, output]}))
    assert (second["output"][0]["namespace"], second["output"][0]["name"]) == ("mcp__mail", "send")
    assert tools_of(world) == ["weather", "tool_search", "mcp__mail__send"]
    assert messages(world)[-1]["content"] == "These tools can be called now: mcp__mail__send."
    assert messages(world)[-2]["tool_calls"][0]["function"]["arguments"] == query


async def test_calls_of_loaded_functions_are_stored_with_their_namespace(world, responses):
    script(world, calling(("call_2", "mcp__mail__send", "{}")))
    call = {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"query": "mail"}}
    output = {"type": "tool_search_output", "call_id": "c", "execution": "client", "tools": [FOUND]}
    first = await responses.create(model=MODEL, input=[{"role": "user", "content": "x"}, call, output], tools=[THEIRS])
    events = [event async for event in await responses.retrieve(first.id, stream=True)]
    assert (events[-1].response.output[0].namespace, events[-1].response.output[0].name) == ("mcp__mail", "send")
    script(world, said("Done."))
    answer = {"type": "function_call_output", "call_id": "call_2", "output": "sent"}
    await responses.create(model=MODEL, previous_response_id=first.id, input=[answer], tools=[THEIRS])
    assert tools_of(world) == ["tool_search", "mcp__mail__send"]


async def test_additional_tools_count_from_their_item_on_and_in_later_turns(world, responses):
    more = {"type": "additional_tools", "role": "developer", "tools": [WEATHER, SHOP, SEARCH, {"type": "shell"}]}
    script(world, said("Done."))
    first = await responses.create(model=MODEL, input=[more, {"role": "user", "content": "x"}])
    assert tools_of(world) == ["weather", "shell", "tool_search"]
    assert [message["role"] for message in messages(world)] == ["user"]
    kept = [item async for item in responses.input_items.list(first.id, order="asc")]
    assert (kept[0].type, kept[0].role, kept[0].tools[0].name) == ("additional_tools", "developer", "weather")
    await responses.create(model=MODEL, previous_response_id=first.id, input="And?")
    assert tools_of(world) == ["weather", "shell", "tool_search"]
    talk = await world.client().conversations.create(items=[more])
    await responses.create(model=MODEL, conversation=talk.id, input="x")
    assert tools_of(world) == ["weather", "shell", "tool_search"]
    forced = {"tool_choice": {"type": "function", "name": "weather"}}
    await responses.create(model=MODEL, input=[more, {"role": "user", "content": "x"}], **forced)
    assert orjson.loads(world.chat.requests[-1].body)["tool_choice"]["function"]["name"] == "weather"


async def test_tools_that_each_turn_brings_again_are_there_once(world, responses):
    more = {"type": "additional_tools", "role": "developer", "tools": [WEATHER, SHOP, SEARCH, {"type": "shell"}]}
    script(world, said("Done."))
    first = await responses.create(model=MODEL, input=[more, {"role": "user", "content": "x"}])
    changed = {**more, "tools": [{**WEATHER, "description": "A newer one."}, SHOP, SEARCH, {"type": "shell"}]}
    again = [changed, {"role": "user", "content": "y"}]
    await responses.create(model=MODEL, previous_response_id=first.id, input=again, tools=[SEARCH])
    assert tools_of(world) == ["weather", "shell", "tool_search"]
    weather = orjson.loads(world.chat.requests[-1].body)["tools"][0]["function"]
    assert weather["description"] == "A newer one."


async def test_tools_of_another_account_are_not_brought(world, responses):
    more = {"type": "additional_tools", "role": "developer", "tools": [WEATHER]}
    script(world, said("Done."))
    first = await responses.create(model=MODEL, input=[more, {"role": "user", "content": "x"}])
    kept = [item async for item in responses.input_items.list(first.id, order="asc")]
    world.principal(secret=OTHER, account="acct_other")
    theirs = world.client(OTHER)
    for body in (
        {"previous_response_id": first.id, "input": "x"},
        {"input": [{"type": "item_reference", "id": kept[0].id}]},
    ):
        with pytest.raises((openai.BadRequestError, openai.NotFoundError)):
            await theirs.responses.create(model=MODEL, **body)


async def test_the_request_s_own_definition_of_a_function_counts(world):
    call = {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"query": "x"}}
    old = {**STOCK, "description": "An older one."}
    output = {"type": "tool_search_output", "call_id": "c", "tools": [{**SHOP, "tools": [old]}]}
    script(world, said("Done."))
    for tools in ([SHOP, THEIRS], [{**SHOP, "tools": [{**STOCK, "defer_loading": False}]}, THEIRS]):
        await stream_of(world, {"input": [{"role": "user", "content": "x"}, call, output], "tools": tools})
        (stock,) = [
            one for one in orjson.loads(world.chat.requests[-1].body)["tools"] if "stock" in one["function"]["name"]
        ]
        assert stock["function"]["description"].endswith("Count what is in the warehouse.")


async def test_the_tools_that_were_loaded_first_make_room(world):
    def output(number):
        tools = [{"type": "function", "name": f"f{number}_{one}"} for one in range(60)]
        return {"type": "tool_search_output", "call_id": f"c{number}", "tools": tools}

    def call(number):
        return {"type": "tool_search_call", "call_id": f"c{number}", "execution": "client", "arguments": {}}

    found = [one for number in range(3) for one in (call(number), output(number))]
    script(world, said("Done."))
    await stream_of(world, {"input": [{"role": "user", "content": "x"}, *found], "tools": [WEATHER, THEIRS]})
    assert tools_of(world)[:2] == ["weather", "tool_search"]
    assert (len(tools_of(world)), tools_of(world)[-1]) == (128, "f2_59")


async def test_a_tool_that_made_room_is_there_again_once_a_search_finds_it_again(world):
    group = {**SHOP, "tools": [STOCK, *({**REFUND, "name": f"f{n}"} for n in range(127))]}
    call = {"type": "tool_search_call", "call_id": "c", "execution": "server", "arguments": {"query": "x"}}
    output = {"type": "tool_search_output", "call_id": "c", "execution": "server", "tools": [group]}
    script(world, calls(("tool_search", {"query": "warehouse"})), said("Done."))
    asked = {"input": [{"role": "user", "content": "x"}, call, output], "tools": [group, SEARCH]}
    await stream_of(world, asked)
    refunds = [f"shop__f{n}" for n in range(127)]
    assert tools_of(world, 0) == [*refunds, "tool_search"]
    assert tools_of(world) == ["shop__stock", *refunds[1:], "tool_search"]


async def test_all_functions_of_a_conversation_have_a_bound_together(world, responses):
    def bring(name, number):
        groups = [
            {"type": "namespace", "name": f"{name}{n}", "tools": [{**STOCK, "name": f"f{m}"} for m in range(100)]}
            for n in range(number)
        ]
        return {"type": "additional_tools", "role": "developer", "tools": groups}

    asked = {"role": "user", "content": "x"}
    status, param, message = await refused(world, input=[bring("a", 20), bring("b", 21), asked], tools=[SEARCH])
    assert (status, param) == (400, "input[1].tools[20]")
    assert "at most 4096 functions together" in message
    talk = await world.client().conversations.create(items=[bring("a", 20)])
    more = {"conversation": talk.id, "tools": [SEARCH]}
    assert (await refused(world, input=[asked, bring("b", 21)], **more))[:2] == (400, "input[1].tools[20]")
    assert world.chat.requests == []
    script(world, said("Done."))
    await responses.create(model=MODEL, input=[bring("a", 20), bring("a", 20), bring("b", 20), asked], tools=[SEARCH])


async def test_deferred_functions_without_a_search_or_by_choice_are_refused(world):
    status, param, message = await refused(world, tools=[WEATHER, SHOP])
    assert (status, param) == (400, "tools[1].tools[0]")
    assert "tool_search" in message
    choice = {"type": "function", "name": "shop__stock"}
    assert (await refused(world, tools=[SHOP, SEARCH], tool_choice=choice))[:2] == (400, "tool_choice.name")
    assert (await refused(world, tools=[SEARCH, SEARCH, SHOP]))[:2] == (400, "tools[1]")
    own = {**WEATHER, "name": "tool_search"}
    assert (await refused(world, tools=[own, SEARCH, SHOP]))[0] == 400
    assert world.chat.requests == []


async def test_a_whole_namespace_may_be_deferred(world):
    script(world, said("Done."))
    group = {"type": "namespace", "name": "shop", "defer_loading": True, "tools": [{**WEATHER}]}
    await stream_of(world, {"input": "x", "tools": [group, SEARCH]})
    assert tools_of(world) == ["tool_search"]
    await stream_of(world, {"input": "x", "tools": [WEATHER, SEARCH]})
    assert tools_of(world) == ["weather"]


async def test_updates_change_the_configuration_until_the_next_one(world, responses):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    world.chat.card = world.chat.card
    updates = [
        {"type": "configuration_update", "text": {"format": form}},
        {"type": "configuration_update", "reasoning": {"effort": "low"}},
    ]
    script(world, said('{"a":"b"}'))
    first = await responses.create(model=MODEL, input=[*updates, {"role": "user", "content": "x"}])
    asked = orjson.loads(world.chat.requests[-1].body)
    assert asked["response_format"]["json_schema"]["schema"] == schema
    assert asked["reasoning_effort"] == "low"
    assert (first.reasoning.effort, first.text.format.name) == ("low", "n")
    assert [message["role"] for message in messages(world)] == ["user"]
    back = {"type": "configuration_update", "text": {"format": {"type": "text"}}}
    body = {"model": MODEL, "previous_response_id": first.id, "reasoning": {"effort": "high"}}
    second = await responses.create(input=[back, {"role": "user", "content": "y"}], **body)
    asked = orjson.loads(world.chat.requests[-1].body)
    assert "response_format" not in asked
    assert asked["reasoning_effort"] == "low"
    assert second.text.format.type == "text"
    kept = [item async for item in responses.input_items.list(first.id, order="asc")]
    assert [item.type for item in kept] == ["configuration_update", "configuration_update", "message"]


async def test_tokens_of_tools_that_were_brought_are_counted(world, responses):
    more = {"type": "additional_tools", "role": "developer", "tools": [WEATHER, SHOP, SEARCH]}
    await responses.input_tokens.count(model=MODEL, input=[more, {"role": "user", "content": "x"}])
    assert tools_of(world) == ["weather", "tool_search"]


async def test_hostile_tools_are_bounded_and_refused_with_their_place(world):
    many = [{"type": "function", "name": f"f{n}", "defer_loading": True} for n in range(100)]
    groups = [{"type": "namespace", "name": f"n{n}", "tools": many} for n in range(100)]
    broken = {"type": "object", "properties": {"a": 5}}
    brought = [{"type": "additional_tools", "role": "developer", "tools": [{**WEATHER, "parameters": broken}]}]
    assert (await refused(world, tools=[*groups, SEARCH]))[:2] == (400, "tools")
    assert (await refused(world, tools=many * 100))[:2] == (400, "tools")
    assert (await refused(world, tools=[{**STOCK, "parameters": broken}, SEARCH]))[:2] == (400, "tools[0].parameters")
    assert (await refused(world, input=brought))[:2] == (400, "input[0].tools[0].parameters")
    large = {**THEIRS, "parameters": {"type": "object", "description": "x" * 300_000}}
    assert (await refused(world, tools=[large]))[:2] == (400, "tools[0].parameters")
    too_many = [{"type": "function", "name": f"f{n}"} for n in range(100)]
    (status, param, _) = await refused(
        world, tools=too_many, input=[{**brought[0], "tools": [*many[:1], *groups[0]["tools"]]}]
    )
    assert (status, param) == (400, "input[0].tools[0]")
    assert world.chat.requests == []


async def test_a_search_takes_cyclic_schemas_and_very_long_descriptions(world):
    cyclic = {"type": "object", "properties": {"child": {"$ref": "#"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}}
    long = [{**STOCK, "name": f"f{n}", "description": "word " * 200_000} for n in range(8)]
    groups = [
        {"type": "namespace", "name": f"n{n}", "description": "x" * 10_000, "tools": [STOCK] * 1} for n in range(100)
    ]
    tools = [{**REFUND, "parameters": cyclic}, *long, *groups, SEARCH]
    script(world, calls(("tool_search", {"query": "refund " * 10_000})), calls(("refund", {})))
    final = fold(await stream_of(world, {"input": "x", "tools": tools}))
    assert final["output"][1]["tools"][0]["name"] == "refund"
    searching = orjson.loads(world.chat.requests[0].body)["tools"][0]["function"]["description"]
    assert len(searching) < 20_000
    assert searching.endswith("more")


async def test_what_agents_always_send_is_dropped_inside_of_items_too(world):
    script(world, said("Done."))
    tools = [{**WEATHER, "async": False}, {"type": "image_generation"}, {**FOUND, "tools": [{**STOCK, "async": True}]}]
    more = {"type": "additional_tools", "role": "developer", "tools": [*tools, SEARCH]}
    await stream_of(world, {"input": [more, {"role": "user", "content": "x"}]})
    assert tools_of(world) == ["weather", "tool_search"]


async def test_servers_and_unknown_tools_are_not_brought_by_items(world):
    server = {"type": "mcp", "server_label": "a", "server_url": "https://a.example", "authorization": "secret"}
    for tool in (server, {"type": "computer"}, {"type": "nonsense"}):
        more = {"type": "additional_tools", "role": "developer", "tools": [tool]}
        status, param, message = await refused(world, input=[more])
        assert (status, param) == (400, "input[0].tools[0].type")
        assert "secret" not in message
