"""Every refusal, on every route that can give it, as the real client and a bare one see it."""

import asyncio

import httpx2
import openai
import orjson
import pytest

from deployments.models.contract.errors import EngineDied, EngineError, Overloaded, RequestRejected
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, SECRET
from tests.twins.engine import Script
from tests.waiting import eventually

MESSAGES = [{"role": "user", "content": "Say hello."}]
BODIES = {
    "/v1/chat/completions": {"model": MODEL, "messages": MESSAGES},
    "/v1/completions": {"model": MODEL, "prompt": "Say hello."},
    "/v1/embeddings": {"model": EMBEDDING_MODEL, "input": "Say hello."},
    "/v1/responses": {"model": MODEL, "input": "Say hello."},
}
every_operation = pytest.mark.parametrize("path", BODIES)
every_route = pytest.mark.parametrize(
    ("method", "path"),
    [*(("POST", path) for path in BODIES), ("GET", "/v1/models"), ("GET", f"/v1/models/{MODEL}")],
)


def error_of(answer, status, code=None, param=None, kind="invalid_request_error"):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].startswith("req_")
    error = answer.json()["error"]
    assert set(answer.json()) == {"error"}
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["code"], error["param"]) == (kind, code, param)
    return error["message"]


@every_route
async def test_no_key_is_401(world, method, path):
    async with world.http() as http:
        del http.headers["authorization"]
        answer = await http.request(method, path, json=BODIES.get(path))
    message = error_of(answer, 401)
    assert message.startswith("You didn't provide an API key. You need to provide your API key in an Authorization")
    assert "x-ratelimit-limit-requests" not in answer.headers


@every_route
async def test_unknown_key_is_401_and_masked(world, method, path):
    async with world.http(authorization="Bearer sk-abcdefghijklmnopqrstuvwxyz") as http:
        answer = await http.request(method, path, json=BODIES.get(path))
    message = error_of(answer, 401, "invalid_api_key")
    assert message.startswith("Incorrect API key provided: sk-ab***wxyz.")


@every_route
async def test_gatekeeper_away_is_503(world, method, path):
    world.gatekeeper.unavailable = True
    async with world.http() as http:
        answer = await http.request(method, path, json=BODIES.get(path))
    error_of(answer, 503, kind="server_error")
    assert answer.headers["retry-after"] == "1"


HOSTILE = [
    b"Bearer ",
    b"Basic dXNlcjpwYXNz",
    b"Bearer' OR 1=1; DROP TABLE api_keys; --",
    b"Bearer sk-manta-' OR '1'='1",
    b"Bearer " + b"x" * 100_000,
    b"Bearer sk-\xff\xfe\x00\x01",
    "Bearer sk-schlüssel-ключ".encode(),
    b"bearer",
    b"   ",
    SECRET.encode(),
]


@pytest.mark.parametrize("value", HOSTILE)
async def test_hostile_authorization_is_401(world, value):
    async with world.http() as http:
        answer = await http.get("/v1/models", headers={b"authorization": value})
    assert answer.status_code == 401
    assert len(answer.content) < 1000


async def test_a_key_is_also_taken_as_anthropics_clients_send_it(world):
    async with world.http() as http:
        del http.headers["authorization"]
        assert (await http.get("/v1/models", headers={"x-api-key": SECRET})).status_code == 200
        error_of(await http.get("/v1/models", headers={"x-api-key": "sk-manta-unknown"}), 401, "invalid_api_key")
        error_of(await http.get("/v1/models", headers={"x-api-key": ""}), 401)
        both = {"x-api-key": SECRET, "authorization": "Bearer sk-manta-unknown"}
        error_of(await http.get("/v1/models", headers=both), 401, "invalid_api_key")
        assert len((await http.get("/v1/models", headers={"x-api-key": "x" * 100_000})).content) < 1000


async def test_scheme_is_read_in_any_case(world):
    async with world.http(authorization=f"bEARER   {SECRET} ") as http:
        assert (await http.get("/v1/models")).status_code == 200


@every_operation
async def test_key_without_the_operation_is_403(world, path):
    world.principal(operations=frozenset({"batches"}))
    async with world.http() as http:
        answer = await http.post(path, json=BODIES[path])
    error_of(answer, 403, "insufficient_permissions")


@every_operation
async def test_model_outside_the_scope_is_404_like_an_unknown_one(world, path):
    world.principal(models=("other/*",))
    async with world.http() as http:
        outside = await http.post(path, json=BODIES[path])
        unknown = await http.post(path, json={**BODIES[path], "model": "demo/none"})
    model = BODIES[path]["model"]
    assert error_of(outside, 404, "model_not_found", "model") == (
        f"The model `{model}` does not exist or you do not have access to it. GET /v1/models lists the models of this "
        "key."
    )
    error_of(unknown, 404, "model_not_found", "model")


@every_operation
async def test_only_a_model_that_the_key_may_see_is_suggested(world, path):
    model = BODIES[path]["model"]
    near = {**BODIES[path], "model": f"{model}s"}
    async with world.http() as http:
        seen = await http.post(path, json=near)
        retrieved = await http.get(f"/v1/models/{model}s")
        world.principal(models=("other/*",))
        hidden = await http.post(path, json=near)
        not_retrieved = await http.get(f"/v1/models/{model}s")
    for answer in (seen, retrieved):
        assert error_of(answer, 404, "model_not_found", "model").endswith(f"Did you mean `{model}`?")
    for answer in (hidden, not_retrieved):
        assert error_of(answer, 404, "model_not_found", "model").endswith(
            " GET /v1/models lists the models of this key."
        )


async def test_scope_with_a_pattern_lets_its_models_through(world):
    world.principal(models=("demo/*",))
    client = world.client()
    assert [model.id async for model in client.models.list()] == [MODEL]
    await client.chat.completions.create(model=MODEL, messages=MESSAGES)
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve(EMBEDDING_MODEL)


@every_operation
async def test_operation_that_the_model_lacks_is_400(world, path):
    other = MODEL if path == "/v1/embeddings" else EMBEDDING_MODEL
    async with world.http() as http:
        answer = await http.post(path, json={**BODIES[path], "model": other})
    assert "does not support the operation" in error_of(answer, 400, "unsupported_value", "model")


async def test_tools_are_refused_when_the_model_has_none(world):
    world.chat.card = world.chat.card.__class__(
        id=MODEL, operations=frozenset({"chat"}), max_model_len=100, created=1, owned_by="x"
    )
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    async with world.http() as http:
        tools = await http.post("/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES, "tools": [tool]})
        functions = await http.post(
            "/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES, "functions": [tool["function"]]}
        )
        images = await http.post(
            "/v1/chat/completions", json={"model": MODEL, "messages": [{"role": "user", "content": image}]}
        )
    error_of(tools, 400, "unsupported_parameter", "tools")
    error_of(functions, 400, "unsupported_parameter", "functions")
    error_of(images, 400, "invalid_value", "messages")
    assert not world.chat.requests


async def test_dimensions_are_refused_when_the_model_cannot_be_cut(world):
    async with world.http() as http:
        answer = await http.post("/v1/embeddings", json={**BODIES["/v1/embeddings"], "dimensions": 64})
        error_of(answer, 400, "unsupported_parameter", "dimensions")
        world.embeddings.card = world.embeddings.card.__class__(
            id=EMBEDDING_MODEL,
            operations=frozenset({"embeddings"}),
            max_model_len=256,
            created=1,
            owned_by="x",
            dimensions=(64, 128),
        )
        answer = await http.post("/v1/embeddings", json={**BODIES["/v1/embeddings"], "dimensions": 65})
        assert "64, 128" in error_of(answer, 400, "unsupported_value", "dimensions")
        answer = await http.post("/v1/embeddings", json={**BODIES["/v1/embeddings"], "dimensions": 64})
        assert answer.status_code == 200


@every_operation
@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"model": NaN}'])
async def test_unparsable_body_is_400(world, path, raw):
    async with world.http() as http:
        answer = await http.post(path, content=raw, headers={"content-type": "application/json"})
    assert error_of(answer, 400).startswith("We could not parse the JSON body of your request.")


@every_operation
async def test_missing_and_unknown_parameters_are_named(world, path):
    async with world.http() as http:
        body = dict(BODIES[path])
        del body["model"]
        message = error_of(await http.post(path, json=body), 400, "missing_required_parameter", "model")
        assert message == "Missing required parameter: 'model'."
        answer = await http.post(path, json={**BODIES[path], "chat_templates": "x"})
        error_of(answer, 400, "unknown_parameter", "chat_templates")


async def test_out_of_range_is_said_with_the_bound(world):
    with pytest.raises(openai.BadRequestError) as caught:
        await world.client().chat.completions.create(model=MODEL, messages=MESSAGES, temperature=3)
    assert caught.value.code == "decimal_above_max_value"
    assert caught.value.param == "temperature"


FAILURES = [
    (RequestRejected("Too long.", "messages", "context_length_exceeded"), 400, "invalid_request_error"),
    (Overloaded("full", 2.5), 503, "server_error"),
    (EngineDied("gone"), 503, "server_error"),
    (EngineError("unknown"), 500, "server_error"),
    (ValueError("secret content"), 500, "server_error"),
]


@every_operation
@pytest.mark.parametrize(("error", "status", "kind"), FAILURES, ids=lambda value: type(value).__name__)
async def test_failure_before_the_first_piece_has_a_status(world, path, error, status, kind):
    world.chat.script = world.embeddings.script = lambda request: Script([error])
    async with world.http() as http:
        for is_stream in {False, path != "/v1/embeddings"}:
            body = {**BODIES[path], **({"stream": True} if is_stream else {})}
            answer = await http.post(path, json=body)
            assert answer.status_code == status
            assert answer.json()["error"]["type"] == kind
            assert "secret content" not in answer.text
            assert answer.headers["x-ratelimit-limit-requests"] == "1000"
    assert world.gatekeeper.quota(world.gatekeeper.principals[SECRET]).remaining_tokens == 1_000_000


async def test_overload_says_when_to_come_back(world):
    world.chat.script = lambda request: Script([Overloaded("full", 2.5)])
    async with world.http() as http:
        answer = await http.post("/v1/chat/completions", json=BODIES["/v1/chat/completions"])
    assert (answer.headers["retry-after"], answer.headers["retry-after-ms"]) == ("3", "2500")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize(("error", "status", "kind"), FAILURES, ids=lambda value: type(value).__name__)
async def test_failure_midway_is_an_event_and_the_end(world, live, path, error, status, kind):
    world.chat.script = lambda request: Script([b'data: {"choices":[]}\n\n', error])
    async with world.http() as http:
        answer = await http.post(path, json={**BODIES[path], "stream": True})
    assert answer.status_code == 200
    first, last, rest = answer.content.split(b"\n\n")
    assert (first, rest) == (b'data: {"choices":[]}', b"")
    told = orjson.loads(last.removeprefix(b"data: "))["error"]
    assert told["type"] == kind
    assert "secret content" not in answer.text
    assert world.log.records[-1].status == status
    client = openai.AsyncOpenAI(api_key=SECRET, base_url=live + "/v1", max_retries=0)
    with pytest.raises(openai.APIError, match=told["message"][:20]):
        async for _ in await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True):
            pass
    await client.close()


async def test_failure_while_a_body_is_made_is_a_status(world):
    world.chat.script = lambda request: Script([b'{"id":', ValueError("secret content")])
    async with world.http() as http:
        answer = await http.post("/v1/chat/completions", json=BODIES["/v1/chat/completions"])
    error_of(answer, 500, None, kind="server_error")
    assert "secret content" not in answer.text
    assert world.log.records[-1].status == 500


async def test_unknown_path_is_404(world):
    async with world.http() as http:
        message = error_of(await http.post("/v1/x", json={}), 404, "unknown_url")
        assert message == "Invalid URL (POST /v1/x)"
        message = error_of(await http.post("/v1/chat/completion", json={}), 404, "unknown_url")
        assert message == "Invalid URL (POST /v1/chat/completion). Did you mean POST /v1/chat/completions?"
        message = error_of(await http.get("/v1"), 404, "unknown_url")
        assert message == "Invalid URL (GET /v1). This is the base URL of clients. Its routes are at /docs."
        error_of(await http.get("/"), 404, "unknown_url")


@pytest.mark.parametrize("path", [*BODIES, "/v1/models", "/livez"])
async def test_wrong_method_is_405_with_those_allowed(world, path):
    async with world.http() as http:
        answer = await http.delete(path)
    error_of(answer, 405)
    assert ("POST" if path in BODIES else "GET, HEAD") in answer.headers["allow"]


async def test_options_says_what_is_allowed(world):
    async with world.http() as http:
        answer = await http.options("/v1/embeddings")
        assert (answer.status_code, answer.headers["allow"]) == (204, "OPTIONS, POST")
        assert (await http.options("/v1/x")).status_code == 404


async def test_head_answers_without_a_body(world, live):
    async with httpx2.AsyncClient() as http:
        answer = await http.head(live + "/livez")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["x-request-id"].startswith("req_")


async def test_bug_is_500_with_one_fixed_sentence(world, caplog):
    class Broken:
        def cards(self):
            raise RuntimeError("secret content")

    world.directory.cards = Broken().cards
    async with world.http() as http:
        answer = await http.get("/v1/models")
    assert error_of(answer, 500, kind="server_error").startswith("The server had an error processing your request.")
    assert "secret content" not in answer.text + caplog.text
    assert "RuntimeError" in caplog.text
    assert answer.headers["x-request-id"] in caplog.text


async def test_client_that_leaves_while_sending_is_noted(world, live):
    host, port = live.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    lines = ["POST /v1/chat/completions HTTP/1.1", "host: x", f"authorization: Bearer {SECRET}", "content-length: 99"]
    writer.write("\r\n".join([*lines, "", "{"]).encode())
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    await eventually(lambda: world.log.records)
    assert world.log.records[0].status == 499


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/chat/completions", "max_tokens"),
        ("/v1/chat/completions", "max_completion_tokens"),
        ("/v1/completions", "max_tokens"),
        ("/v1/responses", "max_output_tokens"),
    ],
)
async def test_more_tokens_than_the_context_are_refused_by_the_name_of_their_field(world, path, field):
    context = world.chat.card.max_model_len
    async with world.http() as http:
        answer = await http.post(path, json={**BODIES[path], field: context + 1})
        message = error_of(answer, 400, "invalid_value", field)
        assert message == (
            f"{field} is too large: {context + 1}. This model supports at most {context} tokens, the prompt and the "
            f"answer together."
        )
        assert not world.chat.requests
        assert (await http.post(path, json={**BODIES[path], field: context})).status_code == 200
