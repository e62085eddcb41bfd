"""OpenAI's Agents SDK over the responses interface: function tools, and a handoff between two agents."""

from typing import Any

import orjson
from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, function_tool

from deployments.models.contract.events import Finished, TextDelta, ToolArgumentsDelta, ToolCallStart
from tests.contract.http.answers import MODEL, USAGE, pieces
from tests.twins.engine import Script

QUIET = RunConfig(tracing_disabled=True)


@function_tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"It rains in {city}."


def call(name: str, arguments: str) -> list[list[Any]]:
    begun = ToolCallStart("tool_call", 0, 0, f"call_{name}", name)
    return [
        [begun],
        [ToolArgumentsDelta("tool_arguments", 0, 0, arguments)],
        [Finished("finished", 0, "tool_calls")],
    ]


def script(request):
    """Hand over, then look the weather up, then say what it is: one step for each message that is there already."""
    messages = orjson.loads(request.body)["messages"]
    steps = sum(message["role"] == "tool" for message in messages)
    if steps == 0:
        return Script(pieces(request, call("transfer_to_weather_agent", "{}")), USAGE)
    if steps == 1:
        return Script(pieces(request, call("weather", '{"city":"Kiel"}')), USAGE)
    said = [[TextDelta("text", 0, "It rains "), TextDelta("text", 0, "in Kiel.")], [Finished("finished", 0, "stop")]]
    return Script(pieces(request, said), USAGE)


def triage(world) -> Agent:
    model = OpenAIResponsesModel(MODEL, world.client())
    expert = Agent(name="Weather agent", instructions="Tell the weather.", model=model, tools=[weather])
    return Agent(name="Triage", instructions="Hand over.", model=model, handoffs=[expert])


async def test_two_agents_hand_over_and_call_a_function(world):
    world.chat.script = script
    result = await Runner.run(triage(world), "How is the weather in Kiel?", run_config=QUIET)
    assert result.final_output == "It rains in Kiel."
    assert result.last_agent.name == "Weather agent"
    last = orjson.loads(world.chat.requests[-1].body)["messages"]
    assert [message["role"] for message in last] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert last[0]["content"] == "Tell the weather."
    assert last[-1]["content"] == "It rains in Kiel."


async def test_the_same_streamed_and_with_the_state_on_the_server(world):
    world.chat.script = script
    agent = triage(world)
    result = Runner.run_streamed(agent, "How is the weather in Kiel?", run_config=QUIET, auto_previous_response_id=True)
    kinds = [event.data.type async for event in result.stream_events() if event.type == "raw_response_event"]
    assert result.final_output == "It rains in Kiel."
    assert kinds.count("response.completed") == 3
    last = orjson.loads(world.chat.requests[-1].body)["messages"]
    assert [message["role"] for message in last] == ["system", "user", "assistant", "tool", "assistant", "tool"]


async def test_a_session_on_the_server_goes_on(world):
    world.chat.script = script
    talk = await world.client().conversations.create()
    agent = triage(world)
    agent.model_settings = ModelSettings(store=True)
    result = await Runner.run(agent, "How is the weather in Kiel?", run_config=QUIET, conversation_id=talk.id)
    assert result.final_output == "It rains in Kiel."
    items = [item async for item in world.client().conversations.items.list(talk.id, order="asc")]
    assert [item.type for item in items] == [
        "message",
        "function_call",
        "function_call_output",
        "function_call",
        "function_call_output",
        "message",
    ]
