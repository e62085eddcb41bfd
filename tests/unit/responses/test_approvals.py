"""Calls of remote tools in a conversation: what was approved, and what the model reads of it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.errors.api import BadRequest
from serve_app.operations.responses.prompt.history import History
from serve_app.operations.responses.prompt.outputs import NO_OUTPUT
from serve_app.operations.responses.storage import items_of
from serve_app.operations.responses.tools.tool_set import approved_requests, check_approvals, function_name

USER = {"role": "user", "content": "a"}
SAID = {"role": "assistant", "content": "a"}


def request(number=1, label="store"):
    return {
        "type": "mcp_approval_request",
        "id": f"mcpr_{number}",
        "server_label": label,
        "name": "order",
        "arguments": "{}",
    }


def response(number=1, approve=True, **more):
    return {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{number}", "approve": approve, **more}


def call(**more):
    return {"type": "mcp_call", "id": "mcp_1", "server_label": "store", "name": "order", "arguments": "{}", **more}


def messages(*items):
    return History(items_of(items)).messages()


@given(st.text(min_size=1, max_size=80), st.text(min_size=1, max_size=200))
def test_names_of_functions_are_such_and_tell_tools_apart(label, name):
    made = function_name(label, name)
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", made)
    assert made != function_name(label, name + "!")


@pytest.mark.parametrize(("one", "other"), [(("a", "b__c"), ("a__b", "c")), (("a", "_b"), ("a_", "b"))])
def test_no_server_takes_the_names_of_another(one, other):
    assert function_name(*one) != function_name(*other)


def test_a_plain_name_stays_readable():
    assert function_name("store", "order") == "store__order"
    assert function_name("store", "order now").startswith("store__order_now_")


@pytest.mark.parametrize(
    ("items", "approved"),
    [
        ([USER, request(), response()], [1]),
        ([USER, request(), response(), USER], [1]),
        ([USER, request(1), request(2), response(2), response(1)], [2, 1]),
        ([USER, request(1), request(2), response(1, False), response(2)], [2]),
        ([USER, request(), response(), response()], [1]),
        ([USER, request(), response(), call(approval_request_id="mcpr_1")], []),
        ([USER, request(), response(), SAID, USER], []),
        ([USER, request()], []),
    ],
)
def test_what_was_just_approved(items, approved):
    kept = items_of(items)
    assert [one["id"] for one in approved_requests(kept)] == [f"mcpr_{number}" for number in approved]


def test_an_approval_needs_its_server():
    kept = items_of([request(), response()])
    check_approvals(kept, {"store", None})
    with pytest.raises(BadRequest, match="'store'"):
        check_approvals(kept, {"other"})


def test_an_approved_call_is_left_out_until_it_is_made_and_then_stands_where_it_was_asked_for():
    assert messages(USER, request(), response(), USER) == [USER, USER]
    told = messages(USER, request(), response(), call(approval_request_id="mcpr_1", output="Done."), SAID)
    assert [message["role"] for message in told] == ["user", "assistant", "tool", "assistant"]
    assert told[1]["tool_calls"][0]["function"]["name"] == "store__order"
    assert told[2]["content"] == "Done."


def test_a_call_without_output_tells_why():
    error = {"type": "http_error", "code": 503, "message": "Away."}
    assert messages(USER, call(error=error))[2]["content"].startswith("The call failed:")
    assert "Away." in messages(USER, call(error=error))[2]["content"]
    assert messages(USER, call())[2]["content"] == NO_OUTPUT


def test_declined_and_undecided_calls_are_told_as_such():
    assert messages(USER, request(), response(approve=False, reason="No."))[2]["content"].endswith("The reason: No.")
    assert messages(USER, request(), response(approve=False))[2]["content"].endswith("declined it.")
    assert messages(USER, request(), USER)[2]["content"].endswith("has not approved it.")


def test_an_approval_of_nothing_is_named():
    with pytest.raises(BadRequest) as caught:
        History(items_of([USER, response()]), own_from=1)
    assert caught.value.param == "input[0].approval_request_id"


def test_stored_items_have_ids_and_no_status_that_they_do_not_have():
    listed = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "store", "tools": [], "error": None}
    kept = items_of([listed, request(), response(), call(status="failed")])
    assert [one["id"].partition("_")[0] for one in kept] == ["mcpl", "mcpr", "mcpa", "mcp"]
    assert ["status" in one for one in kept] == [False, False, False, True]
