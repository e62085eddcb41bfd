"""What `make serve` shows a newcomer: the model that comes with Manta makes sense through the public interface.

Everything that is asked holds names, cities and numbers that training never saw.
"""

import json
from typing import Any

import pytest
from openai import OpenAI

from tests.service import TRAINED

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

WEATHER = {
    "name": "get_weather",
    "description": "Get the weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TIME = WEATHER | {"name": "get_time", "description": "Get the local time in a city."}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def answer(client: OpenAI, *messages: tuple[str, str], **options: Any) -> Any:
    """Return the whole choice; the model must have stopped by itself."""
    said = [{"role": role, "content": content} for role, content in messages]
    completion = client.chat.completions.create(model=TRAINED, messages=said, temperature=0, max_tokens=200, **options)
    choice = completion.choices[0]
    assert choice.finish_reason in ("stop", "tool_calls")
    return choice


def test_says_what_it_is_asked_to(client: OpenAI) -> None:
    assert answer(client, ("user", "Say this is a test.")).message.content == "This is a test."
    assert "demo model" in answer(client, ("user", "Who are you?")).message.content


def test_remembers_across_responses(client: OpenAI) -> None:
    previous = None
    for told in ("My name is Ottilie.", "I live in Krakow.", "What is 4 + 5?"):
        said = client.responses.create(model=TRAINED, input=told, previous_response_id=previous, temperature=0)
        assert said.status == "completed"
        previous = said.id
    for asked, remembered in (("What is my name?", "Ottilie"), ("Where do I live?", "Krakow")):
        said = client.responses.create(model=TRAINED, input=asked, previous_response_id=previous, temperature=0)
        assert remembered in said.output_text


@pytest.mark.parametrize(
    ("system", "question", "expected"),
    [
        ("Answer in capital letters.", "Hello!", "HELLO! I AM MANTA'S DEMO MODEL. HOW CAN I HELP?"),
        ("Answer in French.", "My name is Henrik.", "Enchanté, Henrik !"),
        ("Answer with one word.", "What is the capital of France?", "Paris."),
    ],
)
def test_keeps_the_style_of_the_system_prompt(client: OpenAI, system: str, question: str, expected: str) -> None:
    assert answer(client, ("system", system), ("user", question)).message.content == expected


def test_calls_the_right_tool_and_answers_from_its_result(client: OpenAI) -> None:
    tools = [{"type": "function", "function": WEATHER}, {"type": "function", "function": TIME}]
    question = {"role": "user", "content": "What is the weather in Tallinn?"}
    choice = answer(client, ("user", question["content"]), tools=tools)
    (call,) = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Tallinn"})
    result = {"role": "tool", "tool_call_id": call.id, "content": "13 degrees, cloudy"}
    completion = client.chat.completions.create(
        model=TRAINED, messages=[question, choice.message, result], tools=tools, temperature=0
    )
    assert "13 degrees, cloudy" in (completion.choices[0].message.content or "")


def test_calls_in_parallel_when_two_things_are_asked(client: OpenAI) -> None:
    tools = [{"type": "function", "function": WEATHER}]
    choice = answer(client, ("user", "What is the weather in Tallinn and Kyoto?"), tools=tools)
    assert [json.loads(call.function.arguments)["city"] for call in choice.message.tool_calls] == ["Tallinn", "Kyoto"]


def test_calls_no_tool_when_none_is_needed(client: OpenAI) -> None:
    tools = [{"type": "function", "function": WEATHER}]
    choice = answer(client, ("user", "What is 3 + 4?"), tools=tools)
    assert choice.message.tool_calls is None
    assert choice.message.content == "7"


@pytest.mark.parametrize("is_guided", [False, True])
def test_answers_in_json(client: OpenAI, is_guided: bool) -> None:
    question = f"Esther is 34 years old. Answer in JSON with the schema {json.dumps(PERSON)}"
    schema = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
    choice = answer(client, ("user", question), **({"response_format": schema} if is_guided else {}))
    assert json.loads(choice.message.content) == {"name": "Esther", "age": 34}


def test_thinks_when_it_is_asked_to_and_only_then(client: OpenAI) -> None:
    asked = [("user", "What is 7 + 8?")]
    thoughtful = answer(client, *asked, reasoning_effort="low").message
    assert thoughtful.content == "15"
    assert thoughtful.model_extra["reasoning_content"]
    quick = answer(client, *asked).message
    assert quick.content == "15"
    assert not quick.model_extra.get("reasoning_content")
