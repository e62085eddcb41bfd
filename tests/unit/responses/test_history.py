"""From items to messages: whatever comes, the chat that results is one that the chat interface takes."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.errors.api import BadRequest
from serve_app.operations.responses.prompt.history import (
    History,
    ServerRun,
    drop_oldest_turns,
    message_tokens,
)
from serve_app.operations.responses.storage import items_of
from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.responses.code_interpreter import NOT_KEPT

PNG = "data:image/png;base64,AA=="


def messages(*items, own_from=0, runs=None, instructions=None):
    return History(items_of(items), own_from, runs).messages(instructions)


def user(text="a"):
    return {"role": "user", "content": text}


def call(call_id="c", **more):
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}", **more}


def output(call_id="c", said="o"):
    return {"type": "function_call_output", "call_id": call_id, "output": said}


def test_text_is_one_message_and_instructions_come_first():
    assert History(items_of("Hi.")).messages("Be kind.") == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi."},
    ]
    assert items_of(None) == []


def test_parts_of_text_are_joined_and_images_keep_their_place():
    text = {"type": "input_text", "text": "Look:"}
    image = {"type": "input_image", "image_url": PNG, "detail": "original"}
    assert messages({"role": "user", "content": [text, text]})[0]["content"] == "Look:\nLook:"
    assert messages({"role": "user", "content": [text, image]})[0]["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": PNG, "detail": "high"}},
    ]


def test_an_assistant_that_thinks_talks_and_calls_is_one_message():
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    said = {
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Well."}, {"type": "refusal", "refusal": "No."}],
    }
    one, other, *outputs = messages(user(), thought, said, call("x"), call("y"), output("y", "2"), output("x", "1"))
    assert one["role"] == "user"
    assert other["content"] == "Well.No."
    assert other["reasoning"] == "Hm."
    assert [made["id"] for made in other["tool_calls"]] == ["x", "y"]
    assert [(m["tool_call_id"], m["content"]) for m in outputs] == [("x", "1"), ("y", "2")]


def test_outputs_come_right_after_their_call_wherever_they_stood():
    told = messages(user(), call(), user("b"), output(said=[{"type": "input_text", "text": "o"}]))
    assert [m["role"] for m in told] == ["user", "assistant", "tool", "user"]
    assert told[2]["content"] == "o"


def test_the_same_call_id_may_come_again_in_a_later_turn():
    told = messages(call(), output(said="1"), user(), call(), output(said="2"))
    assert [m["content"] for m in told if m["role"] == "tool"] == ["1", "2"]


def test_a_call_that_was_cut_off_is_left_out():
    assert [m["role"] for m in messages(user(), call(status="incomplete"), user())] == ["user", "user"]


def test_thoughts_alone_say_nothing_and_summaries_stand_for_them():
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    assert messages(user(), summary) == [user()]
    assert messages(user(), summary, {"role": "assistant", "content": "Yes."})[1]["reasoning"] == "Hm."
    assert messages({"type": "reasoning", "summary": []}, user()) == [user()]
    assert messages(user(), {"role": "assistant", "content": ""})[1] == {"role": "assistant", "content": ""}


def test_what_the_service_ran_is_told_again():
    item = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    history = History([*items_of([user()]), item], runs={"ws_1": ServerRun("search", "{}", "Found.")})
    _, said, answer = history.messages()
    assert said["tool_calls"][0]["function"] == {"name": "search", "arguments": "{}"}
    assert answer["content"] == "Found."


def test_a_call_of_the_code_interpreter_that_a_client_sends_back_is_told_as_far_as_it_says():
    item = {"id": "ci_1", "type": "code_interpreter_call", "container_id": "cntr_1", "code": "1 + 1"}
    shown = {**item, "outputs": [{"type": "logs", "logs": "2"}, {"type": "image", "url": "data:image/png;base64,"}]}
    _, said, answer = messages(user(), shown)
    assert said["tool_calls"][0]["function"] == {"name": "code_interpreter", "arguments": '{"code":"1 + 1"}'}
    assert answer["content"] == "2"
    assert messages(user(), {**item, "outputs": None})[2]["content"] == NOT_KEPT


def test_faults_in_what_was_there_before_have_no_place_of_their_own():
    items = items_of([output("gone"), user()])
    with pytest.raises(BadRequest) as caught:
        History(items, own_from=1)
    assert caught.value.param == "input"


ITEM = st.one_of(
    st.builds(user, st.text(min_size=1, max_size=3)),
    st.builds(lambda role, text: {"role": role, "content": text}, st.sampled_from(["assistant", "system"]), st.text()),
    st.builds(call, st.sampled_from("xyz")),
    st.builds(output, st.sampled_from("xyz"), st.text(max_size=3)),
    st.just({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}),
)


@given(items=st.lists(ITEM, min_size=1, max_size=14), max_tokens=st.integers(0, 200))
def test_any_items_are_refused_or_a_chat_and_stay_one_when_they_are_cut(items, max_tokens):
    try:
        told = messages(*items)
    except BadRequest:
        return
    if not told:
        return
    ChatRequest.model_validate({"model": "m", "messages": told})
    cut = drop_oldest_turns(told, max_tokens)
    ChatRequest.model_validate({"model": "m", "messages": cut})
    assert [m for m in cut if m["role"] == "system"] == [m for m in told if m["role"] == "system"]
    assert cut[-1] == told[-1]
    kept = iter(told)
    assert all(message in kept for message in cut)  # In their order.
    if sum(map(message_tokens, told)) <= max_tokens:
        assert cut == told


@pytest.mark.parametrize(
    "turn",
    [
        [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "fc", "status": "completed"}],
        [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}], "id": "msg"},
            {"type": "compaction", "text": "Said.", "id": "cmp"},
        ],
    ],
    ids=["calls", "compactions"],
)
def test_very_many_items_are_read_quickly(turn):
    started = time.perf_counter()
    History(turn * 25_000)
    assert time.perf_counter() - started < 5


def test_each_compaction_leaves_its_summary_and_the_last_leaves_nothing_of_the_assistant():
    def compaction(text):
        return {"type": "compaction", "id": text, "text": text}

    said = {"type": "message", "role": "assistant", "id": "m", "content": [{"type": "output_text", "text": "Said."}]}
    items = [*items_of([user()]), said, compaction("one"), *items_of([user("b")]), said, compaction("two"), said]
    shown = [(message["role"], message["content"].split("\n")[-1]) for message in History(items).messages()]
    assert shown == [("user", "a"), ("system", "one"), ("user", "b"), ("system", "two"), ("assistant", "Said.")]
