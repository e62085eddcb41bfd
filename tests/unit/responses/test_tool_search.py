"""The ranking of deferred functions, and what it may take."""

import time

import pytest

from serve_app.operations.responses.tools.loading import ClientFunctions, PlacedTool, found_text
from serve_app.operations.responses.tools.search import MAX_FOUND, rank
from serve_app.schemas.responses.functions import FunctionTool, NamespaceTool, functions_of


def function(name, description=None, **properties):
    parameters = {"type": "object", "properties": properties} if properties else None
    return FunctionTool(type="function", name=name, description=description, parameters=parameters)


MAIL = NamespaceTool(
    type="namespace",
    name="mail",
    description="Reads and writes letters.",
    tools=[function("send", "Send a message to someone."), function("list_folders", "List the folders.")],
)
TOOLS = [
    MAIL,
    function("createInvoice", "Bill a customer for an order.", customer={}, amount={}),
    function("get_weather", "Tell the weather of a city.", city={}),
    function("convert", "Change an amount from one currency to another.", currency={}),
]


def names(query):
    return [one.called for one in rank(query, list(functions_of(TOOLS)))]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("send message", "mail__send"),
        ("mail", "mail__list_folders"),
        ("invoices", "createInvoice"),
        ("what is the weather in a city", "get_weather"),
        ("currency", "convert"),
        ("CUSTOMER", "createInvoice"),
        ("folder", "mail__list_folders"),
    ],
)
def test_the_function_that_says_it_comes_first(query, first):
    assert names(query)[0] == first


def test_functions_without_a_word_of_the_query_are_not_found():
    assert names("submarine") == []
    assert names("") == []
    assert rank("x", []) == []


def test_a_rare_word_counts_more_than_a_common_one():
    tools = [function(f"f{n}", "Handle an order.") for n in range(20)] + [function("g", "Handle a refund.")]
    found = rank("order refund", list(functions_of(tools)))
    assert (found[0].called, len(found)) == ("g", MAX_FOUND)


def test_a_search_over_many_long_descriptions_has_a_bound():
    long = "word " * 200_000
    tools = [function(f"f{n}", long) for n in range(4)] + [
        function(f"g{n}", f"number {n} " * 500) for n in range(4_000)
    ]
    started = time.process_time()
    found = rank("number 3999 " * 100_000, list(functions_of(tools)))
    assert found[0].called == "g3999"
    assert time.process_time() - started < 30


def test_the_names_that_were_found_are_those_that_the_model_calls():
    tools = [
        {"type": "namespace", "name": "a", "tools": [{"name": "b"}]},
        {"type": "function", "name": "c"},
        {"type": "shell"},
    ]
    assert found_text(tools) == "These tools can be called now: a__b, c, shell."
    assert found_text([]) == found_text(None) == found_text("x") == found_text([5])


@pytest.mark.timeout(5)
def test_tools_that_come_late_are_read_in_linear_time():
    def placed(name, **place):
        return PlacedTool(function(name), "tools", **place)

    first = [placed(f"first_{number}") for number in range(2_000)]
    later = [placed(f"later_{number % 2_000}", is_later=True) for number in range(40_000)]
    assert len(ClientFunctions([*first, *later, placed("first_0", is_later=True)]).shown(50_000)) == 4_000
