"""WebSocket mode of the responses interface, through the real client and a real server."""

import asyncio
import json
from contextlib import asynccontextmanager

import openai
import pytest
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from deployments.models.contract.errors import EngineDied
from serve_app.http.connections import SocketPlaces, bound_messages
from tests.contract.http.answers import MODEL, SECRET, USAGE, pieces, said
from tests.contract.http.conftest import principal, serve
from tests.contract.http.response_calls import WEATHER, calling, messages, script
from tests.twins.engine import Script
from tests.twins.legal import fold, split
from tests.waiting import eventually

OTHER = "sk-other"
REQUEST = {"type": "response.create", "model": MODEL, "input": "x"}
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


class Socket:
    """A connection, and the events of one turn."""

    def __init__(self, connection) -> None:
        self.connection = connection

    async def turn(self, **body):
        await self.connection.send(json.dumps({"type": "response.create", "model": MODEL, **body}))
        return await self.events()

    async def events(self):
        events = []
        while not events or events[-1]["type"] not in ENDS:
            events.append(json.loads(await asyncio.wait_for(self.connection.recv(), 30)))
        return events


@asynccontextmanager
async def served(world):
    async with serve(world.app(), ws="websockets-sansio") as address:
        yield address.replace("http", "ws") + "/v1/responses"


@pytest.fixture
async def address(world):
    async with served(world) as address:
        yield address


@pytest.fixture
async def socket(address):
    async with connect(address, additional_headers={"authorization": f"Bearer {SECRET}"}) as connection:
        yield Socket(connection)


async def test_turns_follow_each_other_and_need_no_storage(world, socket):
    world.principal(retention="strict")
    script(world, said("One."), said("Two."), said("Three."))
    first = fold(await socket.turn(input="a"))
    second = fold(await socket.turn(input="b", previous_response_id=first["id"], store=False))
    third = fold(await socket.turn(input="c", previous_response_id=second["id"]))
    assert third["output"][0]["content"][0]["text"] == "Three."
    assert [m["content"] for m in messages(world)] == ["a", "One.", "b", "Two.", "c"]
    assert world.stored.count() == 0
    await eventually(lambda: [r.status for r in world.log.records] == [200, 200, 200])
    assert len(world.gatekeeper.settled) == 3


async def test_functions_go_back_and_forth(world, socket):
    script(world, calling(("call_1", "weather", "{}")), said("Rain."))
    first = fold(await socket.turn(input="a", tools=[WEATHER], store=False))
    output = {"type": "function_call_output", "call_id": "call_1", "output": "It rains."}
    fold(await socket.turn(input=[output], tools=[WEATHER], previous_response_id=first["id"], store=False))
    assert [m["role"] for m in messages(world)] == ["user", "assistant", "tool"]


async def test_tools_that_a_first_turn_brings_are_there_in_the_next_ones(world, socket):
    found = {"type": "function", "name": "refund", "description": "Pay back.", "defer_loading": True}
    more = {"type": "additional_tools", "role": "developer", "tools": [{"type": "tool_search"}, found, WEATHER]}
    ready = (await socket.turn(input=[more], generate=False, store=False))[-1]["response"]
    script(world, calling(("c", "tool_search", '{"query":"pay"}')), calling(("d", "refund", "{}")), said("Done."))
    first = fold(await socket.turn(input="Pay.", previous_response_id=ready["id"], store=False))
    assert [item["type"] for item in first["output"]] == ["tool_search_call", "tool_search_output", "function_call"]
    output = {"type": "function_call_output", "call_id": "d", "output": "ok"}
    fold(await socket.turn(input=[output], previous_response_id=first["id"], store=False))
    tools = json.loads(world.chat.requests[-1].body)["tools"]
    assert [one["function"]["name"] for one in tools] == ["weather", "refund", "tool_search"]


async def test_what_is_stored_is_shared_with_http(world, socket):
    first = await world.client().responses.create(model=MODEL, input="a")
    second = fold(await socket.turn(input="b", previous_response_id=first.id))
    await world.client().responses.create(model=MODEL, input="c", previous_response_id=second["id"])
    assert [m["role"] for m in messages(world)] == ["user", "assistant"] * 2 + ["user"]


@pytest.mark.parametrize("retention", ["strict", "ephemeral"])
async def test_a_turn_may_be_made_ready_without_asking_the_model(world, socket, retention):
    world.principal(retention=retention)
    script(world, said("Two."), said("Three."))
    events = await socket.turn(input="a", tools=[WEATHER], generate=False)
    ready = fold(events)
    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.completed"]
    assert (ready["output"], ready["usage"]["total_tokens"]) == ([], 0)
    assert not world.chat.requests
    assert [used for _, _, used in world.gatekeeper.settled] == []
    second = fold(await socket.turn(input="b", tools=[WEATHER], previous_response_id=ready["id"], generate=True))
    assert [m["content"] for m in messages(world)] == ["a", "b"]
    again = fold(await socket.turn(input="c", previous_response_id=second["id"], generate=False))
    fold(await socket.turn(input="d", previous_response_id=again["id"]))
    assert [m["content"] for m in messages(world)] == ["a", "b", "Two.", "c", "d"]
    await eventually(lambda: len(world.log.records) == 4)
    assert [r.completion_tokens for r in world.log.records] == [0, USAGE.completion_tokens] * 2
    assert all((r.status, r.model) == (200, MODEL) for r in world.log.records)
    assert bool(world.stored.count()) == (retention != "strict")


async def test_what_was_made_ready_is_stored_like_any_other_response(world, socket):
    events = await socket.turn(generate=False, instructions="Be kind.", tools=[WEATHER])
    ready = fold(events)
    async with world.http() as http:
        assert (await http.get(f"/v1/responses/{ready['id']}")).json() == ready
        assert split((await http.get(f"/v1/responses/{ready['id']}?stream=true")).content) == events
    await world.client().responses.create(model=MODEL, input="a", previous_response_id=ready["id"])
    assert [m["content"] for m in messages(world)] == ["a"]
    async with world.http() as http:
        refused = await http.post("/v1/responses", json={"model": MODEL, "input": "x", "generate": False})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unknown_parameter")


@pytest.mark.parametrize(
    ("message", "status", "code", "param"),
    [
        ("{", 400, None, None),
        ('{"type":"response.steer"}', 400, "invalid_value", "type"),
        (json.dumps({"type": "response.create", "model": MODEL}), 400, "missing_required_parameter", "input"),
        (json.dumps({"type": "response.create", "model": "none", "input": "x"}), 404, "model_not_found", "model"),
        (
            json.dumps({"type": "response.create", "model": MODEL, "input": "x", "background": True}),
            400,
            "unsupported_value",
            "background",
        ),
        (
            json.dumps({"type": "response.create", "model": MODEL, "input": "x", "generate": "no"}),
            400,
            "invalid_type",
            "generate",
        ),
        (
            json.dumps({"type": "response.create", "model": MODEL, "input": "x", "previous_response_id": "resp_none"}),
            400,
            "previous_response_not_found",
            "previous_response_id",
        ),
    ],
)
async def test_errors_are_events_and_the_connection_stays(world, socket, message, status, code, param):
    await socket.connection.send(message)
    (error,) = await socket.events()
    assert (error["type"], error["status"]) == ("error", status)
    assert (error["error"]["code"], error["error"]["param"]) == (code, param)
    assert (error["code"], error["param"]) == (code, param)
    fold(await socket.turn(input="x"))


async def test_limits_hold_for_each_turn(world, socket):
    world.principal(requests_per_minute=1)
    fold(await socket.turn(input="x"))
    (error,) = await socket.turn(input="y")
    assert (error["status"], error["code"]) == (429, "rate_limit_exceeded")


async def test_a_failed_turn_is_not_remembered(world, socket):
    first = fold(await socket.turn(input="a", store=False))
    world.chat.script = lambda request: Script([EngineDied("gone")])
    (error,) = await socket.turn(input="b", store=False)
    assert error["status"] == 503
    world.chat.script = lambda request: Script(pieces(request, said("x")), USAGE)
    (error,) = await socket.turn(input="c", previous_response_id=first["id"], store=False)
    assert error["code"] == "previous_response_not_found"


@asynccontextmanager
async def generating(world, address):
    """Yield a connection whose turn has begun, and does not end by itself."""
    never = asyncio.Event()
    world.chat.script = lambda request: Script([*pieces(request, said("a"))[:1], never], usage_when_aborted=USAGE)
    async with connect(address, additional_headers={"authorization": f"Bearer {SECRET}"}) as connection:
        await connection.send(json.dumps(REQUEST))
        await connection.recv()
        yield connection


async def test_leaving_ends_the_generation(world, address):
    async with generating(world, address):
        pass
    await eventually(lambda: world.chat.streams[0].is_aborted)
    await eventually(lambda: world.gatekeeper.settled)
    assert world.gatekeeper.settled[-1][2] == USAGE.total_tokens
    await eventually(lambda: world.log.records)
    assert world.log.records[0].status == 499


async def test_who_leaves_with_the_last_event_has_been_answered(world):
    received = asyncio.Queue()

    async def send(message):
        if '"type":"response.completed"' in message.get("text", ""):
            received.put_nowait({"type": "websocket.disconnect", "code": 1000})
            await asyncio.sleep(0.01)

    received.put_nowait({"type": "websocket.connect"})
    received.put_nowait({"type": "websocket.receive", "text": json.dumps(REQUEST)})
    headers = [(b"authorization", f"Bearer {SECRET}".encode())]
    scope = {"type": "websocket", "path": "/v1/responses", "headers": headers, "query_string": b"", "subprotocols": []}
    await world.app()(scope, received.get, send)
    (record,) = world.log.records
    assert (record.status, record.completion_tokens) == (200, USAGE.completion_tokens)


async def test_a_revoked_key_cannot_go_on(world, socket):
    fold(await socket.turn(input="x"))
    del world.gatekeeper.principals[SECRET]
    (error,) = await socket.turn(input="y")
    assert error["status"] == 401


async def test_a_turn_ends_soon_after_its_key_was_revoked(world, address):
    async with generating(world, address) as connection:
        del world.gatekeeper.principals[SECRET]
        async with asyncio.timeout(10):
            while (event := json.loads(await connection.recv()))["type"] != "error":
                pass
    assert (event["status"], event["code"]) == (401, "invalid_api_key")
    assert world.chat.streams[0].is_aborted
    assert world.gatekeeper.settled[-1][2] == USAGE.total_tokens


async def refusal(address, headers):
    """Return the status and the error of a connection that is refused."""
    with pytest.raises(InvalidStatus) as caught:
        async with connect(address, additional_headers=headers):
            pass
    return caught.value.response.status_code, json.loads(caught.value.response.body)["error"]


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer sk-wrong"}])
async def test_nobody_connects_without_a_key(address, headers):
    status, error = await refusal(address, headers)
    assert (status, error["type"]) == (401, "invalid_request_error")


async def test_an_account_has_a_bounded_number_of_connections(world):
    world.sockets = SocketPlaces(max_sockets=2)
    world.gatekeeper.principals[OTHER] = principal(account="other")
    own, other = ({"authorization": f"Bearer {key}"} for key in (SECRET, OTHER))
    async with served(world) as address:
        async with connect(address, additional_headers=own), connect(address, additional_headers=own):
            status, error = await refusal(address, own)
            assert (status, error["code"]) == (429, "too_many_websockets")
            async with connect(address, additional_headers=other):
                pass
        await eventually(lambda: not world.sockets._num_sockets)


async def test_what_waits_is_bounded_in_bytes_over_all_connections_of_an_account(world):
    world.sockets = SocketPlaces(max_waiting_bytes=3_000)
    gate = asyncio.Event()
    world.chat.script = lambda request: Script([*pieces(request, said("a"))[:1], gate, *pieces(request, said("a"))[1:]])
    headers = {"authorization": f"Bearer {SECRET}"}
    turn = json.dumps({"type": "response.create", "model": MODEL, "input": "x" * 2_000, "store": False})
    async with (
        served(world) as address,
        connect(address, additional_headers=headers) as first,
        connect(address, additional_headers=headers) as second,
    ):
        for connection in (first, second):
            await connection.send(turn)
            await connection.recv()
        await first.send(turn)
        for connection in (first, second):
            await connection.send(turn)
            while (event := json.loads(await asyncio.wait_for(connection.recv(), 30)))["type"] != "error":
                pass
            assert (event["status"], event["error"]["message"][:33]) == (400, "The waiting messages of your conn")
        gate.set()
        for connection in (first, second, first):
            assert (await Socket(connection).events())[-1]["type"] == "response.completed"
    await eventually(lambda: not world.sockets._waiting_bytes)


async def test_a_message_is_not_compressed_and_bounded_as_a_body(world, monkeypatch):
    monkeypatch.setattr(WebSocketsSansIOProtocol, "__init__", WebSocketsSansIOProtocol.__init__)
    bound_messages(50_000)
    headers = {"authorization": f"Bearer {SECRET}"}
    async with served(world) as address, connect(address, additional_headers=headers, max_size=None) as connection:
        assert "sec-websocket-extensions" not in connection.response.headers
        await connection.send("x" * 50_001)
        with pytest.raises(ConnectionClosed) as caught:
            await connection.recv()
        assert caught.value.rcvd.code == 1009


async def test_the_client_connects_and_streams(world, address):
    base_url = address.replace("ws://", "http://").removesuffix("/responses")
    client = openai.AsyncOpenAI(api_key=SECRET, base_url=base_url, websocket_base_url=base_url.replace("http", "ws"))
    async with client.responses.connect() as connection:
        await connection.send({"type": "response.create", "model": MODEL, "input": "Say hello.", "store": False})
        kinds = []
        async for event in connection:
            kinds.append(event.type)
            if event.type in ENDS:
                break
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    await client.close()
