"""Renders the lines of a batch's output and error files."""

import secrets

import orjson

from serve_app.errors.api import WireError


def read_custom_id(content: bytes) -> str:
    """Return the custom_id of a line that has been validated."""
    custom_id: str = orjson.loads(content)["custom_id"]
    return custom_id


def render_answer(custom_id: str, request_id: str, status: int, body: bytes | WireError) -> bytes:
    """Return the output line of a request that ran; `body` is an error, or bytes of JSON."""
    answer = body if isinstance(body, bytes) else orjson.dumps(body)
    if b"\n" in answer:
        answer = orjson.dumps(orjson.loads(answer))
    head = {"id": _new_id(), "custom_id": custom_id}
    response = {"status_code": status, "request_id": request_id}
    # The answer is inserted as bytes: to parse and render it again would cost more than all the rest.
    start = orjson.dumps(head)[:-1] + b',"response":' + orjson.dumps(response)[:-1] + b',"body":'
    return start + answer + b'},"error":null}\n'


def render_not_run(custom_id: str, code: str, message: str) -> bytes:
    """Return the output line of a request that did not run."""
    line = {"id": _new_id(), "custom_id": custom_id, "response": None, "error": {"code": code, "message": message}}
    return orjson.dumps(line) + b"\n"


def _new_id() -> str:
    return f"batch_req_{secrets.token_hex(16)}"
