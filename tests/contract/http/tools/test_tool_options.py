"""`max_tool_calls`, `parallel_tool_calls` and `tool_choice` with each of our tools, however a response is made."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from serve_app.operations.responses.tools.contract import NO_MORE_CALLS
from tests.contract.http.answers import MODEL, USAGE, pieces, said
from tests.contract.http.batch_calls import finish, jsonl, lines_of, submit
from tests.contract.http.file_search_calls import filled_store
from tests.contract.http.response_calls import calling
from tests.twins.engine import Script
from tests.twins.legal import fold, split
from tests.waiting import eventually

ARGUMENTS = {
    "code_interpreter": '{"code":"print(6 * 7)"}',
    "file_search": '{"queries":["moon"]}',
    "web_search": '{"query":"lisbon"}',
    "store__stock": '{"thing":"nails"}',
}
KINDS = dict(zip(ARGUMENTS, ("code_interpreter_call", "file_search_call", "web_search_call", "mcp_call"), strict=True))


@dataclass
class Asked:
    """A model that calls the tool it is offered: twice at once, or twice in turn where it may not do so at once."""

    bodies: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {name: [] for name in ARGUMENTS})

    def play(self, request) -> Script:
        body = orjson.loads(request.body)
        messages = body["messages"]
        name = next(message["content"] for message in messages if message["role"] == "user").partition(" ")[0]
        self.bodies[name].append(body)
        roles = [message["role"] for message in messages]
        num_calls = roles[::-1][: roles[::-1].index("user")].count("tool")
        is_one_by_one = body.get("parallel_tool_calls") is False
        if not body.get("tools") or body.get("tool_choice") == "none" or num_calls >= (2 if is_one_by_one else 1):
            return Script(pieces(request, said("Done.")), USAGE)
        calls = [(f"call_{n}", name, ARGUMENTS[name]) for n in range(1 if is_one_by_one else 2)]
        return Script(pieces(request, calling(*calls)), USAGE)


@pytest.fixture
async def tools(world, interpreter, vector_stores, indexer, web, mcp_server) -> dict[str, dict[str, Any]]:
    """Each tool as a request names it, by the name of the function that the model calls."""
    store = await filled_store(world, indexer, {"moon.md": "The moon is made of cheese."})
    remote = {"type": "mcp", "server_label": "store", "server_url": mcp_server.url, "require_approval": "never"}
    named = (
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "file_search", "vector_store_ids": [store.id]},
        {"type": "web_search"},
        remote,
    )
    return dict(zip(ARGUMENTS, named, strict=True))


async def plain(world, body):
    async with world.http() as http:
        answer = await http.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def streamed(world, body):
    async with world.http() as http:
        return fold(split((await http.post("/v1/responses", json={**body, "stream": True})).content))


async def background(world, body):
    begun = await plain(world, {**body, "background": True})
    await eventually(lambda: world.stored.status(begun["id"]) not in ("queued", "in_progress"), 60)
    return (await world.stored.turns())[begun["id"]].response


async def continued(world, body):
    """Return a response that follows one in which as many calls were made."""
    first = await streamed(world, body)
    return await streamed(world, {**body, "previous_response_id": first["id"]})


ONE_BY_ONE = {"plain": plain, "streamed": streamed, "background": background, "continued": continued}


@pytest.fixture(params=[*ONE_BY_ONE, "batch"])
def respond(request, world) -> Callable[..., Any]:
    """What makes a response of each of some bodies, in one of the ways in which there are responses."""

    async def in_turn(bodies):
        return [await ONE_BY_ONE[request.param](world, body) for body in bodies]

    async def in_a_batch(bodies):
        client = world.client()
        lines = [
            {"custom_id": str(n), "method": "POST", "url": "/v1/responses", "body": body}
            for n, body in enumerate(bodies)
        ]
        batch = await finish(client, await submit(client, jsonl(*lines), endpoint="/v1/responses"))
        return [line["response"]["body"] for line in await lines_of(client, batch.output_file_id)]

    return in_a_batch if request.param == "batch" else in_turn


@pytest.mark.parametrize(
    ("options", "num_calls"),
    [({}, 2), ({"max_tool_calls": 1}, 1), ({"parallel_tool_calls": False}, 2)],
    ids=["two at once", "one at most", "one at a time"],
)
async def test_each_tool_honours_them_however_a_response_is_made(world, tools, batching, respond, options, num_calls):
    asked = Asked()
    world.chat.script = asked.play
    bodies = [{"model": MODEL, "input": name, "tools": [tool], **options} for name, tool in tools.items()]
    for name, response in zip(tools, await respond(bodies), strict=True):
        assert response["status"] == "completed", response
        assert {key: response[key] for key in options} == options
        output = [item for item in response["output"] if item["type"] != "mcp_list_tools"]
        assert [item["type"] for item in output] == [*[KINDS[name]] * num_calls, "message"]
        assert all(item["status"] == "completed" for item in output), output
        told = [message["content"] for message in asked.bodies[name][-1]["messages"] if message["role"] == "tool"][-2:]
        assert [text == NO_MORE_CALLS for text in told] == [False, num_calls == 1]
        is_told = [body.get("parallel_tool_calls") is False for body in asked.bodies[name] if body.get("tools")]
        assert set(is_told) == {"parallel_tool_calls" in options}
        assert bool(asked.bodies[name][-1].get("tools")) == (num_calls == 2)


CHOICES: dict[str, dict[str, Any]] = {
    "code_interpreter": {"type": "code_interpreter"},
    "file_search": {"type": "file_search"},
    "web_search": {"type": "web_search"},
    "store__stock": {"type": "mcp", "server_label": "store", "name": "stock"},
}


async def test_each_tool_can_be_chosen_or_forbidden_however_a_response_is_made(world, tools, batching, respond):
    asked = Asked()
    world.chat.script = asked.play
    choices = [choice for name in tools for choice in (CHOICES[name], "none")]
    bodies = [
        {"model": MODEL, "input": f"{name} {number}", "tools": [tools[name]], "tool_choice": choice}
        for number, (name, choice) in enumerate(zip([name for name in tools for _ in range(2)], choices, strict=True))
    ]
    for body, response in zip(bodies, await respond(bodies), strict=True):
        name, choice = body["input"].partition(" ")[0], body["tool_choice"]
        assert (response["status"], response["tool_choice"]) == ("completed", choice), response
        output = [item["type"] for item in response["output"] if item["type"] != "mcp_list_tools"]
        assert output == ([] if choice == "none" else [KINDS[name]] * 2) + ["message"]
        told = [one for one in asked.bodies[name] if one["messages"][-1]["content"] == body["input"]]
        # The web search is several functions; any of them will do.
        forced = "required" if name == "web_search" else {"type": "function", "function": {"name": name}}
        assert told
        assert all(one["tool_choice"] == ("none" if choice == "none" else forced) for one in told)
