"""Two gatekeepers that exchange loans over real HTTP and TLS, each behind an ingress's door; and who gets no answer."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx2
import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.limits.client.gatekeeper_client import GatekeeperClient
from deployments.limits.client.leases import DENIAL_S
from deployments.limits.contract import Granted
from deployments.limits.gatekeeper import GatekeeperProcess
from deployments.limits.journal import share_of
from deployments.limits.regions.link import LinkDown, RegionClient
from deployments.limits.regions.messages import LoanAsk, LoanReply, LoanRequest, parse_reply, render
from deployments.patience import USUAL
from deployments.proof import LIMITS_HEADER, LIMITS_PATH, MAX_AGE_S, RegionTrust
from deployments.state.config import ResolvedState
from deployments.state.database.connection import connect
from deployments.state.identity.key_store import KeyStore
from deployments.state.identity.keys import NewKey
from deployments.state.identity.principal import Principal
from deployments.state.regions import ResolvedRegion
from serve_app.front.middleware import LimitsMiddleware, QuotaLender
from tests.certificates import Authority
from tests.contract.state.processes import DirectTransport, kill, resolved, start
from tests.patience import PATIENT
from tests.ports import free_port
from tests.waiting import eventually

NAMES = ("asia", "us")
REQUESTS, TOKENS = 11, 40_000


async def no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


async def unsigned(scope: Scope, receive: Receive, send: Send) -> None:
    reply = render(LoanReply("a-lender", [], [], []))
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", b"%d" % len(reply)), (LIMITS_HEADER.encode(), b"0" * 64)],
        }
    )
    await send({"type": "http.response.body", "body": reply})


@dataclass
class Region:
    name: str
    state: ResolvedState
    port: int
    gatekeeper: GatekeeperProcess | None = None
    servers: list[tuple[uvicorn.Server, asyncio.Task[None]]] = field(default_factory=list)

    @property
    def trust(self) -> RegionTrust:
        return RegionTrust.from_pepper(self.state.pepper)

    def door(self) -> ASGIApp:
        return LimitsMiddleware(no_such_path, QuotaLender(self.name, self.trust, self._lend))

    def client(self) -> GatekeeperClient:
        assert self.gatekeeper is not None
        transport = DirectTransport(self.gatekeeper)
        return GatekeeperClient(transport, self.state.pepper, share=share_of(self.state), patience=PATIENT)

    def away_s(self) -> float | None:
        assert self.gatekeeper is not None
        shares = self.gatekeeper.shares()
        assert shares is not None
        (other,) = shares["others"].values()
        away_s: float | None = other["away_s"]
        return away_s

    async def serve(self, certificate: Path, key: Path) -> None:
        config = uvicorn.Config(
            self.door(),
            host="127.0.0.1",
            port=self.port,
            log_level="error",
            lifespan="off",
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        server = uvicorn.Server(config)
        self.servers.append((server, asyncio.create_task(server.serve())))
        await eventually(lambda: server.started)

    async def go_away(self) -> None:
        for server, serving in self.servers:
            server.should_exit = server.force_exit = True
            await serving
        self.servers.clear()

    async def _lend(self, body: bytes) -> bytes:
        assert self.gatekeeper is not None
        return await asyncio.to_thread(self.gatekeeper.lend, body)


@dataclass
class Two:
    asia: Region
    us: Region
    principal: Principal
    secret: str
    certificate: Path
    key: Path

    async def admit(self, client: GatekeeperClient, times: int) -> list[bool]:
        assert await client.identify(self.secret) == self.principal
        return [isinstance(await client.admit(self.principal), Granted) for _ in range(times)]


@pytest.fixture
async def two(postgres_url: str, tmp_path: Path) -> AsyncIterator[Two]:
    authority, certificate, key = Authority(), tmp_path / "cert.pem", tmp_path / "key.pem"
    authority.issue(certificate, key)
    trusted = tmp_path / "authority.pem"
    trusted.write_text(authority.pem)
    ports = {name: free_port() for name in NAMES}
    regions = {}
    patience = replace(PATIENT, recovery_s=USUAL.recovery_s)  # Of its clients none is left when one is killed.
    pepper = resolved(postgres_url, tmp_path / "secrets").pepper
    for name in NAMES:
        others = {other: f"https://localhost:{ports[other]}" for other in NAMES if other != name}
        place = ResolvedRegion(name, others, trusted)
        state = replace(resolved(postgres_url, tmp_path / name), region=place, pepper=pepper, patience=patience)
        regions[name] = Region(name, state, ports[name])
    database = await connect(postgres_url)
    store = KeyStore(database, pepper)
    made, secret = await store.create(NewKey(requests_per_minute=REQUESTS, tokens_per_minute=TOKENS))
    for region in regions.values():
        region.gatekeeper = await asyncio.to_thread(start, region.state)
        await region.serve(certificate, key)
    principal = await regions["us"].client().identify(secret)
    assert principal is not None
    assert principal.key_id == made.key_id
    two = Two(regions["asia"], regions["us"], principal, secret, certificate, key)
    await eventually(lambda: two.asia.away_s() is None and two.us.away_s() is None)
    yield two
    for region in regions.values():
        if region.gatekeeper is not None:
            await asyncio.to_thread(region.gatekeeper.stop)
        await region.go_away()
    await database.close()


async def test_one_region_gets_the_whole_limit_and_the_other_then_nothing(two: Two) -> None:
    us, asia = two.us.client(), two.asia.client()
    assert await two.admit(us, REQUESTS + 1) == [True] * REQUESTS + [False]
    assert await two.admit(asia, 1) == [False]
    assert two.us.gatekeeper is not None
    shares = two.us.gatekeeper.shares()
    assert shares is not None
    (of_key,) = shares["keys"]
    assert of_key["requests"] == {"limit": REQUESTS, "share": 5, "used": REQUESTS, "lent": 0, "borrowed": 6}
    await us.close()
    await asia.close()


async def test_a_region_that_is_cut_off_serves_its_share_at_once_and_all_of_it_after_healing(two: Two) -> None:
    await two.asia.go_away()
    await eventually(lambda: two.us.away_s() is not None)
    us = two.us.client()
    assert await two.admit(us, 6) == [True] * 5 + [False]
    assert await two.admit(two.asia.client(), 1) == [True]  # It lives: only the way to it is cut.
    await two.asia.serve(two.certificate, two.key)
    await eventually(lambda: two.us.away_s() is None)
    await asyncio.sleep(DENIAL_S)
    assert (await two.admit(us, 1)) == [True]
    await us.close()


async def test_a_lender_that_is_killed_lends_nothing_twice(two: Two) -> None:
    us = two.us.client()
    assert await two.admit(us, REQUESTS) == [True] * REQUESTS
    assert two.asia.gatekeeper is not None
    killed = two.asia.gatekeeper
    for link in killed._links:
        link.stop()
    await asyncio.to_thread(kill, killed)
    two.asia.gatekeeper = await asyncio.to_thread(start, two.asia.state)
    assert await two.admit(two.asia.client(), 1) == [False]
    await eventually(lambda: two.us.away_s() is None)
    assert await two.admit(us, 1) == [False]
    await us.close()


def ask_of(two: Two, **values: object) -> LoanRequest:
    assert two.us.gatekeeper is not None
    lender = two.asia.gatekeeper._core.epoch  # type: ignore[union-attr]
    asks = [LoanAsk(two.principal.key_id, 2, 0)]
    return LoanRequest(list(NAMES), "us", "us:another", lender, 1, 2.0, asks, [], {})._replace(**values)


async def post(two: Two, header: str | bytes | None, body: bytes) -> httpx2.Response:
    transport = httpx2.ASGITransport(app=two.asia.door())
    async with httpx2.AsyncClient(transport=transport, base_url="https://asia.test") as http:
        return await http.post(LIMITS_PATH, content=body, headers={} if header is None else {LIMITS_HEADER: header})


def lent(two: Two) -> int:
    assert two.asia.gatekeeper is not None
    shares = two.asia.gatekeeper.shares()
    assert shares is not None
    total: int = shares["lent"]["requests"]
    return total


async def test_who_proves_nothing_is_lent_nothing(two: Two) -> None:
    body = render(ask_of(two))
    header, _ = two.asia.trust.sign_request("asia", body)
    foreign, _ = RegionTrust.from_pepper(b"q" * 32).sign_request("asia", body)
    misled, _ = two.asia.trust.sign_request("us", body)
    old, _ = replaced_clock(two, time.time() - MAX_AGE_S - 5).sign_request("asia", body)
    early, _ = replaced_clock(two, time.time() + MAX_AGE_S + 5).sign_request("asia", body)
    for wrong in (None, "", "x", "a b c d", foreign, misled, old, early, header[:-1] + "g", header.encode() + b"\xe9"):
        assert (await post(two, wrong, body)).status_code == 404, wrong
    assert (await post(two, header, body + b" ")).status_code == 404
    assert lent(two) == 0
    assert (await post(two, header, body)).status_code == 200
    assert lent(two) == 2


def replaced_clock(two: Two, now: float) -> RegionTrust:
    return RegionTrust.from_pepper(two.asia.state.pepper, lambda: now)


async def test_a_request_that_is_sent_again_by_another_lends_nothing_more(two: Two) -> None:
    body = render(ask_of(two))
    header, nonce = two.asia.trust.sign_request("asia", body)
    first, again = [await post(two, header, body) for _ in range(2)]
    assert first.content == again.content
    assert two.asia.trust.check_reply(nonce, first.headers[LIMITS_HEADER], first.content)
    assert not two.asia.trust.check_reply(nonce, first.headers[LIMITS_HEADER], first.content + b" ")
    assert lent(two) == 2
    later = render(ask_of(two, serial=2))
    await post(two, two.asia.trust.sign_request("asia", later)[0], later)
    assert lent(two) == 4
    assert parse_reply((await post(two, header, body)).content).lent == []
    assert lent(two) == 4


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b"nonsense", b"[" * 5_000])
async def test_what_is_no_request_changes_nothing(two: Two, body: bytes) -> None:
    header, _ = two.asia.trust.sign_request("asia", body)
    assert (await post(two, header, body)).status_code == 400
    assert lent(two) == 0


async def test_a_reply_without_proof_or_certificate_is_not_trusted(two: Two, tmp_path: Path) -> None:
    trust, address = two.us.trust, f"https://localhost:{two.asia.port}"
    trusted = two.us.state.region
    assert trusted is not None
    body = render(ask_of(two))

    async def ask(client: RegionClient) -> LoanReply:
        try:
            return parse_reply(await asyncio.to_thread(client.exchange, body))
        finally:
            client.close()

    assert (await ask(RegionClient("asia", address, trust, trusted.certificate_authority))).lent
    with pytest.raises(LinkDown, match="SSLCertVerificationError"):
        await ask(RegionClient("asia", address, trust))
    with pytest.raises(LinkDown, match="404"):
        await ask(RegionClient("us", address, trust, trusted.certificate_authority))
    authority = Authority()
    await two.asia.go_away()
    two.asia.door = lambda: unsigned  # type: ignore[method-assign]
    await two.asia.serve(two.certificate, two.key)
    with pytest.raises(LinkDown, match="no proof"):
        await ask(RegionClient("asia", address, trust, trusted.certificate_authority))
    await two.asia.go_away()
    authority.issue(tmp_path / "other.pem", tmp_path / "other.key", ("elsewhere.test",))
    (tmp_path / "trusted.pem").write_text(authority.pem)
    await two.asia.serve(tmp_path / "other.pem", tmp_path / "other.key")
    with pytest.raises(LinkDown, match="SSLCertVerificationError"):
        await ask(RegionClient("asia", address, trust, tmp_path / "trusted.pem"))
