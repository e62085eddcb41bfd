"""The generated pages of the reference, from the code they describe.

`python -m tests.tools.pages.reference` writes them; with `--check` it names those that differ from the code and exits
with 1.
"""

import inspect
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from deployments.patience import USUAL, waits
from deployments.state.usage.record import RequestRecord
from serve_app.asgi import ROUTES
from serve_app.errors import api, capacity
from serve_app.front.timings import FrontTimings
from serve_app.telemetry.series import COPIES_LAG, COPIES_OWED, MOVED, PART_UP, PrometheusMetrics
from tests.tools.pages.codes import ANSWER, find_codes
from tests.tools.pages.command_line import render_commands
from tests.tools.pages.settings import render_settings

PAGES = Path(__file__).parents[3] / "docs" / "reference"
_NOTE = "<!-- Generated from the code by `make docs`. Do not edit. -->\n"
_ERRORS = """# Errors

An error answer, the error event of a stream and the body of a failed batch line have the same shape:

```json
{{"error": {{"message": "Why.", "type": "invalid_request_error", "param": "n", "code": "invalid_type"}}}}
```

`param` and `code` may be null. [Troubleshooting](../operate/troubleshooting.md) has the cause and the remedy of each
code.

## Classes

| class | status | type | meaning |
|---|---|---|---|
{classes}

## Codes

| code | stands in |
|---|---|
{codes}
"""
_API = """# API

A running service describes itself: `/docs` is a reference with every field, examples in curl, Python and Node, and a
form to try each route; `/docs/guide` has these pages; `/openapi.json` is an OpenAPI 3.1 document. None of them needs a
key.

The base URL of a client is the service's address followed by `/v1`. All paths but those, `/livez`, `/readyz`,
`/health`, `/ping` and `/metrics` need the header `Authorization: Bearer KEY`. `/metrics` is not on the clients' port.

| method | path | does |
|---|---|---|
{rows}
| `WebSocket` | `/v1/responses` | Take `response.create` messages and send the events of each response. |
"""
_METRICS = """# Metrics

Ray's metrics agent on each node exports these series for the whole cluster, with the prefix `ray_` and the replica as a
label; dashboards and alerts read those. `GET /metrics` at an ingress replica's own port shows that replica, without the
prefix; on the clients' port it is 404. Names follow OpenTelemetry's `gen_ai` where it has one. No label holds content.

| series | kind | labels | meaning |
|---|---|---|---|
{rows}

A line of a batch is counted under a route of its own, such as `batch:/v1/chat/completions`. A request for a model that
does not exist has an empty `model`. Status 499 stands for a client that left.

vLLM's own metrics come with the prefix `ray_vllm_`, Ray Serve's with `ray_serve_`. See
[Monitoring](../operate/monitoring.md).
"""
_TIMINGS = """# Timings

How long the parts of the service wait for each other before they take another way. On a slow or overloaded machine,
set [`patience`](settings.md#args) in the Serve file: it is the factor by which they become longer. Some are fixed,
because they bound something else; the last column says what.

| name | seconds | what it is for | promised | why it is fixed |
|---|---|---|---|---|
{rows}

## The front

The front's processes are outside of Ray and have times of their own, which `patience` leaves as they are.

| name | seconds | what it is for | promised |
|---|---|---|---|
{front}

Windows and leases, on which exactness rests, are not among them: see [Limits](../explain/limits.md).
"""


@cache
def render_pages() -> dict[str, str]:
    """Return every generated page by its file's name."""
    pages = {
        "settings.md": render_settings(),
        "errors.md": _errors(),
        "api.md": _api(),
        "metrics.md": _metrics(),
        "cli.md": render_commands(),
        "timings.md": _timings(),
    }
    return {name: _with_note(text) for name, text in pages.items()}


def _with_note(text: str) -> str:
    title, _, rest = text.partition("\n")
    return f"{title}\n\n{_NOTE}{rest.rstrip()}\n"


def find_stale(folder: Path = PAGES) -> list[str]:
    """Return the names of the pages in a folder that are not what the code generates."""
    return [
        name
        for name, text in render_pages().items()
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text
    ]


def _errors() -> str:
    rows = []
    pending: list[tuple[int, type[api.ApiError]]] = [(0, api.ApiError)]
    while pending:
        depth, kind = pending.pop(0)
        first = (inspect.getdoc(kind) or "").split("\n")[0]
        rows.append(f"| {'· ' * depth}`{kind.__name__}` | {kind.status} | `{kind.default_type}` | {first} |")
        below = [one for one in kind.__subclasses__() if one.__module__ in (api.__name__, capacity.__name__)]
        pending[:0] = [(depth + 1, one) for one in sorted(below, key=lambda one: one.status)]
    places: dict[str, list[str]] = {}
    for found in find_codes():
        statuses = ", ".join(str(status) for status in sorted(found.statuses)) if found.where == ANSWER else ""
        places.setdefault(found.code, []).append(f"{found.where}, {statuses}" if statuses else found.where)
    link = "[`{code}`](../operate/troubleshooting.md#{code})"
    codes = [f"| {link.format(code=code)} | {'; '.join(where)} |" for code, where in places.items()]
    return _ERRORS.format(classes="\n".join(rows), codes="\n".join(codes))


def _api() -> str:
    rows = []
    for route in ROUTES:
        methods = " ".join(sorted((route.methods or set()) - {"HEAD"}))
        first = (inspect.getdoc(route.endpoint) or "").split("\n")[0]
        rows.append(f"| `{methods}` | `{route.path.replace(':path', '')}` | {first} |")
    return _API.format(rows="\n".join(rows))


def _metrics() -> str:
    metrics = PrometheusMetrics()
    metrics.begin()
    metrics.end(_record())
    metrics.add(PART_UP, ("database",), 1)
    metrics.add(MOVED, ("m",), 1)
    for series in (COPIES_OWED, COPIES_LAG):
        metrics.add(series, ("files",), 1)
    rows = []
    for family in text_string_to_metric_families(metrics.render().decode()):
        if family.name.endswith("_created"):
            continue
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        name = f"{family.name}_total" if family.type == "counter" else family.name
        listed = ", ".join(f"`{label}`" for label in sorted(labels)) or "none"
        rows.append(f"| `{name}` | {family.type} | {listed} | {family.documentation} |")
    return _METRICS.format(rows="\n".join(rows))


def _timings() -> str:
    rows, front = [], []
    for name, wait in waits().items():
        rows.append(f"| `{name}` | {getattr(USUAL, name):g} | {wait.meaning} | {_link(wait.promised)} | {wait.fixed} |")
    for name, wait in waits(FrontTimings).items():
        front.append(f"| `{name}` | {getattr(FrontTimings(), name):g} | {wait.meaning} | {_link(wait.promised)} |")
    return _TIMINGS.format(rows="\n".join(rows), front="\n".join(front))


def _link(page: str) -> str:
    return f"[{Path(page).stem.capitalize()}](../{page})" if page else ""


def _record() -> RequestRecord:
    """Return a request that is counted in every series."""
    fields: Mapping[str, Any] = {
        "request_id": "req_1",
        "at": 0.0,
        "key_id": None,
        "account": None,
        "tier": None,
        "method": "POST",
        "route": "/v1/chat/completions",
        "model": "m",
        "status": 200,
        "code": None,
        "stream": True,
        "prompt_tokens": 1,
        "completion_tokens": 2,
        "cached_tokens": 1,
        "ttft_s": 0.1,
        "total_s": 0.2,
        "batch_id": None,
    }
    return RequestRecord(**fields)


def run(arguments: list[str]) -> int:
    """Write the pages, or check them; return the exit status."""
    stale = find_stale()
    if arguments == ["--check"]:
        for name in stale:
            sys.stderr.write(f"docs/reference/{name} differs from the code. Run: make docs\n")
        return 1 if stale else 0
    pages = render_pages()
    for name in stale:
        (PAGES / name).write_text(pages[name], encoding="utf-8")
        sys.stdout.write(f"docs/reference/{name} written\n")
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
