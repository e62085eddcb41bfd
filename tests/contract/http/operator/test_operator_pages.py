"""What the operator and the curious find beside the interface itself."""

import asyncio
import re

import orjson
import pytest

from deployments.models.client.directory import ModelStartup
from serve_app.asgi import ROUTES
from serve_app.routes import health
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL
from tests.twins.engine import MemoryDirectory
from tests.waiting import eventually

MESSAGES = [{"role": "user", "content": "Say hello."}]


@pytest.fixture
async def http(world):
    async with world.http() as http:
        del http.headers["authorization"]
        yield http


async def test_liveness_needs_nothing(http, world):
    world.gatekeeper.unavailable = True
    assert (await http.get("/livez")).json() == {"status": "ok"}


async def test_readiness_wants_gatekeeper_and_models(world):
    async with world.http() as http:
        assert (await http.get("/readyz")).status_code == 200
        assert (
            (await http.get("/health")).json() == (await http.get("/ping")).json() == (await http.get("/readyz")).json()
        )
        world.gatekeeper.unavailable = True
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.json()["checks"]) == (503, {"gatekeeper": False, "models": True})
    world.gatekeeper.unavailable = False
    world.directory = MemoryDirectory([])
    async with world.http() as http:
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.json()["checks"]) == (503, {"gatekeeper": True, "models": False})


class Starting:
    """A model that comes up on demand."""

    def __init__(self):
        self.is_up = asyncio.Event()

    async def wait_for_replica(self):
        await self.is_up.wait()


async def test_readiness_wants_a_model_that_can_answer_and_counts_those_that_start(world):
    first, second = Starting(), Starting()
    world.startup = startup = ModelStartup([first, second])
    startup.watch()
    async with world.http() as http:
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.json()) == (
            503,
            {"status": "unavailable", "checks": {"gatekeeper": True, "models": False}, "models_starting": 2},
        )
        second.is_up.set()
        await eventually(lambda: startup.num_starting == 1)
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.json()["models_starting"]) == (200, 1)
        first.is_up.set()
        await eventually(lambda: startup.num_starting == 0)
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.json()["models_starting"]) == (200, 0)
    await startup.close()


async def test_readiness_does_not_wait_for_ever(http, world, monkeypatch):
    async def hang():
        await asyncio.Event().wait()

    monkeypatch.setattr(world.gatekeeper, "can_check_keys", hang)
    monkeypatch.setattr(health, "_PROBE_TIMEOUT_S", 0.01)
    assert (await http.get("/readyz")).status_code == 503


async def test_document_names_exactly_what_is_served(http):
    document = (await http.get("/openapi.json")).json()
    served = {
        (re.sub(r":path\}", "}", route.path), method.lower())
        for route in ROUTES
        for method in route.methods
        if method != "HEAD"
    }
    told = {(path, method) for path, operations in document["paths"].items() for method in operations}
    assert told == served
    references = set(re.findall(r"#/components/schemas/(\w+)", orjson.dumps(document).decode()))
    assert references <= set(document["components"]["schemas"])
    assert document["components"]["schemas"]["ChatRequest"]["required"] == ["model", "messages"]


async def test_every_answer_has_an_id_of_ours_and_safe_headers(http, world):
    ids = set()
    for path in ("/livez", "/docs", "/nowhere", "/v1/models", "/metrics"):
        answer = await http.get(path, headers={"x-request-id": "mine", "x-client-request-id": "mine"})
        assert re.fullmatch("req_[0-9a-f]{32}", answer.headers["x-request-id"])
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "strict-transport-security" in answer.headers
        ids.add(answer.headers["x-request-id"])
    assert len(ids) == 5
    assert [record.request_id for record in world.log.records] == list(
        dict.fromkeys(r.request_id for r in world.log.records)
    )


async def test_metrics_count_what_was_answered(world, http):
    client = world.client()
    await client.chat.completions.create(model=MODEL, messages=MESSAGES)
    stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    assert [chunk async for chunk in stream]
    await client.embeddings.create(model=EMBEDDING_MODEL, input="a")
    await http.get("/v1/models")
    await http.get("/wp-login.php")
    answer = await http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    page = answer.text
    labels = 'model="demo/chat",route="/v1/chat/completions",status="200",tier="standard"'
    assert f'manta_requests_total{{code="",{labels}}} 2.0' in page
    assert 'manta_tokens_total{model="demo/chat",tier="standard",type="prompt"} 18.0' in page
    assert 'manta_tokens_total{model="demo/chat",tier="standard",type="cached"} 8.0' in page
    assert 'manta_tokens_total{model="demo/chat",tier="standard",type="completion"} 6.0' in page
    assert 'gen_ai_server_time_to_first_token_seconds_count{model="demo/chat"} 1.0' in page
    assert 'gen_ai_server_time_per_output_token_seconds_count{model="demo/chat"} 1.0' in page
    assert 'gen_ai_server_request_duration_seconds_count{model="all-minilm-l6-v2",route="/v1/embeddings"} 1.0' in page
    assert 'route="/v1/models",status="401"' in page
    assert 'route="unmatched",status="404"' in page
    assert "manta_requests_in_flight 1.0" in page
    assert "wp-login" not in page


async def test_record_tells_all_but_the_content(world, caplog):
    caplog.set_level("INFO", "manta.requests")
    await world.client().chat.completions.create(model=MODEL, messages=MESSAGES)
    record = world.log.records[0]
    assert (record.key_id, record.account, record.tier) == ("key_1", "acct_1", "standard")
    assert (record.method, record.route, record.model) == ("POST", "/v1/chat/completions", MODEL)
    assert (record.status, record.code, record.stream) == (200, None, False)
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (9, 3, 4)
    assert record.total_s > 0
    line = orjson.loads(next(r.getMessage() for r in caplog.records if r.name == "manta.requests"))
    assert line["request_id"] == record.request_id
    assert line["total_s"] == record.total_s


async def test_streams_record_their_first_piece(world):
    stream = await world.client().chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    assert [chunk async for chunk in stream]
    record = world.log.records[0]
    assert record.stream
    assert 0 < record.ttft_s <= record.total_s
