"""Examples of requests: the bodies are valid, the calls are those of the libraries."""

import ast
import inspect
import subprocess
from operator import attrgetter

import anthropic
import openai
import pytest
from pydantic import BaseModel
from starlette.routing import Route

from serve_app.asgi import ROUTES
from serve_app.documentation.samples import METHODS, example_of, samples_of
from serve_app.routes.endpoint import contract_of

OPERATIONS = [
    (method, route.path_format, contract_of(route.endpoint))
    for route in ROUTES
    for method in sorted(set(route.methods or ()) - {"HEAD"})
]
CLIENTS = {
    "OpenAI": openai.OpenAI(api_key="sk-test", base_url="http://127.0.0.1:1/v1"),
    "Anthropic": anthropic.Anthropic(api_key="sk-test", base_url="http://127.0.0.1:1"),
}


BODIES = [*dict.fromkeys(contract.body for _, _, contract in OPERATIONS if contract.body is not None)]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_every_body_has_an_example_that_is_valid(body: type[BaseModel]) -> None:
    assert body.model_validate_json(
        body.model_validate(example_of(body)).model_dump_json(exclude_unset=True, by_alias=True)
    )
    assert example_of(body)


@pytest.mark.parametrize("operation", METHODS)
def test_methods_are_those_of_the_package_and_take_the_example(operation: str) -> None:
    method, path = operation.split()
    contract = next(contract for *known, contract in OPERATIONS if known == [method, path])
    python = next(one["source"] for one in samples_of(method, path, contract) if one["label"] == "Python")
    call = next(node.value for node in ast.walk(ast.parse(python)) if isinstance(node, ast.Assign) and node.lineno > 3)
    assert isinstance(call, ast.Call)
    client = next(client for name, client in CLIENTS.items() if f"import {name}\n" in python)
    function = attrgetter(METHODS[operation])(client)
    keywords = {keyword.arg: None for keyword in call.keywords if keyword.arg is not None}
    inspect.signature(function).bind(*call.args, **keywords)
    assert ast.unparse(call.func) == f"client.{METHODS[operation]}"


def test_python_parses_and_shells_accept_curl() -> None:
    commands = []
    for method, path, contract in OPERATIONS:
        samples = {one["label"]: one["source"] for one in samples_of(method, path, contract)}
        assert set(samples) == ({"curl", "Python", "Node"} if path.startswith("/v1/") else {"curl"})
        ast.parse(samples.get("Python", ""))
        commands.append(samples["curl"])
    subprocess.run(["sh", "-n"], input="\n".join(commands), text=True, check=True)


def test_other_routes_are_called_through_the_client() -> None:
    route = next(route for route in ROUTES if route.path == "/v1/organization/limits")
    assert isinstance(route, Route)
    python, node = (one["source"] for one in samples_of("GET", route.path, contract_of(route.endpoint))[1:])
    assert 'client.get("/organization/limits", cast_to=object)' in python
    assert 'client.get("/organization/limits")' in node


def test_a_file_is_opened() -> None:
    route = next(one for one in ROUTES if one.path == "/v1/files" and "POST" in (one.methods or ()))
    curl, python, node = (one["source"] for one in samples_of("POST", "/v1/files", contract_of(route.endpoint)))
    assert "-F file=@requests.jsonl" in curl
    assert 'file=open("requests.jsonl", "rb")' in python
    assert 'fs.createReadStream("requests.jsonl")' in node
    assert 'import fs from "node:fs";' in node
