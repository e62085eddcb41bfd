"""The one list of operations: whatever code demands of a key is a scope that a key can have."""

import re
from typing import get_args

import pytest
from pydantic import ValidationError

from deployments.models.config import ModelConfig
from deployments.operations import MODEL_OPERATIONS, Operation, Task, operations_of
from deployments.state.identity.keys import NewKey
from deployments.tools.config import ToolsConfig
from serve_app.asgi import ROUTES
from serve_app.operations.scopes import check_operation
from serve_app.schemas.responses.built_in_tool import BuiltInTool
from serve_app.schemas.responses.code_interpreter import CodeInterpreterTool
from tests.twins.keys import principal_of_key

TOOLS = {tool: tool.tool for tool in BuiltInTool.__subclasses__()}


def test_names_that_databases_hold_stay():
    assert list(Operation) == [
        *("chat", "completions", "embeddings", "responses", "tokenize", "detokenize", "rerank", "score"),
        "moderations",
        *("files", "batches", "webhooks"),
        *("code_interpreter", "file_search", "web_search", "mcp"),
        "usage",
    ]


@pytest.mark.parametrize("operation", Operation)
def test_a_key_can_have_every_operation_as_its_scope(operation):
    principal = principal_of_key(operations=[operation.value])
    assert principal.operations == {operation.value}
    check_operation(principal, operation)


def test_a_key_can_have_all_scopes_at_once_and_no_other():
    assert NewKey(operations=tuple(Operation)).operations == tuple(Operation)
    with pytest.raises(ValidationError, match="Input should be 'chat', 'completions'") as refused:
        NewKey(operations=("telepathy",))
    assert all(f"'{operation}'" in str(refused.value) for operation in Operation)


def test_every_tool_in_a_request_demands_a_scope_that_its_configuration_is_named_after():
    assert CodeInterpreterTool in TOOLS
    assert set(TOOLS.values()) == set(Operation) & ToolsConfig.model_fields.keys()
    assert all(isinstance(scope, Operation) for scope in TOOLS.values())


@pytest.mark.parametrize("operation", MODEL_OPERATIONS)
def test_what_a_model_answers_has_a_route_and_a_task(operation):
    about = MODEL_OPERATIONS[operation]
    for path in about.paths:
        assert [route.path for route in ROUTES if route.path == path and route.methods == {"POST"}]
    model = {"id": "m", "source": "demo:chat", "max_model_len": 8}
    for task in get_args(Task):
        if task in about.tasks:
            offered = ModelConfig(**model, task=task, operations=[operation.value])
            assert offered.card.operations == {operation}
            assert ModelConfig(**model, task=task).card.operations == operations_of(task)
        else:
            with pytest.raises(ValidationError, match=f"{operation} cannot be offered by a model whose task is {task}"):
                ModelConfig(**model, task=task, operations=[operation.value])


def test_a_model_offers_no_operation_that_needs_none():
    with pytest.raises(ValidationError, match=re.escape("operations: files, mcp cannot be offered")):
        ModelConfig(id="m", source="demo:chat", max_model_len=8, operations=["mcp", "files", "chat"])
    listed = ModelConfig.model_json_schema()["properties"]["operations"]["anyOf"][0]["items"]["enum"]
    assert listed == [operation.value for operation in MODEL_OPERATIONS if operation != "moderations"]
