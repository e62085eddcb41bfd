"""Requests between the fronts of two regions, with real HAProxy processes and TLS between them."""

import asyncio
import hmac
import os
import signal
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from hashlib import sha1

import pytest
import pytest_asyncio
from httpx2 import AsyncClient

from deployments.proof import FROM_REGION_HEADER, LIMITS_PATH
from serve_app.front.rendering import REGION_HEADER, REGION_PATH, backend_of
from tests.certificates import Authority
from tests.contract.front.regions import TIMINGS, Site, sees, sees_no_more, two_regions
from tests.contract.front.replicas import STRANGER, TRUST, Replica, Request, replicas
from tests.contract.front.running import RunningFront
from tests.waiting import eventually

CHAT = "/v1/chat/completions"
ID = "req_" + "0a" * 16

pytestmark = pytest.mark.asyncio(loop_scope="module")


class World:
    """Two regions with a replica each, both serving, and a client of each."""

    def __init__(self, fronts: "Fronts", near: Replica, far: Replica) -> None:
        self.site, self.us, self.asia = fronts
        self.near, self.far = near, far
        self.http, self.http_asia = self.us.client(), self.asia.client()

    async def regionz(self, front: RunningFront) -> int:
        http = self.http if front is self.us else self.http_asia
        return (await http.get(REGION_PATH)).status_code


Fronts = tuple[Site, RunningFront, RunningFront]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fronts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fronts]:
    site = Site(tmp_path_factory.mktemp("site"))
    async with two_regions(site) as (us, asia):
        yield site, us, asia


@pytest_asyncio.fixture(loop_scope="module")
async def world(fronts: Fronts) -> AsyncIterator[World]:
    _, us, asia = fronts
    async with (
        replicas(us.replica_ports[0], region="us") as (near,),
        replicas(asia.replica_ports[0], region="asia") as (far,),
    ):
        world = World(fronts, near, far)
        await us.knows(near.port)
        await asia.knows(far.port)
        await sees(us, "asia")
        await sees(asia, "us")
        await eventually(lambda: _is(world, us, 200))
        await eventually(lambda: _is(world, asia, 200))
        yield world
        await world.http.aclose()
        await world.http_asia.aclose()


async def die_asked(replica: Replica, request: Request, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(0.05)
    await replica.die()


def signed(region: str, request_id: str, key: bytes = TRUST.request_key) -> str:
    said = f"{region}:{request_id}"
    return f"{said}:{hmac.digest(key, said.encode(), 'sha256').hex()}"


# Where requests go.


async def test_answer_says_which_region_has_given_it(world: World) -> None:
    near, far = await world.http.post(CHAT, content=b"{}"), await world.http_asia.post(CHAT, content=b"{}")
    assert (near.text, near.headers[REGION_HEADER]) == (str(world.near.port), "us")
    assert (far.text, far.headers[REGION_HEADER]) == (str(world.far.port), "asia")
    assert (await world.http.get("/livez")).headers[REGION_HEADER] == "us"


async def test_request_whose_only_replica_dies_is_repeated_in_the_other_region_under_the_same_id(world: World) -> None:
    world.near.answer = die_asked
    answer = await world.http.post(CHAT, content=b"{}")
    assert (answer.status_code, answer.text) == (200, str(world.far.port))
    assert answer.headers[REGION_HEADER] == "asia"
    (first,), (second,) = world.near.requests, world.far.requests
    assert first.request_id is not None
    assert (first.request_id, first.body) == (second.request_id, second.body)
    assert answer.headers["x-request-id"] == first.request_id


async def test_request_that_may_not_be_repeated_is_not_repeated_elsewhere_either(world: World) -> None:
    world.near.answer = die_asked
    answer = await world.http.post("/v1/files", content=b"{}")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert world.far.requests == []


@pytest.mark.parametrize("end", ["dies", "drains"])
async def test_requests_leave_while_no_replica_lives_and_come_back_with_it(world: World, end: str) -> None:
    if end == "dies":
        await world.near.die()
    else:
        world.near.is_draining = True
    await world.us.knows()
    answer = await world.http.post("/v1/files", content=b"x" * 5_000_000)
    assert (answer.text, answer.headers[REGION_HEADER]) == (str(world.far.port), "asia")
    assert len(world.far.requests[0].body) == 5_000_000
    assert world.far.requests[0].request_id == answer.headers["x-request-id"]
    if end == "dies":
        await world.near.start(world.near.port)
    world.near.is_draining = False
    await world.us.knows(world.near.port)
    await eventually(lambda: _answers_from(world.http, "us"))


async def _answers_from(http: AsyncClient, region: str) -> bool:
    return (await http.post(CHAT, content=b"{}")).headers.get(REGION_HEADER) == region


async def test_requests_leave_a_region_at_once_when_it_is_drained_and_come_back_later(world: World) -> None:
    world.near.is_region_drained = True
    await eventually(lambda: _is(world, world.us, 503))
    answer = await world.http.post(CHAT, content=b"{}")
    assert (answer.text, answer.headers[REGION_HEADER]) == (str(world.far.port), "asia")
    world.near.is_region_drained = False
    undrained_at = time.monotonic()
    await eventually(lambda: _is(world, world.us, 200))
    assert time.monotonic() - undrained_at >= TIMINGS.return_after_s
    assert await _answers_from(world.http, "us")


async def test_gatekeeper_of_another_region_reaches_a_drained_region_and_no_other(world: World) -> None:
    world.near.is_region_drained = True
    await eventually(lambda: _is(world, world.us, 503))
    assert (await world.http.post(LIMITS_PATH, content=b"[]")).text == str(world.near.port)
    await world.near.die()
    await world.us.knows()
    assert (await world.http.post(LIMITS_PATH, content=b"[]")).status_code == 503
    assert [one.path for one in world.far.requests] == []


async def _is(world: World, front: RunningFront, status: int) -> bool:
    return await world.regionz(front) == status


async def test_requests_leave_a_region_without_a_ready_replica(world: World) -> None:
    world.near.is_ready = False
    await eventually(lambda: _is(world, world.us, 503))
    assert await _answers_from(world.http, "asia")


async def test_flapping_replica_moves_nothing(world: World) -> None:
    seen = set()
    for _ in range(3):
        for world.near.is_draining in (True, False):
            await world.us.knows(*([] if world.near.is_draining else [world.near.port]))
            seen.add(await world.regionz(world.us))
    assert seen == {200}


# Loops, and which requests are trusted.


async def test_request_is_never_sent_on_twice(world: World) -> None:
    world.near.is_draining = world.far.is_draining = True
    await world.us.knows()
    await world.asia.knows()  # Both still count as serving, so each would send to the other.
    answer = await world.http.post(CHAT, content=b"{}")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.headers["x-request-id"].startswith("req_")
    assert not [*world.near.requests, *world.far.requests]


async def test_request_of_another_front_is_served_here_although_the_region_is_drained(world: World) -> None:
    world.near.is_region_drained = True
    await eventually(lambda: _is(world, world.us, 503))
    answer = await world.http.post(CHAT, content=b"{}", headers={FROM_REGION_HEADER: signed("asia", ID)})
    assert (answer.text, answer.headers[REGION_HEADER]) == (str(world.near.port), "us")
    assert answer.headers["x-request-id"] == ID


FORGED = (
    "asia",
    f"asia:{ID}:",
    f"asia:{ID}:{'0' * 64}",
    signed("asia", ID, STRANGER.request_key),
    signed("asia", ID).replace("asia", "eu"),
    signed("asia", ID).replace("0a0a", "0b0b"),
    signed("asia", ID)[:-1],
    f"x, {signed('asia', ID)}",
)


async def test_forged_word_of_another_region_is_stripped(world: World) -> None:
    for forged in FORGED:
        answer = await world.http.post(CHAT, content=b"{}", headers={FROM_REGION_HEADER: forged})
        request = world.near.requests[-1]
        assert FROM_REGION_HEADER not in request.headers, forged
        assert request.request_id == answer.headers["x-request-id"] != ID, forged
    assert len(world.near.requests) == len(FORGED)
    world.near.is_draining = True
    await world.us.knows()
    for forged in FORGED:
        answer = await world.http.post(CHAT, content=b"{}", headers={FROM_REGION_HEADER: forged})
        assert (answer.status_code, answer.headers[REGION_HEADER]) == (200, "asia"), forged


async def test_questions_of_fronts_are_not_sent_on(world: World) -> None:
    await world.near.die()
    await world.us.knows()
    assert (await world.http.get("/-/manta/ingress")).status_code == 503
    assert world.far.requests == []


async def test_replica_of_another_region_is_no_replica_of_this_one(world: World) -> None:
    port = world.us.replica_ports[1]
    async with replicas(port, region="asia") as (stranger,):
        await eventually(lambda: stranger.num_questions > 1)  # Its first answer has been heard by then.
        assert {(await world.http.post(CHAT, content=b"{}")).text for _ in range(4)} == {str(world.near.port)}


# What passes.


async def test_streams_pass(world: World) -> None:
    go_on = asyncio.Event()

    async def stream(replica: Replica, request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nfirst\n\r\n")
        await go_on.wait()
        writer.write(b"5\r\nlast\n\r\n0\r\n\r\n")

    world.far.answer = stream
    await world.near.die()
    await world.us.knows()
    async with world.http.stream("POST", CHAT, content=b"{}") as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == "first"
        go_on.set()
        assert [line async for line in lines] == ["last"]


async def test_websockets_pass(world: World) -> None:
    async def upgrade(replica: Replica, request: Request, writer: asyncio.StreamWriter) -> None:
        guid = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accepted = b64encode(sha1(request.headers["sec-websocket-key"].encode() + guid).digest()).decode()
        head = ["HTTP/1.1 101 Switching Protocols", "connection: upgrade", "upgrade: websocket"]
        writer.write("\r\n".join([*head, f"sec-websocket-accept: {accepted}", "", "frame"]).encode())
        await writer.drain()
        await asyncio.sleep(1)

    world.far.answer = upgrade
    await world.near.die()
    await world.us.knows()
    reader, writer = await asyncio.open_connection("127.0.0.1", world.us.settings.port, ssl=world.site.context)
    lines = ["GET /v1/responses HTTP/1.1", "host: manta.test", "connection: upgrade", "upgrade: websocket"]
    writer.write("\r\n".join([*lines, f"sec-websocket-key: {b64encode(b'k' * 16).decode()}", "", ""]).encode())
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).startswith(b"HTTP/1.1 101 ")
    assert await asyncio.wait_for(reader.readexactly(5), 10) == b"frame"
    writer.close()
    await writer.wait_closed()


# Which other regions are trusted.


async def test_front_with_a_certificate_of_another_name_or_authority_gets_no_request(world: World) -> None:
    world.near.is_region_drained = True
    await eventually(lambda: _answers_from(world.http, "asia"))
    num_requests = len(world.far.requests)
    with _changed(world.site):
        for authority, hosts in ((world.site.authority, ("elsewhere.test",)), (Authority(), ("localhost",))):
            world.site.issue("asia", authority, hosts)
            await eventually(lambda: world.us.checks(world.asia.settings.port, backend_of("asia")) == {"L6RSP"})
            await sees_no_more(world.us, "asia")
            assert await world.regionz(world.asia) == 200
            assert await _answers_from(world.http, "us")
            world.site.issue("asia")
            await sees(world.us, "asia")
    assert len(world.far.requests) == num_requests
    assert await _answers_from(world.http, "asia")


@contextmanager
def _changed(site: Site) -> Iterator[None]:
    """Put the files back in the end, for the tests that follow."""
    try:
        yield
    finally:
        site.issue("asia")
        site.authority_file.write_text(site.authority.pem)


async def test_authority_that_changes_is_taken_up(world: World) -> None:
    with _changed(world.site):
        world.site.authority_file.write_text(Authority().pem)
        await sees_no_more(world.us, "asia")
    await sees(world.us, "asia")


async def test_haproxy_that_is_started_anew_knows_the_other_region_from_its_first_moment(world: World) -> None:
    await world.near.die()
    await world.us.knows()
    await eventually(lambda: _is(world, world.us, 503))
    with world.us.without_agent():
        for number in range(2):
            killed = world.us.pid_of(number)
            os.kill(killed, signal.SIGKILL)
            await world.us.is_back(number, killed)
        await sees(world.us, "asia")
        assert await _answers_from(world.http, "asia")
        assert await world.regionz(world.us) == 503
