"""The ingress's side of the front: whose request ids it takes over, and how it introduces itself."""

import hmac
import re

import httpx2
import pytest
from starlette.middleware import Middleware

from deployments.proof import NONCE_HEADER, PROOF_HEADER, QUESTION_PATH, REQUEST_ID_HEADER, FrontTrust
from serve_app.asgi import create_asgi_app
from serve_app.front.middleware import FrontMiddleware
from serve_app.http.middleware import OwnRequestIds
from tests.contract.http.answers import SECRET

TRUST, OTHER = FrontTrust.from_pepper(b"p" * 32), FrontTrust.from_pepper(b"q" * 32)
ID = "req_" + "0a" * 16
KNOWN = {"10.0.0.2:30000", "10.0.0.1:30000"}


@pytest.fixture
async def http(world):
    outermost = [Middleware(OwnRequestIds), Middleware(FrontMiddleware, TRUST, lambda: KNOWN)]
    transport = httpx2.ASGITransport(app=create_asgi_app(world.app().state.services, outermost))
    async with httpx2.AsyncClient(transport=transport, base_url="http://manta.test:30001") as http:
        yield http


def signed(trust: FrontTrust, request_id: str = ID) -> dict[str, str]:
    signature = hmac.digest(trust.request_key, request_id.encode(), "sha256").hex()
    return {REQUEST_ID_HEADER: f"{request_id} {signature}"}


async def test_request_keeps_the_id_that_its_front_gave_it(http, world):
    answer = await http.get("/v1/models", headers={"authorization": f"Bearer {SECRET}", **signed(TRUST)})
    assert answer.headers["x-request-id"] == ID
    assert world.log.records[-1].request_id == ID


@pytest.mark.parametrize("headers", [{}, signed(OTHER), {REQUEST_ID_HEADER: ID}, {"x-request-id": ID}])
async def test_other_requests_get_an_id_of_their_own(http, headers):
    answer = await http.get("/v1/models", headers=headers)
    assert answer.headers["x-request-id"] != ID
    assert re.fullmatch(r"req_[0-9a-f]{32}", answer.headers["x-request-id"])


async def test_front_is_told_the_port_and_who_else_there_is(http):
    nonce = "n" * 32
    headers = {NONCE_HEADER: nonce, PROOF_HEADER: TRUST.prove_question(nonce)}
    answer = await http.get(QUESTION_PATH, headers=headers)
    assert answer.json()["ingresses"] == sorted(KNOWN)
    assert answer.headers[PROOF_HEADER] == TRUST.prove_answer(nonce, answer.content)


@pytest.mark.parametrize("proof", [{}, {PROOF_HEADER: "x"}, {PROOF_HEADER: OTHER.prove_question("n")}])
async def test_nobody_else_is(http, proof):
    answer = await http.get(QUESTION_PATH, headers={NONCE_HEADER: "n", **proof})
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "invalid_request_error"
