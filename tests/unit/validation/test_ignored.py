"""What clients send without effect is dropped wherever it is, and nothing else is."""

import orjson
import pytest

from serve_app.errors.api import UnparsableBody
from serve_app.validation.ignored import ClientsConfig, Ignored, ignored_by

TOOL = {"type": "function", "name": "f", "async": True}
NAMESPACE = {"type": "namespace", "name": "n", "tools": [TOOL, "no object"]}


def read(body, *fields, tools=(), offered=()):
    config = ClientsConfig(ignored_fields=fields, ignored_tools=tools)
    return ignored_by(config, offered).read(orjson.dumps(body))


def test_fields_are_dropped_at_every_depth_of_their_paths():
    body = {
        "client_metadata": {"a": 1},
        "input": [{"async": 1, "tools": [NAMESPACE]}, "text", {"client_metadata": 2}],
        "tools": [NAMESPACE, TOOL],
        "async": True,
    }
    function = {"type": "function", "name": "f"}
    namespace = {**NAMESPACE, "tools": [function, "no object"]}
    sent = read(body)
    assert sent.value == {
        "input": [{"tools": [namespace]}, "text", {"client_metadata": 2}],
        "tools": [namespace, function],
        "async": True,
    }
    assert orjson.loads(sent.raw) == sent.value


def test_a_body_without_them_keeps_its_bytes():
    raw = b'{ "input" : [1, {"role": "user"}], "tools": [{"type": "function"}] }'
    assert ignored_by(ClientsConfig()).read(raw).raw is raw


@pytest.mark.parametrize("fields", [("a", "a.b"), ("a.b", "a")])
def test_a_field_is_dropped_whole_even_if_a_part_of_it_is_named_too(fields):
    assert read({"a": {"b": 1, "c": 2}, "d": 3}, *fields).value == {"d": 3}


def test_lists_in_lists_and_fields_of_other_kinds_are_passed():
    assert read({"a": [[{"b": 1, "c": 2}], {"b": 1}, 3]}, "a[][].b").value == {"a": [[{"c": 2}], {"b": 1}, 3]}
    for value in (None, 1, "b", [1], {"x": 1}):
        assert read({"a": value}, "a.b", "a[].b").value == {"a": value}


def test_tools_are_dropped_unless_the_service_has_them():
    search, computer = {"type": "web_search"}, {"type": "computer"}
    body = {"tools": [search, computer, TOOL | {"async": None}], "input": [{"tools": [search]}]}
    function = {"type": "function", "name": "f"}
    assert read(body).value == {"tools": [computer, function], "input": [{"tools": []}]}
    assert read(body, tools=("computer",), offered=("web_search",)).value == {
        "tools": [search, function],
        "input": [{"tools": [search]}],
    }


@pytest.mark.parametrize("raw", [b"", b"[]", b'"tools"', b'{"a":'])
def test_what_is_no_object_is_refused(raw):
    with pytest.raises(UnparsableBody):
        Ignored().read(raw)
