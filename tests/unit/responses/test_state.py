"""The state machine of a response: any sequence of what a generation may say becomes a legal stream."""

from itertools import count
from typing import Any

import orjson
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
from deployments.state.responses.values import StoredTurn
from serve_app.operations.containers.tool import CodeInWriting
from serve_app.operations.responses.events.items import NewItems
from serve_app.operations.responses.events.reasoning import OpenReasoning
from serve_app.operations.responses.events.state import ResponseState
from serve_app.operations.responses.events.writer import DONE, frame, type_of
from serve_app.operations.responses.replay import reopen, replay
from tests.twins.legal import fold, split

USAGE = Usage(prompt_tokens=5, completion_tokens=3, cached_tokens=2, reasoning_tokens=1)


class NumberedItems(NewItems):
    def __init__(self) -> None:
        super().__init__()
        self._numbers = count()

    def new_id(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers)}"


def state(server_tools=(), **options) -> ResponseState:
    response: dict[str, Any] = {"id": "resp_1", "output": [], "usage": None, "completed_at": None, "error": None}
    response["incomplete_details"] = None
    machine = ResponseState(response, NumberedItems(), lambda: 1_700_000_000.5, **options)
    machine.use_tools({name: name for name in server_tools}, lambda text: [], lambda name: None)
    return machine


def following(server_tools=("run",), **options) -> ResponseState:
    """Return a state that shows the calls of `run` or `c` while they are written, as code."""
    machine = state(**options)
    numbers = count()

    def follow(name):
        head = {"id": f"ci_{next(numbers)}", "type": "code_interpreter_call", "status": "in_progress"}
        return CodeInWriting({**head, "container_id": "cntr_1", "code": "", "outputs": None}) if name != "s" else None

    machine.use_tools({name: name for name in server_tools}, lambda text: [], follow)
    return machine


def read(events: list[bytes]) -> list[dict[str, Any]]:
    return split(b"".join(map(frame, events)) + DONE)


def play(events, usage: Usage | None = USAGE) -> dict[str, Any]:
    machine = state()
    written = machine.begin()
    for event in events:
        written += machine.take([event])
    written += machine.end_generation(usage) + machine.end()
    return fold(read(written), has_all_keys=False)


def text(*words: str) -> list[TextDelta]:
    return [TextDelta("text", 0, word) for word in words]


def test_text_becomes_one_message():
    final = play([*text("Hello", " you"), Finished("finished", 0, "stop")])
    assert final["status"] == "completed"
    assert final["output"] == [
        {
            "id": "msg_0",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hello you", "annotations": [], "logprobs": []}],
        }
    ]
    assert final["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 8,
    }


def test_reasoning_text_and_two_calls_are_four_items_in_order():
    final = play(
        [
            ReasoningDelta("reasoning", 0, "Hm."),
            *text("Let me see."),
            ToolCallStart("tool_call", 0, 0, "call_a", "first"),
            ToolArgumentsDelta("tool_arguments", 0, 0, '{"a"'),
            ToolArgumentsDelta("tool_arguments", 0, 0, ":1}"),
            ToolCallStart("tool_call", 0, 1, "call_b", "second"),
            Finished("finished", 0, "tool_calls"),
        ]
    )
    assert [item["type"] for item in final["output"]] == ["reasoning", "message", "function_call", "function_call"]
    assert [item.get("arguments") for item in final["output"][2:]] == ['{"a":1}', ""]
    assert [item["call_id"] for item in final["output"][2:]] == ["call_a", "call_b"]


def test_length_leaves_the_last_item_incomplete():
    final = play([*text("Once"), Finished("finished", 0, "length")])
    assert final["status"] == "incomplete"
    assert final["incomplete_details"] == {"reason": "max_output_tokens"}
    assert final["output"][0]["status"] == "incomplete"


def test_silence_is_a_message_without_text():
    final = play([Finished("finished", 0, "stop")])
    assert final["output"][0]["content"][0]["text"] == ""


def test_filtered_prompt_has_no_item():
    final = play([Finished("finished", 0, "content_filter")], Usage())
    assert final["incomplete_details"] == {"reason": "content_filter"}
    assert final["output"] == []


def test_end_without_a_reason_is_a_failure():
    assert play(text("Hello"))["status"] == "failed"


def test_logprobs_are_beside_their_deltas_and_whole_in_the_part():
    token = {
        "token": "a",
        "bytes": [97],
        "logprob": -0.5,
        "top_logprobs": [{"token": "b", "bytes": [98], "logprob": -1}],
    }
    machine = state()
    written = machine.begin() + machine.take([*text("a"), Logprobs("logprobs", 0, [token])])
    written += machine.take([Logprobs("logprobs", 0, [token])])
    written += machine.take([Finished("finished", 0, "stop")]) + machine.end_generation(USAGE) + machine.end()
    events = read(written)
    final = fold(events, has_all_keys=False)
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [event["delta"] for event in deltas] == ["a", ""]
    assert deltas[0]["logprobs"] == [{"token": "a", "logprob": -0.5, "top_logprobs": [{"token": "b", "logprob": -1}]}]
    assert final["output"][0]["content"][0]["logprobs"] == [token, token]


def test_other_choices_and_what_follows_the_end_add_nothing():
    machine = state()
    machine.begin()
    assert machine.take([TextDelta("text", 1, "x")]) == []
    machine.take([*text("a"), Finished("finished", 0, "stop")])
    assert machine.take(text("late")) == []
    machine.end_generation(USAGE)
    machine.end()
    number = machine._writer.number
    assert not machine.take(text("later")) + machine.fail("server_error", "x") + machine.cancel() + machine.end()
    assert machine._writer.number == number


def test_arguments_of_a_finished_call_fail_the_response():
    final = play(
        [
            ToolCallStart("tool_call", 0, 0, "call_a", "first"),
            ToolCallStart("tool_call", 0, 1, "call_b", "second"),
            ToolArgumentsDelta("tool_arguments", 0, 0, "{}"),
        ]
    )
    assert final["status"] == "failed"
    assert [item["status"] for item in final["output"]] == ["completed", "incomplete"]


def test_server_call_is_left_to_the_service_and_its_item_comes_before_the_message():
    machine = state(["search"])
    written = machine.begin()
    written += machine.take([ToolCallStart("tool_call", 0, 0, "call_a", "search")])
    written += machine.take([ToolArgumentsDelta("tool_arguments", 0, 0, "{}"), Finished("finished", 0, "tool_calls")])
    written += machine.end_generation(USAGE)
    (call,) = machine.next_generation()
    assert (call.name, call.call_id, call.arguments) == ("search", "call_a", "{}")
    tool, events = machine.open_tool({"id": "ws_1", "type": "web_search_call", "status": "in_progress"})
    written += [*events, tool.write_event("response.web_search_call.in_progress")]
    tool.item["status"] = "completed"
    written += machine.close_item() + machine.take([*text("Found."), Finished("finished", 0, "stop")])
    written += machine.end_generation(USAGE) + machine.end()
    final = fold(read(written), has_all_keys=False)
    assert [item["type"] for item in final["output"]] == ["web_search_call", "message"]
    assert final["usage"]["output_tokens"] == 6


def test_a_call_is_shown_while_it_is_written_and_what_comes_after_it_waits():
    machine = following()
    written = machine.begin()
    written += machine.take([ToolCallStart("tool_call", 0, 0, "call_a", "run")])
    written += machine.take([ToolArgumentsDelta("tool_arguments", 0, 0, '{"code":"1 +')])
    assert orjson.loads(written[-1])["delta"] == "1 +"
    written += machine.take([ToolArgumentsDelta("tool_arguments", 0, 0, ' 1"}')])
    later = [
        ToolCallStart("tool_call", 0, 1, "call_b", "run"),
        ToolArgumentsDelta("tool_arguments", 0, 1, '{"code":"2"}'),
        ToolCallStart("tool_call", 0, 2, "call_c", "mine"),
        ToolArgumentsDelta("tool_arguments", 0, 2, "{}"),
        *text("Well."),
        Finished("finished", 0, "tool_calls"),
    ]
    assert machine.take(later) + machine.end_generation(USAGE) == []
    (call,) = machine.next_generation()
    written += call.opened.end_writing()
    call.opened.item["status"] = "completed"
    written += machine.close_item() + machine.take_later()
    (second,) = machine.next_generation()
    assert (second.arguments, second.opened.item["status"]) == ('{"code":"2"}', "in_progress")
    second.opened.item["status"] = "completed"
    written += machine.close_item() + machine.take_later()
    assert machine.next_generation() == []
    machine.finish_reason = "tool_calls"
    final = fold(read(written + machine.end()), has_all_keys=False)
    kinds = ["code_interpreter_call", "code_interpreter_call", "function_call", "message"]
    assert [item["type"] for item in final["output"]] == kinds
    assert [item["code"] for item in final["output"][:2]] == ["1 + 1", "2"]


def test_a_call_that_the_model_could_not_finish_is_incomplete_and_what_was_said_after_it_is_told():
    machine = following()
    written = machine.begin()
    written += machine.take([*text("Hm."), ToolCallStart("tool_call", 0, 0, "call_a", "run")])
    written += machine.take([ToolArgumentsDelta("tool_arguments", 0, 0, '{"code":"1 +'), *text("Well")])
    written += machine.take([Finished("finished", 0, "length")]) + machine.end_generation(USAGE) + machine.end()
    final = fold(read(written), has_all_keys=False)
    assert [(item["type"], item["status"]) for item in final["output"]] == [
        ("message", "completed"),
        ("code_interpreter_call", "incomplete"),
        ("message", "incomplete"),
    ]
    assert final["output"][1]["code"] == "1 +"


def test_type_of_reads_what_was_written():
    event = state().begin()[0]
    assert type_of(event) == b"response.created"
    assert orjson.loads(event)["sequence_number"] == 0


def test_what_an_earlier_generation_left_cut_off_is_no_completed_response():
    machine = state()
    machine.begin()
    machine.take([TextDelta("text", 0, "a")])
    machine.end_generation(USAGE)
    machine.next_generation()
    machine.take([Finished("finished", 0, "stop")])
    assert type_of(machine.end()[-1]) == b"response.failed"


TERMINALS = (b"response.completed", b"response.incomplete", b"response.failed")
TEXTS = st.text(max_size=5)
TOKENS = st.lists(
    st.fixed_dictionaries(
        {"token": TEXTS, "bytes": st.none(), "logprob": st.floats(-9, 0), "top_logprobs": st.just([])}
    ),
    max_size=2,
)
CHOICES = st.sampled_from([0, 0, 0, 0, 1])
SAID = st.one_of(
    st.builds(TextDelta, st.just("text"), CHOICES, TEXTS),
    st.builds(ReasoningDelta, st.just("reasoning"), CHOICES, TEXTS),
    st.builds(
        ToolCallStart, st.just("tool_call"), CHOICES, st.integers(0, 3), TEXTS, st.sampled_from("fgsc"), st.booleans()
    ),
    st.builds(
        ToolArgumentsDelta,
        st.just("tool_arguments"),
        CHOICES,
        st.integers(0, 3),
        TEXTS | st.sampled_from(['{"code":"', "print(", '1)"}']),
    ),
    st.builds(Logprobs, st.just("logprobs"), CHOICES, TOKENS),
    st.builds(
        Finished, st.just("finished"), CHOICES, st.sampled_from(["stop", "length", "content_filter", "tool_calls"])
    ),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.lists(SAID, max_size=4)),
        st.tuples(
            st.sampled_from(["generation", "tool", "tell", "close", "later", "fail", "cancel", "end"]), st.none()
        ),
        st.tuples(st.sampled_from(["summarize", "part"]), TEXTS),
    ),
    max_size=25,
)


@given(steps=STEPS, is_queued=st.booleans(), is_begun=st.booleans(), shows=st.booleans(), num_seen=st.integers(0, 99))
def test_any_sequence_is_legal_and_folds_to_the_final_object(  # noqa: C901
    steps, is_queued, is_begun, shows, num_seen
):
    machine = following(("s", "c"), shows_reasoning=shows)
    written = machine.begin(queued=is_queued)
    if is_queued and not is_begun:
        written += machine.cancel()
    elif is_queued:
        written += machine.progress()
    tool = None
    marks = []  # Events are kept in whole batches, so nothing is ever seen of half a batch.
    for step, said in steps:
        marks.append(len(written))
        if machine.has_ended:
            assert (
                not machine.take(said if step == "take" else [])
                + machine.end()
                + machine.fail("server_error", "x")
                + machine.cancel()
            )
            continue
        match step:
            case "take":
                written += machine.take(said)
                tool = None if said else tool
            case "generation":
                written += machine.end_generation(USAGE)
                machine.next_generation()
                tool = None
            case "tool":
                number = machine._writer.number
                tool, events = machine.open_tool({"id": f"xx_{number}", "type": "other_call", "status": "in_progress"})
                written += events
            case "summarize" if isinstance(machine._open, OpenReasoning):
                written += machine._open.summarize(said)
            case "part" if isinstance(machine._open, OpenReasoning):
                written += machine._open.end_part()
            case "tell" if tool is not None:
                written.append(tool.write_event("response.other_call.working"))
            case "later":
                written += machine.close_item() + machine.take_later()
                tool = None
            case "close":
                written += machine.close_item()
                tool = None
            case "fail":
                written += machine.fail("server_error", "It broke.")
            case "cancel":
                written += machine.cancel()
            case "end":
                written += machine.end_generation(USAGE) + machine.end()
    marks.append(len(written))
    if not machine.has_ended:
        written += machine.cancel()
    final = fold(read(written), has_all_keys=False)
    assert final == orjson.loads(orjson.dumps(machine.response))
    assert final["output"] == machine.items
    if not is_queued:
        kept = orjson.loads(orjson.dumps({"response": machine.response, "cuts": machine.cuts}))
        assert replay(StoredTurn(kept["response"], [], {}, kept["cuts"])) == written
        check_given_up(written[: marks[num_seen % len(marks)]])


def check_given_up(seen: list[bytes]) -> None:
    """Assert that another process can legally end a response after these events.

    Events do not tell all of the probabilities of tokens.
    """
    if type_of(seen[-1]) in TERMINALS or any(b'"logprobs":[{' in event for event in seen):
        return
    response = {**orjson.loads(seen[0])["response"], "background": False}
    reopened = reopen(response, seen)
    final = fold(read(seen + reopened.fail("server_error", "It was interrupted.")), has_all_keys=False)
    assert final["output"] == reopened.items
