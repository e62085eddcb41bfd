"""What a client sees of the front: repeated requests, streams that are cut, drained replicas, and its own answers."""

import asyncio
import json
import re
import socket
import struct
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from hashlib import sha1
from ipaddress import ip_address
from pathlib import Path

import httpx2
import psutil
import pytest
import pytest_asyncio
import yaml

from serve_app.front.rendering import MAIN, MAX_REPEATED_BYTES
from serve_app.front.runtime import Runtime
from serve_app.front.settings import AddressBound
from tests.contract.front.replicas import Replica, Request, replicas, say_port, write
from tests.contract.front.running import QUICK, RunningFront, running_front
from tests.waiting import eventually

_WEBSOCKET = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
RULES = Path(__file__).parents[3] / "configs" / "prometheus" / "manta.rules.yaml"
ALERTS = [rule["expr"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"] if "haproxy" in rule["expr"]]
CHAT = "/v1/chat/completions"
TIMINGS = replace(QUICK, forget_s=1.0, silent_s=600.0)
"""Soon after a test its replicas are forgotten. The agent does not end requests to a lost node: the kernel must."""
MAX_CONNECTIONS, NUM_CONNECTIONS = 8, 40
NUM_REFUSED = 5
"""Each of these requests would wait as long as the front has patience, if each waited anew."""
ID = re.compile(r"req_[0-9a-f]{32}")
TRIED_AGAIN = 'haproxy_backend_retry_warnings_total{proxy="ingress"}'
GIVEN_TO_ANOTHER = 'haproxy_backend_redispatch_warnings_total{proxy="ingress"}'
UNDER_WAY = 'haproxy_backend_current_sessions{proxy="ingress"}'
WAITING = 'haproxy_frontend_current_sessions{proxy="queueing"}'


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[RunningFront]:
    async with running_front(timings=TIMINGS) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def impatient() -> AsyncIterator[RunningFront]:
    """A front that waits for nothing longer than a second or two, and bounds the connections of 127.0.0.2."""
    bound = AddressBound(MAX_CONNECTIONS, ("127.0.0.1",))
    timings = replace(TIMINGS, patience_s=1.0)
    async with running_front(receive_timeout_s=1.0, timings=timings, address_bound=bound) as running:
        yield running


@pytest.fixture
def front(shared: RunningFront) -> RunningFront:
    """Return the front, with other ports first than in the test before, whose replicas have just died."""
    shared.replica_ports = [*shared.replica_ports[3:], *shared.replica_ports[:3]]
    return shared


@pytest_asyncio.fixture(loop_scope="module")
async def http(front: RunningFront) -> AsyncIterator[httpx2.AsyncClient]:
    async with front.client() as client:
        yield client


async def die_asked(replica: Replica, request: Request, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(0.05)
    await replica.die()


def assert_is_told_to_retry(answer: httpx2.Response) -> None:
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
    assert answer.json()["error"]["type"] == "server_error"
    assert ID.fullmatch(answer.headers["x-request-id"])


# Requests whose replica dies.


@pytest.mark.parametrize(
    ("method", "path", "size"),
    [
        ("POST", CHAT, 2),
        ("POST", CHAT + "/", 2),
        ("POST", "/v1/responses", 2),
        ("POST", "/v1/embeddings", MAX_REPEATED_BYTES),
        ("GET", "/v1/models", 0),
    ],
)
async def test_request_of_which_nothing_was_answered_is_given_to_another_replica_under_the_same_id(
    front: RunningFront, http: httpx2.AsyncClient, method: str, path: str, size: int
) -> None:
    async with replicas(*front.replica_ports[:2]) as (first, second):
        await front.knows(first.port, second.port)
        first.answer = second.answer = die_asked

        async def die_once(replica: Replica, request: Request, writer: asyncio.StreamWriter) -> None:
            first.answer = second.answer = say_port
            await die_asked(replica, request, writer)

        first.answer = second.answer = die_once
        answer = await http.request(method, path, content=b"x" * size)
        assert answer.status_code == 200
        (one,), (other,) = first.requests, second.requests
        assert one.request_id is not None
        assert (one.request_id, one.path, one.body) == (other.request_id, other.path, other.body)
        assert len(one.body) == size


@pytest.mark.parametrize("is_read", [True, False])
async def test_request_to_a_node_that_is_lost_is_given_to_another_replica(
    front: RunningFront, http: httpx2.AsyncClient, is_read: bool
) -> None:
    async with replicas(*front.replica_ports[:2]) as (lost, other):
        other.is_draining = True
        await front.knows(lost.port)
        await http.get("/v1/models")  # The connection to the replica is used again, so nothing else is on its way.

        async def vanish(replica: Replica, request: Request, writer: asyncio.StreamWriter) -> None:
            lost.vanish()
            await writer.wait_closed()

        lost.answer = vanish
        with front.without_checks(lost.port):
            if not is_read:
                lost.vanish()
            asking = asyncio.create_task(http.post(CHAT, content=b"{}"))

            async def is_sent() -> bool:
                return await front.counted(UNDER_WAY) == 1

            await eventually(is_sent)
        other.is_draining = False
        answer = await asking
        assert (answer.status_code, answer.text) == (200, str(other.port))
        assert len(lost.requests) == 1 + is_read


@pytest.mark.parametrize(
    ("method", "path", "size"),
    [
        ("POST", "/v1/files", 2),
        ("POST", "/v1/batches", 2),
        ("POST", "/v1/organization/admin/keys", 2),
        ("DELETE", "/v1/files/file-1", 0),
        ("POST", CHAT, MAX_REPEATED_BYTES + 100_000),  # More than the front keeps.
    ],
)
async def test_request_that_may_not_be_repeated_is_refused_when_its_replica_dies(
    front: RunningFront, http: httpx2.AsyncClient, method: str, path: str, size: int
) -> None:
    async with replicas(*front.replica_ports[:2]) as (first, second):
        await front.knows(first.port, second.port)
        first.answer = second.answer = die_asked
        assert_is_told_to_retry(await http.request(method, path, content=b"x" * size))
        assert len(first.requests) + len(second.requests) == 1


@pytest.mark.parametrize("is_reset", [False, True])
async def test_request_with_which_replica_after_replica_dies_is_refused_too(
    front: RunningFront, http: httpx2.AsyncClient, is_reset: bool
) -> None:
    async def leave(replica: Replica, request: Request, writer: asyncio.StreamWriter) -> None:
        if is_reset:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()

    async with replicas(*front.replica_ports[:2], answer=leave) as (first, second):
        await front.knows(first.port, second.port)
        assert_is_told_to_retry(await http.post(CHAT, content=b"{}"))
        asked = [*first.requests, *second.requests]
        assert len(asked) == 4
        assert len({request.request_id for request in asked}) == 1


async def test_second_request_of_a_client_is_given_to_another_replica_too(
    front: RunningFront, http: httpx2.AsyncClient
) -> None:
    async with replicas(*front.replica_ports[:2]) as (first, second):
        await front.knows(first.port, second.port)
        for _ in range(6):
            assert (await http.post(CHAT, content=b"{}")).status_code == 200
        dead = {str(first.port): first, str(second.port): second}[(await http.post(CHAT, content=b"{}")).text]
        await dead.die()
        assert (await http.post(CHAT, content=b"{}")).status_code == 200


async def test_request_that_a_dead_replica_refuses_goes_to_another_at_once(front: RunningFront) -> None:
    async with replicas(*front.replica_ports[:2]) as (dying, staying):
        await front.knows(dying.port, staying.port)
        before = [await front.counted(series) for series in (TRIED_AGAIN, GIVEN_TO_ANOTHER)]
        with front.without_checks(dying.port):  # They must not find out before a request does.
            async with AsyncExitStack() as stack:
                clients = [  # One connection each, to either process of the front.
                    await stack.enter_async_context(front.client()) for _ in range(8)
                ]
                await dying.die()
                answers = await asyncio.gather(*[client.post(CHAT, content=b"{}") for client in clients])
        after = [await front.counted(series) for series in (TRIED_AGAIN, GIVEN_TO_ANOTHER)]
        assert {answer.text for answer in answers} == {str(staying.port)}
        assert after[0] == before[0]  # The dead one was not tried again.
        assert 0 < after[1] - before[1] < 8


async def test_stream_is_cut_at_once_when_its_replica_dies(front: RunningFront, http: httpx2.AsyncClient) -> None:
    async def begin(replica: Replica, request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nfirst\n\r\n")
        await asyncio.Event().wait()

    async with replicas(front.replica_ports[0], answer=begin) as (replica,):
        await front.knows(replica.port)
        async with http.stream("POST", CHAT, content=b"{}") as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == "first"
            await replica.die()
            with pytest.raises(httpx2.RemoteProtocolError):
                await anext(lines)


# Replicas that are to go, and clients that have gone.


async def test_draining_replica_ends_its_streams_and_gets_no_new_request(
    front: RunningFront, http: httpx2.AsyncClient
) -> None:
    go_on = asyncio.Event()

    async def stream(replica: Replica, request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nfirst\n\r\n")
        await go_on.wait()
        writer.write(b"5\r\nlast\n\r\n0\r\n\r\n")

    async with replicas(*front.replica_ports[:2], answer=stream) as running:
        await front.knows(*[replica.port for replica in running])
        async with http.stream("POST", CHAT, content=b"{}") as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == "first"
            (draining,) = [replica for replica in running if replica.requests]
            (staying,) = [replica for replica in running if not replica.requests]
            draining.answer = staying.answer = say_port
            draining.is_draining = True
            await front.knows(staying.port)
            async with front.client() as others:
                assert {(await others.post(CHAT, content=b"{}")).text for _ in range(6)} == {str(staying.port)}
            go_on.set()
            assert [line async for line in lines] == ["last"]


async def test_replicas_still_get_requests_when_the_checks_say_that_none_lives(
    front: RunningFront, http: httpx2.AsyncClient
) -> None:
    async with replicas(front.replica_ports[0]) as (replica,):
        await front.knows(replica.port)
        replica.is_draining = True
        await front.knows()
        await eventually(lambda: front.saved() == {replica.port})  # Of those that are gone, none is tried.
        assert (await http.post(CHAT, content=b"{}")).text == str(replica.port)


@pytest.mark.parametrize("segments", [1, 2])
async def test_replica_learns_that_the_client_of_a_whole_answer_has_left(front: RunningFront, segments: int) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def wait(replica: Replica, request: Request, writer: asyncio.StreamWriter) -> None:
        asked.set()
        with suppress(ConnectionError):
            while not writer.transport.is_closing():  # noqa: ASYNC110 - the replica reads no more.
                await asyncio.sleep(0.01)
        left.set()

    async with replicas(front.replica_ports[0], answer=wait) as (replica,):
        await front.knows(replica.port)
        _, writer = await asyncio.open_connection("127.0.0.1", front.settings.port)
        body = b'{"a":{}}'
        head = b"POST %s HTTP/1.1\r\nhost: manta.test\r\ncontent-length: %d\r\n\r\n" % (CHAT.encode(), len(body))
        for segment in [head + body] if segments == 1 else [head, body]:
            writer.write(segment)
            await writer.drain()
            await asyncio.sleep(0.2)
        await asyncio.wait_for(asked.wait(), 10)
        assert not left.is_set()
        writer.close()
        await asyncio.wait_for(left.wait(), 10)


# Answers of the front itself, and what it passes on.


async def test_front_without_a_replica_lives_and_is_not_ready(front: RunningFront, http: httpx2.AsyncClient) -> None:
    await front.knows()
    live, ready = await http.get("/livez"), await http.get("/readyz")
    assert (live.status_code, live.json()) == (200, {"status": "ok"})
    assert (ready.status_code, ready.json()["status"]) == (503, "unavailable")
    assert ready.json()["checks"] == {"ingress": False}
    for path in ("/health", "/ping"):
        assert (await http.get(path)).json() == ready.json()


async def test_requests_are_refused_at_once_when_no_replica_has_lived_for_a_while(impatient: RunningFront) -> None:
    async with impatient.client() as http:
        async with replicas(impatient.replica_ports[0]) as (replica,):
            await impatient.knows(replica.port)
        assert_is_told_to_retry(await http.post(CHAT, content=b"{}"))  # By then none has lived for a while.
        await eventually(lambda: not impatient.saved())  # Until then the dead one is tried all the same.
        began = time.monotonic()
        for _ in range(NUM_REFUSED):
            assert_is_told_to_retry(await http.post(CHAT, content=b"{}"))
        assert time.monotonic() - began < NUM_REFUSED * impatient.settings.timings.patience_s


async def test_requests_wait_for_the_next_replica_when_the_last_ones_die(
    front: RunningFront, http: httpx2.AsyncClient
) -> None:
    async def ask(number: int) -> httpx2.Response:
        return await http.post(CHAT, content=b'{"n":%d}' % number)

    async with replicas(*front.replica_ports[:2], answer=die_asked) as dying:
        await front.knows(*front.replica_ports[:2])
        before = [asyncio.create_task(ask(number)) for number in range(8)]  # Some are sent again to one that dies too.
        await eventually(lambda: all(replica.requests for replica in dying))
    after = [asyncio.create_task(ask(number)) for number in range(8, 16)]

    async def all_wait() -> bool:
        return await front.counted(WAITING) == 16

    await eventually(all_wait)
    await front.knows()
    assert (await http.get("/readyz")).status_code == 503
    assert not any(asked.done() for asked in [*before, *after])
    async with replicas(front.replica_ports[2]) as (replica,):
        answers = await asyncio.gather(*before, *after)
        assert [answer.text for answer in answers] == [str(replica.port)] * 16
        assert sorted(answer.headers["x-request-id"] for answer in answers) == sorted(
            request.request_id or "" for request in replica.requests
        )
        assert {request.body for request in replica.requests} == {b'{"n":%d}' % number for number in range(16)}


async def test_a_client_that_leaves_while_it_waits_is_not_served(front: RunningFront, http: httpx2.AsyncClient) -> None:
    async with replicas(front.replica_ports[0]):
        await front.knows(front.replica_ports[0])
    staying = asyncio.create_task(http.post(CHAT, content=b"stays"))
    with pytest.raises(httpx2.ReadTimeout):
        await http.post(CHAT, content=b"leaves", timeout=0.5)
    async with replicas(front.replica_ports[1]) as (replica,):
        assert (await staying).status_code == 200
        await asyncio.sleep(0.5)
        assert [request.body for request in replica.requests] == [b"stays"]


async def test_readiness_is_a_replicas_word_once_there_is_one(front: RunningFront, http: httpx2.AsyncClient) -> None:
    async def report(replica: Replica, request: Request, writer: asyncio.StreamWriter) -> None:
        write(writer, "503 Service Unavailable", b'{"models_starting":1}')

    async with replicas(front.replica_ports[0], answer=report) as (replica,):
        await front.knows(replica.port)
        assert (await http.get("/readyz")).json() == {"models_starting": 1}


async def test_request_ids_are_the_fronts_and_differ(front: RunningFront, http: httpx2.AsyncClient) -> None:
    forged = {"x-manta-request-id": "req_" + "0" * 32 + " " + "0" * 64}
    async with replicas(front.replica_ports[0]) as (replica,):
        await front.knows(replica.port)
        answers = [await http.post(CHAT, content=b"{}", headers=forged) for _ in range(3)]
        ids = [request.request_id for request in replica.requests]
        assert [answer.headers["x-request-id"] for answer in answers] == ids
        assert len({*ids}) == 3
        assert all(ID.fullmatch(one or "") for one in ids)


async def test_a_replicas_own_request_id_is_left_as_it_is(front: RunningFront, http: httpx2.AsyncClient) -> None:
    async def answer(replica: Replica, request: Request, writer: asyncio.StreamWriter) -> None:
        write(writer, "200 OK", b"", "x-request-id: its own\r\n")

    async with replicas(front.replica_ports[0], answer=answer) as (replica,):
        await front.knows(replica.port)
        assert (await http.get("/v1/models")).headers.get_list("x-request-id") == ["its own"]


@pytest.mark.parametrize("path", ["/console/sign-in", "/%63onsole/sign-in", "//console", "/v1/models", "/"])
async def test_the_front_replaces_the_client_address_on_every_path(front: RunningFront, path: str) -> None:
    async with replicas(front.replica_ports[0]) as (replica,):
        await front.knows(replica.port)
        reader, writer = await asyncio.open_connection("127.0.0.1", front.settings.port)
        forged = "x-forwarded-for: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2\r\n"
        writer.write(f"GET {path} HTTP/1.1\r\nhost: manta\r\n{forged}\r\n".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        (request,) = replica.requests
        assert (request.path, request.headers["x-forwarded-for"]) == (path, "127.0.0.1")


@pytest.mark.parametrize(
    "path",
    [
        *("/metrics", "/metrics/", "/metrics//", "/%6detrics", "/%6D%65trics?x=1", "http://manta/metrics"),
        *("/-/routes", "/%2d/routes", "/-%2Froutes", "/%2D/healthz", "/-/manta%2f../routes"),
    ],
)
async def test_what_a_replica_tells_its_operators_no_client_gets(front: RunningFront, path: str) -> None:
    async with replicas(front.replica_ports[0]) as (replica,):
        await front.knows(replica.port)
        status, body = await ask(front, path)
        assert status == 404
        assert json.loads(body)["error"]["code"] == "unknown_url"
        assert replica.requests == []


async def test_paths_that_only_look_like_those_for_operators_are_passed_on(front: RunningFront) -> None:
    async with replicas(front.replica_ports[0]) as (replica,):
        await front.knows(replica.port)
        paths = ["/v1/metrics", "/metric", "/-", "//metrics", "/%256detrics", "/v1/-/routes"]
        assert [(await ask(front, path))[0] for path in paths] == [200] * len(paths)
        assert [request.path for request in replica.requests] == paths


async def test_serves_health_check_is_for_probes_on_the_machine_itself(front: RunningFront) -> None:
    async with replicas(front.replica_ports[0]) as (replica,):
        await front.knows(replica.port)
        assert (await ask(front, "/-/healthz"))[0] == 200
        assert (await ask(front, "/-/healthz", own_address()))[0] == 404


async def ask(front: RunningFront, path: str, source: str = "127.0.0.1") -> tuple[int, bytes]:
    """Ask for a path as it is written, from an address of this machine; return the status and the body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", front.settings.port, local_addr=(source, 0))
    writer.write(f"GET {path} HTTP/1.1\r\nhost: manta\r\nconnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


def own_address() -> str:
    """Return an address of this machine that is not loopback's."""
    found = [one.address for own in psutil.net_if_addrs().values() for one in own if one.family is socket.AF_INET]
    others = [address for address in found if not ip_address(address).is_loopback]
    return others[0] if others else pytest.skip("this machine has no address but loopback's")


async def test_http_2_without_tls_is_not_offered(front: RunningFront) -> None:
    async with replicas(front.replica_ports[0]) as (replica,):
        await front.knows(replica.port)
        reader, writer = await asyncio.open_connection("127.0.0.1", front.settings.port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
        assert (await reader.read(1000))[:12] == b"HTTP/1.1 400"
        writer.close()
        assert replica.requests == []


async def test_large_headers_and_large_bodies_pass(front: RunningFront, http: httpx2.AsyncClient) -> None:
    async with replicas(front.replica_ports[0]) as (replica,):
        await front.knows(replica.port)
        answer = await http.post("/v1/files", content=b"x" * 5_000_000, headers={"x-large": "y" * 60_000})
        assert answer.status_code == 200
        assert len(replica.requests[0].body) == 5_000_000
        assert len(replica.requests[0].headers["x-large"]) == 60_000


async def test_many_headers_pass_and_a_url_that_is_too_long_is_refused_in_json(
    front: RunningFront, http: httpx2.AsyncClient
) -> None:
    async with replicas(front.replica_ports[0]) as (replica,):
        await front.knows(replica.port)
        headers = {f"x-{number}": "x" for number in range(900)}
        assert (await http.get("/v1/models", headers=headers)).status_code == 200
        for length, status in ((50_000, 200), (70_000, 414)):
            reader, writer = await asyncio.open_connection("127.0.0.1", front.settings.port)
            writer.write(
                f"GET /v1/models?a={'x' * length} HTTP/1.1\r\nhost: manta\r\nconnection: close\r\n\r\n".encode()
            )
            answer = (await reader.read()).decode()
            writer.close()
            assert answer.startswith(f"HTTP/1.1 {status} ")
    assert "content-type: application/json" in answer
    assert "60000 bytes" in json.loads(answer.partition("\r\n\r\n")[2])["error"]["message"]


async def test_body_that_does_not_come_is_refused_in_time(impatient: RunningFront) -> None:
    async with replicas(impatient.replica_ports[1]) as (replica,):
        await impatient.knows(replica.port)
        reader, writer = await asyncio.open_connection("127.0.0.1", impatient.settings.port)
        writer.write(b"POST %s HTTP/1.1\r\nhost: manta.test\r\ncontent-length: 10\r\n\r\nhalf" % CHAT.encode())
        head, _, body = (await asyncio.wait_for(reader.read(), 10)).partition(b"\r\n\r\n")
        writer.close()
        assert head.startswith(b"HTTP/1.1 408 ")
        assert "within 1 seconds" in json.loads(body)["error"]["message"]
        assert replica.requests == []


@pytest.mark.parametrize(
    "head", ["content-length: 200000", "content-length: 200000\r\nexpect: 100-continue", "transfer-encoding: chunked"]
)
async def test_a_connection_ends_soon_after_the_answer_where_the_body_never_comes(
    impatient: RunningFront, head: str
) -> None:
    async def refuse(replica: Replica, request: Request, writer: asyncio.StreamWriter) -> None:
        write(writer, "401 Unauthorized", b"{}")

    async with replicas(impatient.replica_ports[2], answer=refuse, reads_bodies=False) as (replica,):
        await impatient.knows(replica.port)
        reader, writer = await asyncio.open_connection("127.0.0.1", impatient.settings.port)
        writer.write(f"POST {CHAT} HTTP/1.1\r\nhost: manta.test\r\n{head}\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 20)  # To its end.
        assert answer.startswith(b"HTTP/1.1 401 ")
        writer.close()


async def test_what_takes_its_time_is_not_cut_while_the_client_owes_nothing(impatient: RunningFront) -> None:
    async def answer_slowly(replica: Replica, request: Request, writer: asyncio.StreamWriter) -> None:
        pause_s = 2.5 if request.path == CHAT else 0.0
        await asyncio.sleep(pause_s)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf")
        await asyncio.sleep(pause_s)
        writer.write(b"half")

    async def come_slowly() -> AsyncIterator[bytes]:
        for _ in range(8):
            await asyncio.sleep(0.5)
            yield b"x" * 20_000

    async with replicas(impatient.replica_ports[2], answer=answer_slowly) as (replica,), impatient.client() as http:
        await impatient.knows(replica.port)
        size = {"content-length": str(8 * 20_000)}
        answers = await asyncio.gather(
            http.post(CHAT, content=b"{}"), http.post("/v1/files", content=come_slowly(), headers=size)
        )
        assert [(answer.status_code, answer.text) for answer in answers] == [(200, "halfhalf")] * 2
        assert sorted(len(request.body) for request in replica.requests) == [2, 8 * 20_000]


async def test_connections_of_one_address_are_bounded_unless_it_is_trusted(impatient: RunningFront) -> None:
    assert await num_answered(impatient, "127.0.0.2") == MAX_CONNECTIONS
    assert await num_answered(impatient, "127.0.0.1") == NUM_CONNECTIONS

    async def have_ended() -> bool:
        return await num_answered(impatient, "127.0.0.2") == MAX_CONNECTIONS

    await eventually(have_ended)  # Those from before, which counted until then.


async def num_answered(front: RunningFront, source: str) -> int:
    """Return over how many of many connections at once, all from one address, a request was answered."""

    async def connect() -> asyncio.StreamWriter | None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", front.settings.port, local_addr=(source, 0))
            writer.write(b"GET /livez HTTP/1.1\r\nhost: manta\r\n\r\n")
            assert await reader.readexactly(12) == b"HTTP/1.1 200"
            return writer
        return None

    open_ones = [writer for writer in await asyncio.gather(*(connect() for _ in range(NUM_CONNECTIONS))) if writer]
    for writer in open_ones:
        writer.close()
    return len(open_ones)


async def test_connection_to_a_websocket_is_passed_on(front: RunningFront) -> None:
    async def upgrade(replica: Replica, request: Request, writer: asyncio.StreamWriter) -> None:
        assert request.headers["upgrade"] == "websocket"
        accepted = b64encode(sha1(request.headers["sec-websocket-key"].encode() + _WEBSOCKET).digest()).decode()
        head = ["HTTP/1.1 101 Switching Protocols", "connection: upgrade", "upgrade: websocket"]
        writer.write("\r\n".join([*head, f"sec-websocket-accept: {accepted}", "", "frame"]).encode())
        await writer.drain()
        await asyncio.sleep(1)

    async with replicas(front.replica_ports[0], answer=upgrade) as (replica,):
        await front.knows(replica.port)
        reader, writer = await asyncio.open_connection("127.0.0.1", front.settings.port)
        lines = ["GET /v1/responses HTTP/1.1", "host: manta.test", "connection: upgrade", "upgrade: websocket"]
        writer.write("\r\n".join([*lines, f"sec-websocket-key: {b64encode(b'k' * 16).decode()}", "", ""]).encode())
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).startswith(b"HTTP/1.1 101 ")
        assert await asyncio.wait_for(reader.readexactly(5), 10) == b"frame"
        writer.close()


async def test_each_process_shows_its_metrics_on_loopback(front: RunningFront, http: httpx2.AsyncClient) -> None:
    async with replicas(front.replica_ports[0]) as (replica,):
        await front.knows(replica.port)
        for number in range(2):
            url = front.statistics(number)
            slots = Runtime(front.settings.socket_path(number)).slots(MAIN)
            names = [slot.name for slot in slots if slot.address.port == replica.port]  # One may be of a test before.
            page = (await http.get(f"{url}/metrics?no-maint")).text
            shown = [f'haproxy_server_status{{proxy="ingress",server="{name}",state="UP"}} 1' in page for name in names]
            assert sum(shown) == 1
            assert f'server="s{front.settings.num_slots}"' not in page
            for rule in ALERTS:
                assert all(f"\n{series}" in page for series in re.findall(r"haproxy_\w+(?:{proxy=\"ingress\")?", rule))
            assert "Statistics Report" in (await http.get(url)).text
