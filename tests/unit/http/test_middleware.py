import asyncio
import logging
import pickle
from dataclasses import replace

import orjson
import pytest

from deployments.models.contract.errors import Overloaded
from deployments.state.objects.store import StoreFull, StoreUnavailable
from serve_app.errors.api import ApiError, InvalidKey
from serve_app.http.admission import Admission
from serve_app.http.body_limits import BodyLimitMiddleware, BodyLimits
from serve_app.http.middleware import TRACE, OwnHeaders, OwnRequestIds, RequestMiddleware
from serve_app.telemetry.series import PrometheusMetrics
from serve_app.telemetry.trace import MAX_UNAUTHENTICATED, Observer
from tests.twins.gatekeeper import MemoryGatekeeper, MemoryRequestLog, TestClock
from tests.twins.keys import principal_of_key
from tests.unit.http.asgi import Server, ok, scope

PRINCIPAL = principal_of_key(account="acct", organization="Org One")


def front(app, log=None, routes=None, principal=PRINCIPAL):
    """Return the middleware over an application; with a `log`, requests are those of `principal`."""

    async def run(scope, receive, send):
        if log is not None:
            scope[TRACE].principal = principal
        await app(scope, receive, send)

    admission = Admission(MemoryGatekeeper({}, TestClock()))
    observer = Observer(log or MemoryRequestLog(), PrometheusMetrics())
    return RequestMiddleware(run, admission=admission, observer=observer, routes=routes or {})


async def test_headers_are_on_every_answer():
    server = Server()
    await front(ok)(scope(), server.receive, server.send)
    assert server.headers[b"x-request-id"].startswith(b"req_")
    assert server.headers[b"openai-version"] == b"2020-10-01"
    assert server.headers[b"openai-processing-ms"].isdigit()
    assert b"openai-organization" not in server.headers
    assert b"x-ratelimit-limit-requests" not in server.headers


async def test_known_principal_adds_organization_and_limits():
    async def app(scope, receive, send):
        scope[TRACE].principal = PRINCIPAL
        raise InvalidKey("sk-x")

    server = Server()
    await front(app)(scope(), server.receive, server.send)
    assert server.sent[0]["status"] == 401
    assert server.headers[b"openai-organization"] == b"Org One"
    assert server.headers[b"x-ratelimit-limit-tokens"] == b"40000"
    assert server.headers[b"www-authenticate"] == b"Bearer"


async def test_a_request_without_a_valid_key_is_not_stored_and_logged_sixty_times_a_minute_at_most(caplog):
    async def app(scope, receive, send):
        raise InvalidKey("sk-x")

    log = MemoryRequestLog()
    with caplog.at_level(logging.INFO, "manta.requests"):
        strange, known = front(app, log, principal=None), front(app, log)
        for _ in range(3 * MAX_UNAUTHENTICATED):
            await strange(scope(), Server().receive, Server().send)
        assert (log.ahead, log.records, len(caplog.records)) == ([], [], MAX_UNAUTHENTICATED)
        await known(scope(), Server().receive, Server().send)
        assert (len(log.records), len(caplog.records)) == (1, MAX_UNAUTHENTICATED + 1)


async def test_bug_before_the_answer_is_500_and_its_words_are_kept_back(caplog):
    async def app(scope, receive, send):
        try:
            raise KeyError("private")
        except KeyError as error:
            raise RuntimeError("private words") from error

    server, log = Server(), MemoryRequestLog()
    await front(app, log)(scope(), server.receive, server.send)
    assert server.sent[0]["status"] == 500
    assert orjson.loads(server.sent[1]["body"])["error"]["type"] == "server_error"
    assert "private" not in caplog.text
    assert "builtins.RuntimeError" in caplog.text
    assert "builtins.KeyError" in caplog.text
    assert log.records[0].status == 500


@pytest.mark.parametrize(
    ("failure", "status"),
    [(Overloaded("full", 3.0), 503), (StoreUnavailable("away"), 503), (StoreFull("full"), 507)],
)
async def test_failure_of_an_engine_or_a_store_is_an_answer_and_no_bug(failure, status, caplog):
    async def app(scope, receive, send):
        raise failure

    server, log = Server(), MemoryRequestLog()
    await front(app, log)(scope(), server.receive, server.send)
    assert server.sent[0]["status"] == status
    assert log.records[0].status == status
    assert not caplog.records


async def test_bug_after_the_head_sends_nothing_more():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ApiError

    server, log = Server(), MemoryRequestLog()
    await front(app, log)(scope(), server.receive, server.send)
    assert len(server.sent) == 1
    assert log.records[0].code is None


@pytest.mark.parametrize("status", [200, 401])
async def test_request_is_taken_down_before_the_end_of_its_answer_is_sent(status):
    async def app(scope, receive, send):
        scope["endpoint"] = ok
        scope[TRACE].principal = PRINCIPAL
        if status == 401:
            raise InvalidKey("sk-x")
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"o", "more_body": True})
        assert not log.ahead
        await send({"type": "http.response.body", "body": b"k"})

    async def send(message):
        assert bool(log.ahead) == (message["type"] == "http.response.body" and not message.get("more_body"))

    log = MemoryRequestLog()
    await front(app, log, {ok: "/x/{id}"})(scope(), Server().receive, send)
    (ahead,), (record,) = log.ahead, log.records
    assert ahead.total_s < record.total_s
    assert replace(ahead, total_s=record.total_s) == record
    assert (record.status, record.route, record.account) == (status, "/x/{id}", "acct")


async def test_request_is_taken_down_once_where_the_answer_has_seen_to_it():
    async def app(scope, receive, send):
        scope[TRACE].write_ahead()
        assert len(log.ahead) == 1
        assert log.ahead[0].status == 200
        await ok(scope, receive, send)

    log, server = MemoryRequestLog(), Server()
    await front(app, log)(scope(), server.receive, server.send)
    assert len(log.ahead) == 1


@pytest.mark.parametrize("mark", ["goes_on", "is_repeated"])
async def test_request_that_is_recorded_elsewhere_is_not_taken_down(mark):
    async def app(scope, receive, send):
        setattr(scope[TRACE], mark, True)
        await ok(scope, receive, send)

    log, server = MemoryRequestLog(), Server()
    await front(app, log)(scope(), server.receive, server.send)
    assert (log.ahead, log.records) == ([], [])


async def test_record_names_the_route_and_known_methods_only():
    async def app(scope, receive, send):
        scope["endpoint"] = ok
        await ok(scope, receive, send)

    log, server = MemoryRequestLog(), Server()
    door = front(app, log, {ok: "/x/{id}"})
    await door(scope("GET"), server.receive, server.send)
    await door(scope("SECRET"), server.receive, server.send)
    await front(ok, log)(scope("GET"), server.receive, server.send)
    assert [(record.method, record.route) for record in log.records] == [
        ("GET", "/x/{id}"),
        ("OTHER", "/x/{id}"),
        ("GET", "unmatched"),
    ]


async def test_answer_that_never_came_is_recorded_as_a_departure():
    async def app(scope, receive, send):
        return

    log, server = MemoryRequestLog(), Server()
    await front(app, log)(scope(), server.receive, server.send)
    assert log.records[0].status == 499


async def test_cancellation_is_recorded_and_passed_on():
    async def app(scope, receive, send):
        raise asyncio.CancelledError

    log, server = MemoryRequestLog(), Server()
    with pytest.raises(asyncio.CancelledError):
        await front(app, log)(scope(), server.receive, server.send)
    assert len(log.records) == 1


@pytest.mark.parametrize(("path", "seen"), [("/a/", "/a"), ("/a//", "/a"), ("/", "/"), ("//", "/"), ("/a", "/a")])
async def test_trailing_slash_does_not_matter(path, seen):
    paths = []

    async def app(scope, receive, send):
        paths.append(scope["path"])

    server = Server()
    await front(app)(scope(path=path), server.receive, server.send)
    assert paths == [seen]


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
async def test_other_protocols_pass_untouched(kind):
    seen = []

    async def app(scope, receive, send):
        seen.append((scope, receive, send))

    server, other = Server(), {"type": kind}
    await front(BodyLimitMiddleware(app, bounds=BodyLimits()))(other, server.receive, server.send)
    assert seen == [(other, server.receive, server.send)]
    assert TRACE not in other


OURS = [(b"x-request-id", b"req_ours"), (b"content-type", b"text/plain")]


async def answer_with_our_id(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": list(OURS)})
    await send({"type": "http.response.body", "body": b""})


async def test_only_our_request_id_is_sent_when_serve_adds_its_own():
    http_util = pytest.importorskip("ray.serve._private.http_util")
    sent = []

    async def send(message):
        sent.append(message)

    wrapped = http_util.RequestIdMiddleware(OwnRequestIds(answer_with_our_id))
    await wrapped({"type": "http", "headers": []}, None, send)
    assert sent[0].get("headers") == sent[0]["headers"] == OURS
    assert sent[1] == {"type": "http.response.body", "body": b""}


def test_the_message_stays_protected_when_it_crosses_a_process():
    message = pickle.loads(pickle.dumps(OwnHeaders({"type": "http.response.start", "headers": list(OURS)})))
    message["headers"] = [*message["headers"], (b"X-Request-ID", b"another")]
    assert message["headers"] == OURS
