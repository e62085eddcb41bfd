"""The tool in `dice`, from its configuration to what conversations hold of it; `test_adding` runs this where it is."""

import pytest

from deployments.tools.config import ToolsConfig
from serve_app.operations.registry import create_tooling
from serve_app.operations.responses.tools.contract import ToolResources
from tests.contract.http.answers import MODEL, SECRET, said
from tests.contract.http.response_calls import calls, messages, script

TOOL = {"type": "dice", "sides": 2}


@pytest.fixture(autouse=True)
def dice(world, monkeypatch):
    """The dice, switched on as a configuration does it; they always fall alike."""
    monkeypatch.setattr("serve_app.operations.dice.SystemRandom.randint", lambda *_: 1)
    config = ToolsConfig.model_validate({"dice": {"num_dice": 2}})
    world.built_ins |= create_tooling(ToolResources(config, None, None, world.directory, str, None)).built_ins


async def respond(world, **body):
    async with world.http() as http:
        return await http.post("/v1/responses", json={"model": MODEL, "input": "x", "tools": [TOOL], **body})


def told(world):
    return [message for message in messages(world) if message["role"] == "tool"][-1]["content"]


async def test_model_calls_it_and_the_next_turn_knows(world):
    script(world, calls(("dice", {})), said("Two."), said("Yes."))
    first = (await respond(world, tool_choice={"type": "dice"})).json()
    assert [item["type"] for item in first["output"]] == ["dice_call", "message"]
    assert first["output"][0]["eyes"] == [1, 1]
    assert told(world) == "[1, 1]"
    async with world.http() as http:
        again = await http.get(f"/v1/responses/{first['id']}", params={"stream": "true"})
    assert "response.dice_call.rolling" in again.text
    assert (await respond(world, previous_response_id=first["id"])).status_code == 200
    assert told(world) == "[1, 1]"


async def test_client_may_keep_the_conversation(world):
    script(world, calls(("dice", {})), said("Two."), said("Yes."), said("Yes."))
    output = (await respond(world, store=False)).json()["output"]
    asked = [{"role": "user", "content": "x"}, *output]
    assert (await respond(world, store=False, input=asked)).status_code == 200
    assert told(world) == "[1, 1]"
    kept = (await respond(world, input=asked)).json()
    async with world.http() as http:
        listed = (await http.get(f"/v1/responses/{kept['id']}/input_items", params={"order": "asc"})).json()["data"]
    assert listed[1] == output[0]


async def test_is_refused_where_it_may_not_be_used(world):
    world.principal(SECRET, operations=["responses", "chat"])
    refused = await respond(world)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_permissions")
    refused = await respond(world, tools=[{**TOOL, "sides": 1}])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools[0].sides")
    world.built_ins.clear()
    assert "the tool 'dice' is not switched on" in (await respond(world)).json()["error"]["message"]
