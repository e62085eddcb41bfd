"""The part of HAProxy's configuration by which requests wait while no ingress replica lives, instead of being refused.

It is there where requests go to no other region. That no replica lives may turn out while a request is repeated, so the
place to wait is also the last server of the backend of replicas. This server is the process itself: a frontend on a
Unix socket, which holds the request and sends it back to the replicas. Replicas that are all gone for longer than the
patience of the front have requests refused at once.
"""

from pathlib import Path

from serve_app.front.regions import sends_on
from serve_app.front.settings import FrontSettings

MAX_HELD = 512
"""So many requests wait in a process at most, each with two buffers; more are refused."""
_SCRIPT = Path(__file__).with_name("holding.lua")

_HOLDING = """
frontend holding
    bind unix@{socket} mode 600
    acl reads method GET HEAD OPTIONS
    acl repeatable path {repeatable}
    http-request lua.hold
    http-request disable-l7-retry unless reads or METH_POST repeatable
    use_backend {last_resort} if {{ lua.num_living eq 0 }}
    default_backend {main}
"""


def render_script(settings: FrontSettings, main: str) -> str:
    """Return the line that loads the script, "" where requests do not wait."""
    return "" if sends_on(settings) else f"    lua-load {_SCRIPT} {main} {settings.timings.patience_s:g}\n"


def render_holder(settings: FrontSettings, number: int) -> str:
    """Return the line of the last server among the replicas, "" where requests do not wait."""
    if sends_on(settings):
        return ""
    return f"    server holding unix@{settings.holding_path(number)} no-check no-ssl backup maxconn {MAX_HELD}\n"


def render_holding(settings: FrontSettings, number: int, main: str, last_resort: str, repeatable: str) -> str:
    """Return the frontend in which requests wait, "" where they do not."""
    if sends_on(settings):
        return ""
    return _HOLDING.format(
        socket=settings.holding_path(number), repeatable=repeatable, main=main, last_resort=last_resort
    )
