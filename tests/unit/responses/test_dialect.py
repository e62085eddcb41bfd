"""Refusals of the chat that makes a response name the fields of the response."""

import pytest

from deployments.models.contract.errors import RequestRejected
from serve_app.operations.responses.prompt.dialect import allowed_functions, translated
from serve_app.schemas.responses.functions import functions_of
from serve_app.schemas.responses.request import PromptedRequest

SEARCH = {"type": "web_search"}


def function(name):
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    ("tools", "choice", "param", "expected"),
    [
        ([function("f")], "required", "tools[0].function.parameters", "tools[0].parameters"),
        ([SEARCH, function("f"), function("g")], "auto", "tools[1].function.parameters", "tools[2].parameters"),
        (
            [function("f"), function("g")],
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]},
            "tools[0].function.parameters",
            "tools[1].parameters",
        ),
        ([SEARCH, function("f")], "auto", "tools[1].function.parameters", "tools"),
        ([], None, "response_format.json_schema.schema", "text.format.schema"),
    ],
)
def test_a_schema_that_is_refused_has_the_client_s_own_field(tools, choice, param, expected):
    request = PromptedRequest.model_validate({"model": "m", "tools": tools or None, "tool_choice": choice})
    own = allowed_functions(request, list(functions_of(request.tools)))
    refused = translated(RequestRejected(f"Invalid schema for '{param}': no.", param, "invalid_value"), own)
    assert (refused.param, refused.message) == (expected, f"Invalid schema for '{expected}': no.")
