"""The OpenAPI document: valid, whole, and true of what every operation answers."""

import re
import time
from functools import cached_property

import httpx2
import pytest
from openapi_spec_validator import validate
from starlette.routing import Route

from serve_app.asgi import ROUTES
from serve_app.documentation.document import create_document
from serve_app.documentation.fields import FieldReader
from serve_app.operations.safety.moderation import ModerationConfig
from serve_app.schemas.chat import ChatRequest
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, SECRET
from tests.contract.http.documented import DocumentedApp, document
from tests.contract.http.file_search_calls import store
from tests.contract.http.operator.test_keys import ADMIN, KEYS
from tests.contract.http.operator.test_usage import desk, keep
from tests.contract.http.webhooks.conftest import receiver, webhooks

__all__ = ["desk", "receiver", "store", "webhooks"]

WEBHOOKS = "/v1/webhook_endpoints"

MESSAGES = [{"role": "user", "content": "Say hello."}]
MODELS = ("/v1/chat", "/v1/completions", "/v1/embeddings", "/v1/models")
TOKENS = ("/tokenize", "/v1/tokenize", "/detokenize", "/v1/detokenize")
MODERATIONS = "/v1/moderations"
ANTHROPIC = "/v1/messages"
SCORES = ("/rerank", "/v1/rerank", "/v2/rerank", "/score", "/v1/score")
PAGES = ("/openapi.json", "/docs", "/livez", "/readyz", "/health", "/ping", "/metrics")
KEPT = (
    "/v1/responses",
    "/v1/conversations",
    "/v1/files",
    "/v1/uploads",
    "/v1/batches",
    "/v1/containers",
    "/v1/vector_stores",
    WEBHOOKS,
    "/v1/webhook_event_types",
    "/v1/organization",
)
ORGANIZATION = "/v1/organization"
REPORTS = tuple(
    f"{ORGANIZATION}/{name}"
    for name in ("usage", "costs", "requests", "limits", "latency", "audit_logs", "admin_api_keys", "projects")
)


class Caller:
    """A client whose every answer is checked; the application is made at the first call."""

    def __init__(self, world):
        self._world = world
        self.secret = SECRET

    @cached_property
    def _app(self):
        return DocumentedApp(self._world.app())

    async def __call__(self, method, path, status=200, **more):
        """Return what is answered, as JSON where it is."""
        client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self._app), base_url="http://manta.test")
        async with client:
            client.headers.update({"authorization": f"Bearer {self.secret}", "accept-encoding": "identity"})
            answer = await client.request(method, path, **more)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.headers["content-type"] == "application/json" else answer

    def has_had_every_answer(self, *prefixes):
        wanted = {
            (path, method, media_type)
            for path, operations in document()["paths"].items()
            if path.startswith(prefixes)
            for method, operation in operations.items()
            for media_type in operation["responses"]["200"]["content"]
        }
        assert wanted
        assert {one for one in self._app.answered if one[0].startswith(prefixes)} == wanted


@pytest.fixture
def call(world):
    return Caller(world)


def test_the_document_is_valid():
    validate(document())


def test_every_operation_is_called_below():
    assert all(
        path.startswith((*MODELS, *TOKENS, *SCORES, MODERATIONS, ANTHROPIC, *PAGES, *KEPT))
        for path in document()["paths"]
    )


def test_a_route_says_what_it_answers():
    async def forgotten(request):
        """Answer somehow."""

    with pytest.raises(LookupError, match=r"forgotten needs an `@answers"):
        create_document([*ROUTES, Route("/v1/forgotten", forgotten)], [])


def test_answers_are_whole():
    schemas = document()["components"]["schemas"]
    assert len(schemas["Response"]["properties"]) > 30
    assert {"created_at", "request_counts", "usage"} <= set(schemas["Batch"]["properties"])


def schemas_of_requests():
    """Return every schema that a request's body refers to, by name."""
    schemas, found, pending = document()["components"]["schemas"], {}, []
    for operations in document()["paths"].values():
        for operation in operations.values():
            pending += [body["schema"] for body in operation.get("requestBody", {}).get("content", {}).values()]
    while pending:
        for name in re.findall(r"#/components/schemas/([^']+)'", str(pending.pop())):
            if name not in found:
                found[name] = schemas[name]
                pending.append(schemas[name])
    return found


def test_every_field_of_a_request_is_described():
    bare = []
    for name, schema in schemas_of_requests().items():
        for field, about in schema.get("properties", {}).items():
            inner = FieldReader(document()["components"]["schemas"]).field_of(field, about, is_required=False)
            bare += [f"{name}.{field}"] if not inner.description and "const" not in about else []
    assert bare == []


def test_every_parameter_is_described():
    parameters = [
        (operation["operationId"], parameter)
        for operations in document()["paths"].values()
        for operation in operations.values()
        for parameter in operation.get("parameters", ())
    ]
    assert len(parameters) > 100
    assert [(name, one["name"]) for name, one in parameters if not one.get("description")] == []


def test_required_fields_come_first_then_openais_then_vllms():
    fields = document()["components"]["schemas"]["ChatRequest"]["properties"]
    order = [(name not in ("model", "messages"), about.get("x-vllm", False)) for name, about in fields.items()]
    assert order == sorted(order)
    assert list(fields)[:3] == ["model", "messages", "temperature"]
    assert fields["top_k"]["x-vllm"]


def test_refused_fields_are_left_out():
    fields = document()["components"]["schemas"]["ChatRequest"]["properties"]
    assert {"audio", "vllm_xargs", "chat_template"}.isdisjoint(fields)
    assert {"audio", "vllm_xargs", "chat_template"} <= set(ChatRequest.model_fields)


def test_names_hold_no_modules():
    assert [name for name in document()["components"]["schemas"] if "__" in name or len(name) > 60] == []


def test_operations_have_a_short_summary_a_resource_and_an_id_of_their_own():
    operations = [one for methods in document()["paths"].values() for one in methods.values()]
    tags = {tag["name"] for tag in document()["tags"] if tag["description"]}
    assert [one["summary"] for one in operations if len(one["summary"]) > 60 or one["summary"].endswith(".")] == []
    assert [one["tags"] for one in operations if not tags.issuperset(one["tags"])] == []
    assert len({one["operationId"] for one in operations}) == len(operations)


async def test_models(call):
    chat = {"model": MODEL, "messages": MESSAGES, "logprobs": True, "n": 2}
    for path, body in (("chat/completions", chat), ("completions", {"model": MODEL, "prompt": "Say"})):
        for extra in ({}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}):
            await call("POST", f"/v1/{path}", json={**body, **extra})
    for encoding in ("float", "base64"):
        await call("POST", "/v1/embeddings", json={"model": EMBEDDING_MODEL, "input": "a", "encoding_format": encoding})
    await call("GET", "/v1/models")
    await call("GET", f"/v1/models/{MODEL}")
    await call("GET", "/v1/models/none", 404)
    stored = f"/v1/chat/completions/{(await call('POST', '/v1/chat/completions', json={**chat, 'store': True}))['id']}"
    await call("GET", "/v1/chat/completions?metadata[a]=b")
    await call("GET", "/v1/chat/completions")
    await call("GET", f"{stored}/messages")
    await call("POST", stored, json={"metadata": {}})
    await call("GET", stored)
    await call("DELETE", stored)
    await call("GET", stored, 404)
    call.has_had_every_answer(*MODELS)


async def test_tokens_and_scores(call):
    for path in TOKENS:
        body = {"tokens": [72, 105]} if "detokenize" in path else {"prompt": "Hi", "return_token_strs": True}
        await call("POST", path, json={"model": MODEL, **body})
    await call("POST", "/v1/tokenize", json={"model": MODEL, "messages": MESSAGES})
    for path in SCORES:
        query = "query" if "rerank" in path else "queries"
        for documents in (["a", "b"], [{"text": "a"}]):
            await call("POST", path, json={"model": EMBEDDING_MODEL, query: "q", "documents": documents})
    await call("POST", "/v1/rerank", 400, json={"model": MODEL, "query": "q", "documents": ["a"]})
    call.has_had_every_answer(*TOKENS, *SCORES)


async def test_messages(call):
    body = {"model": MODEL, "messages": MESSAGES}
    await call("POST", ANTHROPIC, json={**body, "max_tokens": 8})
    await call("POST", ANTHROPIC, json={**body, "max_tokens": 8, "stream": True})
    await call("POST", f"{ANTHROPIC}/count_tokens", json=body)
    call.has_had_every_answer(ANTHROPIC)


async def test_moderations(call, world):
    world.moderation = ModerationConfig(patterns={"violence": ("kill",)})
    await call("POST", MODERATIONS, json={"input": ["a", "kill"]})
    await call("POST", MODERATIONS, 404, json={"input": "a", "model": "none"})
    call.has_had_every_answer(MODERATIONS)


async def test_pages(call, world):
    for path in PAGES:
        await call("GET", path)
    world.gatekeeper.unavailable = True
    for path in ("/readyz", "/health", "/ping"):
        await call("GET", path, 503)
    call.has_had_every_answer(*PAGES)


async def test_responses(call, world):
    stored = f"/v1/responses/{(await call('POST', '/v1/responses', json={'model': MODEL, 'input': 'x'}))['id']}"
    await call("POST", "/v1/responses", json={"model": MODEL, "input": "x", "stream": True})
    await call("GET", stored)
    await call("GET", f"{stored}?stream=true")
    await call("GET", f"{stored}/input_items")
    running = await call("POST", "/v1/responses", json={"model": MODEL, "input": "x", "background": True})
    await call("POST", f"/v1/responses/{running['id']}/cancel")
    await call("POST", "/v1/responses/input_tokens", json={"model": MODEL, "input": "x"})
    await call("POST", "/v1/responses/compact", json={"model": MODEL, "input": MESSAGES})
    await call("DELETE", stored)
    await call("GET", stored, 404)
    call.has_had_every_answer("/v1/responses")


async def test_conversations(call):
    talk = f"/v1/conversations/{(await call('POST', '/v1/conversations', json={'metadata': {'a': 'b'}}))['id']}"
    await call("POST", talk, json={"metadata": {}})
    added = await call("POST", f"{talk}/items", json={"items": MESSAGES})
    item = f"{talk}/items/{added['data'][0]['id']}"
    await call("GET", f"{talk}/items")
    await call("GET", item)
    await call("DELETE", item)
    await call("GET", talk)
    await call("DELETE", talk)
    call.has_had_every_answer("/v1/conversations")


async def test_files_and_batches(call, world, batch_stores):
    made = await call("POST", "/v1/files", files={"file": ("in.jsonl", b"{}\n")}, data={"purpose": "batch"})
    file = f"/v1/files/{made['id']}"
    await call("GET", "/v1/files?limit=1")
    await call("GET", file)
    await call("GET", f"{file}/content")
    await call("GET", f"{file}/content", 206, headers={"range": "bytes=0-1"})
    await call("GET", f"{file}/content", 416, headers={"range": "bytes=9-"})
    body = {"input_file_id": made["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = f"/v1/batches/{(await call('POST', '/v1/batches', json=body))['id']}"
    await call("GET", "/v1/batches")
    await call("GET", batch)
    await call("DELETE", file, 409)
    world.principal(ADMIN, key_id="key_admin", is_admin=True)
    call.secret, of_all = ADMIN, f"{ORGANIZATION}/admin/batches"
    await call("GET", of_all)
    for change in ("pause", "resume", "cancel"):
        await call("POST", f"{of_all}/{batch.rpartition('/')[2]}/{change}")
    call.secret = SECRET
    await call("POST", f"{batch}/cancel")
    other = await call("POST", "/v1/files", files={"file": ("a.md", b"# A")}, data={"purpose": "user_data"})
    await call("DELETE", f"/v1/files/{other['id']}")
    call.has_had_every_answer("/v1/files", "/v1/batches", f"{ORGANIZATION}/admin/batches")


async def test_uploads(call, file_store):
    body = {"bytes": 3, "filename": "a.md", "mime_type": "text/markdown", "purpose": "user_data"}
    upload, other = [f"/v1/uploads/{(await call('POST', '/v1/uploads', json=body))['id']}" for _ in range(2)]
    part = await call("POST", f"{upload}/parts", files={"data": b"# A"})
    await call("POST", f"{upload}/complete", json={"part_ids": [part["id"]]})
    await call("POST", f"{other}/cancel")
    await call("POST", f"{other}/parts", 409, files={"data": b"# A"})
    call.has_had_every_answer("/v1/uploads")


async def test_webhooks(call, webhooks, receiver):
    body = {"name": "a", "url": receiver.url, "event_types": ["batch.failed"]}
    one = f"{WEBHOOKS}/{(await call('POST', WEBHOOKS, json=body))['id']}"
    await call("GET", WEBHOOKS)
    await call("GET", one)
    await call("POST", one, json={"name": "b"})
    await call("POST", f"{one}/rotate_secret", json={"keep_old_secret_active_for_24_hours": True})
    await call("POST", f"{one}/test", json={"event_type": "batch.failed"})
    await call("POST", one, 400, json={"url": "ftp://receiver.example"})
    await call("DELETE", one)
    await call("GET", one, 404)
    await call("GET", "/v1/webhook_event_types")
    call.has_had_every_answer(WEBHOOKS, "/v1/webhook_event_types")


async def test_containers(call, interpreter, world):
    container = f"/v1/containers/{(await call('POST', '/v1/containers', json={'name': 'a'}))['id']}"
    await call("GET", "/v1/containers?order=asc")
    await call("GET", container)
    made = await call("POST", f"{container}/files", files={"file": ("a.md", b"# A")})
    file = f"{container}/files/{made['id']}"
    await call("GET", f"{container}/files")
    await call("GET", file)
    await call("GET", f"{file}/content")
    await call("DELETE", file)
    await call("DELETE", container)
    call.has_had_every_answer("/v1/containers")


async def test_vector_stores(call, store, world, indexer):
    stores = "/v1/vector_stores"
    await call("GET", stores)
    one = f"{stores}/{store.id}"
    await call("POST", one, json={"name": "ours", "expires_after": {"anchor": "last_active_at", "days": 7}})
    await call("GET", one)
    await call("POST", f"{one}/search", json={"query": "moon"})
    listed = await call("GET", f"{one}/files?filter=completed")
    file = f"{one}/files/{listed['data'][0]['id']}"
    await call("GET", file)
    await call("POST", file, json={"attributes": {"year": 2024}})
    await call("GET", f"{file}/content")
    await call("DELETE", file)
    other = f"{stores}/{(await call('POST', stores, json={}))['id']}"
    ids = [entry["id"] for entry in listed["data"][1:]]
    await call("POST", f"{other}/files", json={"file_id": ids[0]})
    batch = f"{other}/file_batches/{(await call('POST', f'{other}/file_batches', json={'file_ids': ids}))['id']}"
    await call("GET", batch)
    await call("GET", f"{batch}/files")
    await call("POST", f"{batch}/cancel")
    await call("DELETE", other)
    call.has_had_every_answer(stores)


async def test_keys(call, key_store, world):
    world.principal(ADMIN, key_id="key_admin", is_admin=True)
    call.secret = ADMIN
    key = f"{KEYS}/{(await call('POST', KEYS, json={'name': 'app', 'operations': ['chat']}))['id']}"
    await call("GET", KEYS)
    await call("GET", key)
    await call("POST", key, json={"requests_per_minute": 7})
    await call("POST", f"{key}/rotate", json={"overlap_s": 60})
    await call("DELETE", key)
    call.has_had_every_answer(KEYS)


async def test_reports_and_keys_under_openais_names(call, desk, world):
    await world.client().chat.completions.create(model=MODEL, messages=MESSAGES)
    await keep(world, desk)
    call.secret = ADMIN
    start = f"start_time={int(time.time()) - 86_400}"
    keys = f"{ORGANIZATION}/admin_api_keys"
    key = f"{keys}/{(await call('POST', keys, json={'name': 'poller'}))['id']}"
    await call("GET", keys)
    await call("GET", key)
    issued = await call("POST", KEYS, json={"account": "acct_1"})
    project = f"{ORGANIZATION}/projects/acct_1/api_keys"
    await call("GET", f"{ORGANIZATION}/projects")
    await call("GET", f"{ORGANIZATION}/projects/acct_1")
    await call("GET", project)
    await call("GET", f"{project}/{issued['id']}")
    await call("DELETE", f"{project}/{issued['id']}")
    tools = ("vector_stores", "code_interpreter_sessions", "file_search_calls", "web_search_calls")
    for name in ("completions", "embeddings", "moderations", *tools):
        await call("GET", f"{ORGANIZATION}/usage/{name}?{start}&group_by=project_id,model")
    await call("GET", f"{ORGANIZATION}/costs?{start}&group_by=line_item")
    await call("GET", f"{ORGANIZATION}/latency?{start}&bucket_width=1d")
    for name in ("requests", "limits", "audit_logs"):
        await call("GET", f"{ORGANIZATION}/{name}")
    for exported in ("csv", "jsonl"):
        await call("GET", f"{ORGANIZATION}/requests?format={exported}")
    await call("DELETE", key)
    call.has_had_every_answer(*REPORTS)
