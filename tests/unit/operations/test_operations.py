from dataclasses import replace
from types import SimpleNamespace

import pytest

from deployments.models.contract.engine import Usage
from deployments.models.contract.events import Finished, Logprobs, TextDelta
from deployments.operations import ENGINE_OPERATIONS, TOOLS, Operation
from deployments.state.objects.config import ResolvedObjectStore
from deployments.tools.config import ToolsConfig
from serve_app.errors.api import InvalidKey, PermissionDenied, Unauthenticated
from serve_app.http.auth import bearer_secret
from serve_app.operations.completions import CompletionBody, CompletionChunks, parse_piece
from serve_app.operations.registry import create_operations, create_tooling, find_engine_operation
from serve_app.operations.responses.tools.contract import ToolResources
from serve_app.operations.routing import affinity_of, cache_salts
from serve_app.operations.scopes import check_operation, may_use_model
from serve_app.schemas.base import OperationRequest
from serve_app.schemas.chat import ChatRequest
from tests.twins.engine import MemoryDirectory, Script, ScriptedEngine, model_card
from tests.twins.keys import principal_of_key

PRINCIPAL = principal_of_key(account="acct")
EVENTS = [
    TextDelta("text", 0, 'a "quote"\n'),
    Logprobs("logprobs", 0, [{"tokens": ["a"], "token_logprobs": [-1.0], "top_logprobs": None, "text_offset": [0]}]),
    TextDelta("text", 1, "b"),
    Finished("finished", 1, "length"),
    Finished("finished", 0, "stop"),
]


@pytest.mark.parametrize(
    ("models", "model", "may"),
    [
        (None, "a/b", True),
        (("a/b",), "a/b", True),
        (("a/*",), "a/b/c", True),
        (("a/*", "x"), "x", True),
        (("a/*",), "ab", False),
        (("A/B",), "a/b", False),
        ((), "a", False),
    ],
)
def test_model_scope_takes_ids_and_patterns(models, model, may):
    assert may_use_model(replace(PRINCIPAL, models=models), model) is may


def test_operation_scope_names_the_operation():
    check_operation(PRINCIPAL, Operation.CHAT)
    chats = principal_of_key(operations=["chat"])
    check_operation(chats, Operation.CHAT)
    with pytest.raises(PermissionDenied, match="'embeddings'"):
        check_operation(chats, Operation.EMBEDDINGS)


def test_salt_and_affinity_keep_accounts_apart_and_tell_nothing():
    salt = cache_salts(b"secret")
    a, b = (replace(PRINCIPAL, account=name) for name in "ab")
    assert salt(a) == salt(a)
    assert len({salt(a), salt(b), cache_salts(b"other")(a), salt(a, "own"), salt(b, "own"), salt(a, "other")}) == 6
    assert affinity_of("a", "text") == affinity_of("a", "text")
    assert len({affinity_of("a", "text"), affinity_of("b", "text"), affinity_of("a", "texts")}) == 3
    assert len(affinity_of("a", "text")) == 16
    assert affinity_of("a", "\ud7ff" * 1024)


@pytest.mark.parametrize("header", [None, "", "  ", "Bearer", "Bearer  ", "Basic abc", "sk-abc", "bearer\tsk-abc"])
def test_header_without_a_bearer_key_is_refused(header):
    with pytest.raises(Unauthenticated) as refused:
        bearer_secret(header)
    assert refused.value.code is None


@pytest.mark.parametrize("secret", ["a b", "x" * 513, "sk-é", "sk-\x7f"])
def test_header_with_what_can_be_no_key_is_refused(secret):
    with pytest.raises(InvalidKey):
        bearer_secret(f"Bearer {secret}")


@pytest.mark.parametrize("header", ["Bearer sk-abc", "bearer sk-abc", " BEARER   sk-abc "])
def test_key_is_found_whatever_the_case_of_its_scheme(header):
    assert bearer_secret(header) == "sk-abc"


def test_running_an_operation_starts_nothing():
    engine = ScriptedEngine(model_card("m"), lambda request: Script([b"x"]))
    chat = create_operations(MemoryDirectory([engine]), cache_salts(b"s")).by_name[Operation.CHAT]
    raw = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"n":3,"max_tokens":5}'
    body = ChatRequest.model_validate_json(raw)
    cost = chat.cost(body, PRINCIPAL)
    assert cost.completion_tokens == 15
    assert cost.max_completion_tokens < 3 * 4096
    assert not engine.requests
    outcome = chat.run(body, raw, PRINCIPAL, request_id="req_1", priority=7)
    assert not outcome.is_stream
    assert not engine.streams[0].started.is_set()
    assert engine.requests[0].priority == 7


@pytest.mark.parametrize("name", ENGINE_OPERATIONS)
def test_operation_that_engines_run_is_found_by_its_name(name):
    operation = find_engine_operation(name)
    assert operation.name == name
    assert issubclass(operation.schema, OperationRequest)


def test_every_operation_has_a_path():
    operations = create_operations(MemoryDirectory([]), cache_salts(b"s"))
    assert {path: operation.name for path, operation in operations.by_path().items()} == {
        "/v1/chat/completions": "chat",
        "/v1/completions": "completions",
        "/v1/embeddings": "embeddings",
        "/v1/tokenize": "tokenize",
        "/v1/detokenize": "detokenize",
        "/v1/rerank": "rerank",
        "/v1/score": "score",
        "/v1/moderations": "moderations",
    }


@pytest.mark.parametrize("include_usage", [False, True])
def test_completion_chunks_read_back_as_they_were_written(include_usage):
    renderer = CompletionChunks("cmpl-1", "m", 1, include_usage=include_usage)
    rendered = renderer.events(EVENTS) + renderer.finish(Usage(1, 2))
    assert parse_piece(rendered) == EVENTS
    assert rendered.endswith(b"data: [DONE]\n\n")
    assert (b'"total_tokens":3' in rendered) is include_usage
    assert renderer.text(0, "x") == renderer.events([TextDelta("text", 0, "x")])


def test_completion_body_reads_back_choice_by_choice():
    renderer = CompletionBody("cmpl-1", "m", 1)
    assert renderer.text(0, "") == renderer.events(EVENTS) == b""
    events = parse_piece(renderer.finish(Usage(1, 2)))
    assert events == [EVENTS[0], EVENTS[1], EVENTS[4], EVENTS[2], EVENTS[3]]


SECTIONS = {
    "code_interpreter": {},
    "file_search": {"embedding_model": "m"},
    "web_search": {"provider": {"name": "searxng", "url": "http://search.test"}},
    "mcp": {},
}


def resources(tmp_path, sections) -> ToolResources:
    files = SimpleNamespace(vault=None, clock=None)
    place = ResolvedObjectStore(tmp_path.as_uri())
    config = ToolsConfig.model_validate(sections)
    return ToolResources(config, None, files, MemoryDirectory([]), str, place, {"code_interpreter": None})


async def test_every_tool_of_a_configuration_is_made_and_closed(tmp_path):
    tooling = create_tooling(resources(tmp_path, SECTIONS))
    assert {name: tool.type for name, tool in tooling.built_ins.items()} == {name: name for name in TOOLS}
    assert tooling.containers is tooling.built_ins["code_interpreter"].containers
    assert tooling.file_search is tooling.built_ins["file_search"].search
    await tooling.aclose()


async def test_without_a_section_there_is_no_tool(tmp_path):
    tooling = create_tooling(resources(tmp_path, {}))
    assert (tooling.built_ins, tooling.containers, tooling.file_search) == ({}, None, None)
    await tooling.aclose()
