import pytest

from serve_app.serve_seam import OwnRequestIds, unwrap_send


async def answer(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-request-id", b"req_ours")]})
    await send({"type": "http.response.body", "body": b""})


async def test_only_our_request_id_is_sent_when_serve_wraps_the_application():
    http_util = pytest.importorskip("ray.serve._private.http_util")
    sent = []

    async def send(message):
        sent.append(message)

    wrapped = http_util.RequestIdMiddleware(OwnRequestIds(answer))
    await wrapped({"type": "http", "headers": []}, None, send)
    assert sent[0]["headers"] == [(b"x-request-id", b"req_ours")]


def test_any_other_send_stays_as_it_is():
    async def send(message): ...

    assert unwrap_send(send) is send
