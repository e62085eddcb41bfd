import json

from hypothesis import given
from hypothesis import strategies as st

from deployments.models.contract.engine import Usage
from deployments.models.contract.events import (
    Finished,
    Logprobs,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStart,
)
from deployments.models.contract.render import ChatBody, ChatChunks, EventLines, parse_events

TEXT = st.text(max_size=20)
CHOICE = st.integers(0, 2)


def chunks_of(data: bytes) -> list:
    events = data.decode().split("\n\n")
    assert events.pop() == ""
    assert all(event.startswith("data: ") for event in events)
    contents = [event.removeprefix("data: ") for event in events]
    return [content if content == "[DONE]" else json.loads(content) for content in contents]


def render(events, include_usage=False):
    renderer = ChatChunks("chatcmpl-1", "a/model", 17, include_usage=include_usage)
    return chunks_of(b"".join(renderer.events([event]) for event in events) + renderer.finish(Usage(3, 2, 1)))


def test_a_stream_has_the_role_first_then_text_then_the_reason_then_done():
    first, text, last, done = render([TextDelta("text", 0, "Hé\n"), Finished("finished", 0, "stop")])
    assert first["choices"] == [
        {
            "index": 0,
            "delta": {"role": "assistant", "content": "", "refusal": None},
            "logprobs": None,
            "finish_reason": None,
        }
    ]
    assert text["choices"][0]["delta"] == {"content": "Hé\n"}
    assert last["choices"][0]["delta"] == {}
    assert last["choices"][0]["finish_reason"] == "stop"
    assert done == "[DONE]"
    assert {(chunk["id"], chunk["created"], chunk["model"]) for chunk in (first, text, last)} == {
        ("chatcmpl-1", 17, "a/model")
    }
    assert "usage" not in text


def test_a_stream_ends_with_usage_and_carries_null_before_when_it_was_asked_for():
    *chunks, usage, done = render([TextDelta("text", 0, "a")], include_usage=True)
    assert all(chunk["usage"] is None for chunk in chunks)
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 5
    assert usage["usage"]["prompt_tokens_details"]["cached_tokens"] == 1
    assert done == "[DONE]"


def test_a_tool_call_starts_with_its_name_and_goes_on_with_arguments():
    events = [ToolCallStart("tool_call", 0, 0, "call_1", "f"), ToolArgumentsDelta("tool_arguments", 0, 0, '{"a":')]
    _, start, more, _ = render(events)
    assert start["choices"][0]["delta"]["tool_calls"] == [
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
    ]
    assert more["choices"][0]["delta"]["tool_calls"] == [{"index": 0, "function": {"arguments": '{"a":'}}]


def test_a_call_of_a_custom_tool_has_its_input_as_text():
    events = [
        ToolCallStart("tool_call", 0, 0, "call_1", "f"),
        ToolArgumentsDelta("tool_arguments", 0, 0, "{}"),
        ToolCallStart("tool_call", 0, 1, "call_2", "shell", True),
        ToolArgumentsDelta("tool_arguments", 0, 1, 'say "a"'),
    ]
    *_, start, more, _ = render(events)
    assert start["choices"][0]["delta"]["tool_calls"] == [
        {"index": 1, "id": "call_2", "type": "custom", "custom": {"name": "shell", "input": ""}}
    ]
    assert more["choices"][0]["delta"]["tool_calls"] == [{"index": 1, "custom": {"input": 'say "a"'}}]
    body = ChatBody("id", "m", 1)
    body.events([*events, Finished("finished", 0, "tool_calls")])
    assert json.loads(body.finish(Usage()))["choices"][0]["message"]["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "call_2", "type": "custom", "custom": {"name": "shell", "input": 'say "a"'}},
    ]


def test_a_thought_has_both_names():
    _, chunk, _ = render([ReasoningDelta("reasoning", 0, "hm")])
    assert chunk["choices"][0]["delta"] == {"reasoning": "hm", "reasoning_content": "hm"}


def test_the_first_chunk_of_a_choice_counts_none_of_its_tokens():
    renderer = ChatChunks("chatcmpl-1", "m", 1, include_usage=True)
    renderer.count(7, 1)
    data = renderer.text(0, "a")
    renderer.count(7, 2)
    data += renderer.text(0, "b") + renderer.events([Finished("finished", 0, "stop")])
    counted = [chunk["usage"] for chunk in chunks_of(data)]
    assert [usage["completion_tokens"] for usage in counted] == [0, 1, 2, 2]
    assert {usage["total_tokens"] - usage["completion_tokens"] for usage in counted} == {7}


def test_log_probabilities_ride_on_the_delta_before_them():
    logprobs = [{"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}]
    renderer = ChatChunks("chatcmpl-1", "m", 1, include_usage=False)
    data = renderer.events([TextDelta("text", 0, "a"), Logprobs("logprobs", 0, logprobs)])
    chunk = chunks_of(data)[1]
    assert chunk["choices"][0]["delta"] == {"content": "a"}
    assert chunk["choices"][0]["logprobs"]["content"] == logprobs


@given(st.lists(st.tuples(CHOICE, TEXT), max_size=20))
def test_text_renders_like_a_text_event(deltas):
    one, other = (ChatChunks("id", "m", 1, include_usage=True) for _ in range(2))
    assert b"".join(one.text(choice, text) for choice, text in deltas) == b"".join(
        other.events([TextDelta("text", choice, text)]) for choice, text in deltas
    )


@given(st.lists(st.tuples(CHOICE, TEXT), min_size=1, max_size=20))
def test_the_chunks_of_a_stream_add_up_to_the_body(deltas):
    events = [TextDelta("text", choice, text) for choice, text in deltas]
    events += [Finished("finished", choice, "length") for choice in sorted({choice for choice, _ in deltas})]
    body = ChatBody("id", "m", 1)
    assert body.events(events) == b""
    said = {choice["index"]: choice for choice in json.loads(body.finish(Usage()))["choices"]}
    streamed: dict[int, str] = {}
    for chunk in render(events)[:-1]:
        choice = chunk["choices"][0]
        streamed[choice["index"]] = streamed.get(choice["index"], "") + choice["delta"].get("content", "")
    assert streamed == {index: choice["message"]["content"] for index, choice in said.items()}
    assert all(choice["finish_reason"] == "length" for choice in said.values())


def test_content_is_null_when_a_body_holds_only_tool_calls():
    body = ChatBody("id", "m", 1)
    body.events(
        [
            ReasoningDelta("reasoning", 0, "hm"),
            ToolCallStart("tool_call", 0, 0, "call_1", "f"),
            ToolArgumentsDelta("tool_arguments", 0, 0, "{}"),
        ]
    )
    message = json.loads(body.finish(Usage()))["choices"][0]["message"]
    assert message["content"] is None
    assert message["reasoning_content"] == message["reasoning"] == "hm"
    assert message["tool_calls"] == [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


def test_events_come_back_the_same_when_they_cross_as_lines():
    events = [
        TextDelta("text", 0, "a"),
        ReasoningDelta("reasoning", 1, "b"),
        ToolCallStart("tool_call", 0, 0, "call_1", "f"),
        ToolArgumentsDelta("tool_arguments", 0, 0, "{}"),
        Logprobs("logprobs", 0, [{"token": "a"}]),
        Finished("finished", 0, "tool_calls"),
    ]
    lines = EventLines()
    assert parse_events(lines.events(events)) == events
    assert parse_events(lines.text(2, "x")) == [TextDelta("text", 2, "x")]
