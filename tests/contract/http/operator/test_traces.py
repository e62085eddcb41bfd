"""Traces, as an OpenTelemetry collector receives them."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.tools.config import ToolsConfig
from deployments.tools.web_search.providers import create_provider
from deployments.tools.web_search.reader import create_reader
from serve_app.operations.web_search.tool import WebSearch
from serve_app.telemetry.tracing import Tracer, TracesConfig
from tests.contract.http.answers import MODEL, said
from tests.contract.http.batch_calls import finish, jsonl, line, submit
from tests.contract.http.conftest import run_batches, serve
from tests.contract.http.response_calls import script
from tests.contract.http.web_search_calls import LISBON
from tests.contract.http.web_search_calls import searches as searches_web

CANARY = "Kanarienvogel-traced"
CLIENT = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
MESSAGES = [{"role": "user", "content": CANARY}]


@dataclass
class Collector:
    """What came, span by span."""

    url: str = ""
    bodies: list[bytes] = field(default_factory=list)

    async def take(self, request: Request) -> Response:
        assert request.headers["content-type"] == "application/x-protobuf"
        self.bodies.append(await request.body())
        return Response(status_code=200)

    @property
    def spans(self) -> list:
        found = []
        for body in self.bodies:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                found += [span for scope in resource.scope_spans for span in scope.spans]
        return sorted(found, key=lambda span: span.start_time_unix_nano)


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    made = Collector()
    async with serve(Starlette(routes=[Route("/v1/traces", made.take, methods=["POST"])])) as address:
        made.url = f"{address}/v1/traces"
        yield made


@pytest.fixture
async def trace(world, collector):
    """A function that has the spans of all requests so far sent, and returns them."""

    world.tracer = Tracer(TracesConfig(endpoint=collector.url, sample=1.0))

    async def flush():
        await asyncio.to_thread(world.tracer.flush)
        return collector.spans

    yield flush
    await asyncio.to_thread(world.tracer.close)


def attributes_of(span) -> dict:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def is_within(span, parent) -> bool:
    return (
        span.parent_span_id == parent.span_id
        and parent.start_time_unix_nano <= span.start_time_unix_nano
        and span.end_time_unix_nano <= parent.end_time_unix_nano
    )


async def test_a_request_is_a_tree_of_spans(world, trace):
    async with world.http() as http:
        answer = await http.post("/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES})
    spans = await trace()
    (root,) = [span for span in spans if not span.parent_span_id]
    assert root.name == "POST /v1/chat/completions"
    told = attributes_of(root)
    assert told["manta.request_id"] == answer.headers["x-request-id"]
    assert told["http.response.status_code"] == 200
    assert told["gen_ai.request.model"] == MODEL
    assert told["gen_ai.usage.input_tokens"] == answer.json()["usage"]["prompt_tokens"]
    children = [span for span in spans if span is not root]
    assert [span.name for span in children] == ["admission", "receive", "admission"]
    assert all(is_within(span, root) for span in children)


async def test_the_clients_trace_goes_on(world, trace):
    async with world.http(traceparent=f"00-{CLIENT[0]}-{CLIENT[1]}-01", tracestate="vendor=1") as http:
        await http.post("/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES})
    spans = await trace()
    assert {span.trace_id.hex() for span in spans} == {CLIENT[0]}
    assert [span.name for span in spans if span.parent_span_id.hex() == CLIENT[1]] == ["POST /v1/chat/completions"]


@pytest.mark.parametrize("context", ["garbage", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "ff" * 400])
async def test_a_trace_that_is_none_is_left_out(world, trace, context):
    async with world.http(traceparent=context) as http:
        answer = await http.get("/v1/models")
    assert answer.status_code == 200
    (span,) = await trace()
    assert not span.parent_span_id


async def test_what_is_not_sampled_is_not_sent_unless_the_client_traces_it(world, collector, trace):

    await asyncio.to_thread(world.tracer.close)
    world.tracer = Tracer(TracesConfig(endpoint=collector.url, sample=0.0))
    async with world.http() as http:
        await http.get("/v1/models")
        assert await trace() == []
        await http.get("/v1/models", headers={"traceparent": f"00-{CLIENT[0]}-{CLIENT[1]}-01"})
        await http.get("/v1/models", headers={"traceparent": f"00-{CLIENT[0]}-{CLIENT[1]}-00"})
    assert len(await trace()) == 1


async def test_tools_and_storage_are_spans(world, trace, web):
    script(world, searches_web(LISBON), said("Sunny."))
    asked = {"model": MODEL, "input": CANARY, "tools": [{"type": "web_search"}], "store": True}
    async with world.http() as http:
        assert (await http.post("/v1/responses", json=asked)).status_code == 200
    names = [span.name for span in await trace()]
    assert "execute_tool web_search" in names
    assert "storage" in names


async def test_lines_of_a_batch_are_spans_linked_to_that_of_the_batch(world, trace, batch_stores):
    world.principal(requests_per_minute=1_000)
    client = world.client()
    async with run_batches(world, batch_stores):
        batch = await finish(client, await submit(client, jsonl(*map(line, range(3)), line(3, model="none"))))
    spans = await trace()
    (whole,) = [span for span in spans if span.name == "batch"]
    lines = [span for span in spans if span.name == "batch_line /v1/chat/completions"]
    assert len(lines) == 4
    for span in lines:
        (link,) = span.links
        assert (link.trace_id, link.span_id) == (whole.trace_id, whole.span_id)
        assert attributes_of(span)["manta.batch_id"] == batch.id
    assert len({span.trace_id for span in lines}) == 4
    assert sorted(attributes_of(span).get("error.type", "") for span in lines) == ["", "", "", "model_not_found"]
    told = attributes_of(whole)
    assert (told["manta.batch_id"], told["manta.batch.completed"], told["manta.batch.failed"]) == (batch.id, 3, 1)


@pytest.mark.parametrize("is_traced", [True, False])
async def test_only_hosts_that_the_operator_names_hear_of_a_trace(world, trace, is_traced):
    heard = []

    async def answer(request):
        heard.append(request.headers.get("traceparent"))
        return Response('{"results": []}', media_type="application/json")

    async with serve(Starlette(routes=[Route("/search", answer)])) as address:
        outbound = {"traced_hosts": ["127.0.0.1"] if is_traced else ["elsewhere.example"]}
        told = {"outbound": outbound, "web_search": {"provider": {"name": "searxng", "url": address}}}
        provider = create_provider(ToolsConfig.model_validate(told))
        world.built_ins["web_search"] = WebSearch(provider, create_reader(ToolsConfig.model_validate(told)))
        for sent in ({}, {"traceparent": f"00-{CLIENT[0]}-{CLIENT[1]}-01"}):
            script(world, searches_web("Lisbon"), said("Sunny."))
            asked = {"model": MODEL, "input": CANARY, "tools": [{"type": "web_search"}], "store": False}
            async with world.http(**sent) as http:
                assert (await http.post("/v1/responses", json=asked)).status_code == 200
        await provider.aclose()
    roots = [span for span in await trace() if span.name == "POST /v1/responses"]
    expected = [f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01" for span in roots]
    assert heard == (expected if is_traced else [None, None])
    assert CLIENT[0] in expected[1]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses"])
async def test_the_time_in_the_queue_is_that_before_the_first_step(world, web, path, stream):
    waits = itertools.count(1)
    script(world, searches_web(), said("Sunny."))
    scripted = world.chat.script
    world.chat.script = lambda request: replace(scripted(request), queued_s=float(next(waits)))
    asked = {
        "chat/completions": {"messages": MESSAGES},
        "completions": {"prompt": "Hello"},
        "responses": {"input": "Hello", "tools": [{"type": "web_search"}]},
    }[path]
    async with world.http() as http:
        assert (await http.post(f"/v1/{path}", json={"model": MODEL, "stream": stream, **asked})).status_code == 200
    assert world.log.records[-1].queued_s == 1.0
    assert next(waits) == (3 if path == "responses" else 2)


async def test_a_refusal_has_its_code(world, trace):
    async with world.http() as http:
        await http.post("/v1/chat/completions", json={"model": "none", "messages": MESSAGES})
    root = next(span for span in await trace() if not span.parent_span_id)
    assert attributes_of(root)["error.type"] == "model_not_found"


async def test_no_content_is_in_a_trace(world, collector, trace):
    async with world.http() as http:
        await http.post("/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES})
        await http.post("/v1/responses", json={"model": MODEL, "input": CANARY})
        await http.post(f"/v1/{CANARY}", json={})
    assert await trace()
    assert all(CANARY.encode() not in body for body in collector.bodies)


async def test_a_collector_that_is_away_costs_no_request(world):
    world.tracer = Tracer(TracesConfig(endpoint="http://127.0.0.1:9/v1/traces", sample=1.0))
    async with world.http() as http:
        for _ in range(3):
            answer = await http.post("/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES})
            assert answer.status_code == 200
