"""A URL with a slip in it gets the route that was meant, and no other one does."""

import time

import pytest

from serve_app.asgi import ROUTES
from serve_app.http.nearest_route import nearest_route


@pytest.mark.parametrize(
    ("method", "path", "nearest"),
    [
        ("POST", "/v1/chat/completion", "POST /v1/chat/completions"),
        ("POST", "/v1/chat/completions/", "POST /v1/chat/completions"),
        ("POST", "/v1/chat-completions", "POST /v1/chat/completions"),
        ("POST", "/V1/Chat/Completions", "POST /v1/chat/completions"),
        ("POST", "/v1/chat", "POST /v1/chat/completions"),
        ("POST", "/chat/completion", "POST /v1/chat/completions"),
        ("POST", "/v1/embedding", "POST /v1/embeddings"),
        ("POST", "/v1/response", "POST /v1/responses"),
        ("GET", "/v1/model", "GET /v1/models"),
        ("HEAD", "/v1/model", "GET /v1/models"),
        ("POST", "/v1/model", "GET /v1/models"),
        ("GET", "/v1/batch/batch_1", "GET /v1/batches/batch_1"),
        ("GET", "/v1/files/file-1/contents", "GET /v1/files/file-1/content"),
        ("POST", "/v1/batches/batch_1/cancle", "POST /v1/batches/batch_1/cancel"),
        ("GET", "/v1/livez", "GET /livez"),
        ("GET", "/doc", "GET /docs"),
    ],
)
def test_the_route_that_was_meant_is_suggested(method: str, path: str, nearest: str) -> None:
    assert nearest_route(method, path, ROUTES) == nearest


@pytest.mark.parametrize(
    "path",
    ["/", "//", "/v1/v1", "/v1/x", "/v1/nothing", "/v1/images/generations", "/v1/audio/speech", "/v1/files/a/b/c/d",
     "/wp-login.php", "/.env", "/v1/nothing/batch_0123456789abcdef0123456789abcdef"],
)  # fmt: skip
def test_nothing_is_suggested_for_another_path(path: str) -> None:
    for method in ("GET", "POST", "DELETE", "PATCH"):
        assert nearest_route(method, path, ROUTES) == ""


def test_ids_are_shown_in_printable_characters() -> None:
    assert nearest_route("GET", "/v1/batchs/\x00\n", ROUTES) == "GET /v1/batches/??"


def test_hostile_paths_cost_little() -> None:
    paths = ["/v1/" + "chat/completion" * 100_000, "/" * 1_000_000]
    paths += ["/v1/chat/completio" + "n" * number for number in range(40)]
    started = time.process_time()
    for path in paths:
        nearest_route("POST", path, ROUTES)
    assert time.process_time() - started < 0.5
