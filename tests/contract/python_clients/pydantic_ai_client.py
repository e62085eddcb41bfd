"""Pydantic AI's quick starts, over chat completions and over responses."""

import pytest
from asks import API_KEY, BASE_URL, HELLO, MODEL, RAIN, Place, weather
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


@pytest.fixture(params=[OpenAIChatModel, OpenAIResponsesModel], ids=["chat completions", "responses"])
def model(request: pytest.FixtureRequest) -> Model:
    made: Model = request.param(MODEL, provider=OpenAIProvider(base_url=BASE_URL, api_key=API_KEY))
    return made


async def test_a_message_is_answered(model: Model) -> None:
    result = await Agent(model, instructions="Be kind.").run("hello")
    assert result.output == HELLO
    usage = result.usage() if callable(result.usage) else result.usage
    assert usage.output_tokens == 3


async def test_an_answer_is_streamed(model: Model) -> None:
    async with Agent(model).run_stream("hello") as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
    assert "".join(pieces) == HELLO
    assert len(pieces) == 3


async def test_a_conversation_goes_on(model: Model) -> None:
    agent = Agent(model)
    first = await agent.run("hello")
    assert (await agent.run("hello", message_history=first.new_messages())).output == HELLO


async def test_a_tool_is_called_and_its_result_read(model: Model) -> None:
    assert (await Agent(model, tools=[weather]).run("call")).output == RAIN


async def test_an_object_is_filled_in_by_a_tool(model: Model) -> None:
    assert (await Agent(model, output_type=Place).run("object")).output == Place(city="Kiel")


async def test_an_object_is_filled_in_by_a_schema(model: Model) -> None:
    assert (await Agent(model, output_type=NativeOutput(Place)).run("object")).output == Place(city="Kiel")
