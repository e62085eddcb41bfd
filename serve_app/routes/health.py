"""Health and metrics for operators: no key is needed, and nothing about clients is shown."""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from serve_app.routes.endpoint import answers, json_response, services_of

_PROBE_TIMEOUT_S = 2.0


@answers(dict[str, Any], needs_key=False)
async def report_liveness(request: Request) -> Response:
    """Liveness.

    200 while the process answers.
    """
    return json_response({"status": "ok"})


@answers(dict[str, Any], statuses=(200, 503), needs_key=False)
async def report_readiness(request: Request) -> Response:
    """Readiness.

    200 when keys can be checked and a model can answer, else 503.
    """
    services = services_of(request)
    startup = services.startup
    checks = {
        "gatekeeper": await _can_check_keys(request),
        "models": bool(services.directory.cards()) and startup.is_ready,
    }
    is_ready = all(checks.values())
    report = {"status": "ok" if is_ready else "unavailable", "checks": checks, "models_starting": startup.num_starting}
    return json_response(report, 200 if is_ready else 503)


@answers(dict[str, Any], statuses=(200, 503), needs_key=False)
async def report_health(request: Request) -> Response:
    """Health.

    Readiness, at the paths of vLLM's own server.
    """
    return await report_readiness(request)


async def _can_check_keys(request: Request) -> bool:
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            return await services_of(request).gatekeeper.can_check_keys()
    except TimeoutError:
        return False


@answers(str, media_type="text/plain", needs_key=False)
async def show_metrics(request: Request) -> Response:
    """Metrics.

    The metrics of this process in Prometheus's text format.
    """
    page = services_of(request).metrics
    return Response(page.render(), media_type=page.content_type)
