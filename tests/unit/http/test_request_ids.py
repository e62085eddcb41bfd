import pickle

import pytest

from serve_app.http.middleware import OwnHeaders, OwnRequestIds

OURS = [(b"x-request-id", b"req_ours"), (b"content-type", b"text/plain")]


async def answer(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": list(OURS)})
    await send({"type": "http.response.body", "body": b""})


async def test_only_our_request_id_is_sent_when_serve_adds_its_own():
    http_util = pytest.importorskip("ray.serve._private.http_util")
    sent = []

    async def send(message):
        sent.append(message)

    wrapped = http_util.RequestIdMiddleware(OwnRequestIds(answer))
    await wrapped({"type": "http", "headers": []}, None, send)
    assert sent[0].get("headers") == sent[0]["headers"] == OURS
    assert sent[1] == {"type": "http.response.body", "body": b""}


def test_the_message_stays_protected_when_it_crosses_a_process():
    message = pickle.loads(pickle.dumps(OwnHeaders({"type": "http.response.start", "headers": list(OURS)})))
    message["headers"] = [*message["headers"], (b"X-Request-ID", b"another")]
    assert message["headers"] == OURS
