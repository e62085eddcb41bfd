"""Renders templates to HTML, and serves the console's own scripts and styles.

Every value is escaped. The macros in `parts.html` cut and isolate names and texts of clients, so that none of them can
break a page or change its text direction.
"""

import gzip
import hashlib
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.filters import FILTERS
from starlette.requests import Request
from starlette.responses import Response

from deployments.models.price import show_money
from serve_app.errors.api import UnknownUrl

THEMES = ("light", "dark")
ASSETS_PATH = "/console/static/{digest}/{name}"
"""The path of a script or a style. It names the content's digest, so browsers may keep the file for good."""
_ASSETS = Path(__file__).parent / "static"
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_TEMPLATES = Path(__file__).parent / "templates"
_AGES = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_UNITS = ("B", "KB", "MB", "GB", "TB")


def render(template: str, **values: Any) -> str:
    """Return the template as HTML."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters = {
        **FILTERS,
        "number": show_number,
        "money": show_money,
        "size": show_size,
        "moment": show_moment,
        "machine_time": show_machine_time,
        "ago": show_ago,
        "seconds": show_seconds,
        "printable": show_printable,
    }
    environment.globals["static"] = address_of
    return environment


def show_number(value: float | None) -> str:
    """Return a number with thousands separators, a dash for None."""
    if value is None:
        return "–"  # noqa: RUF001 - a dash, as pages have it.
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def show_size(num_bytes: float) -> str:
    """Return a number of bytes in the largest unit that fits: "12.5 MB"."""
    size = float(num_bytes)
    for unit in _UNITS[:-1]:
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {_UNITS[-1]}"


def show_moment(at: float) -> str:
    """Return Unix seconds as UTC, to the second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def show_machine_time(at: float) -> str:
    """Return Unix seconds as the attribute of a `time` element."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def show_ago(at: float) -> str:
    """Return the distance to a time: "5 min ago", "in 3 h"."""
    away = at - time.time()
    size = abs(away)
    for seconds, unit in _AGES:
        if size >= seconds:
            text = f"{int(size // seconds)} {unit}"
            return f"in {text}" if away > 0 else f"{text} ago"
    return "now"


def show_seconds(value: float | None) -> str:
    """Return a duration: "84 ms", "1.25 s", "2 min 5 s"; a dash for None."""
    if value is None:
        return "–"  # noqa: RUF001 - a dash, as pages have it.
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.2f} s"
    return f"{int(value // 60)} min {int(value % 60)} s"


def show_printable(text: Any) -> str:
    """Return a text in one line, without unprintable characters."""
    return "".join(c for c in str(text) if c.isprintable())


@dataclass(frozen=True, slots=True)
class Asset:
    """A script or a style, plain and compressed."""

    digest: str
    media_type: str
    content: bytes
    compressed: bytes


@cache
def _assets() -> dict[str, Asset]:
    found = {}
    for path in sorted(_ASSETS.iterdir()):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:16]
            found[path.name] = Asset(digest, _TYPES[path.suffix], content, gzip.compress(content, 9, mtime=0))
    return found


def address_of(name: str) -> str:
    """Return the path of a script or a style.

    Raises:
        KeyError: there is no such file.
    """
    return ASSETS_PATH.format(digest=_assets()[name].digest, name=name)


async def show_asset(request: Request) -> Response:
    """Return a script or a style."""
    asset = _assets().get(request.path_params["name"])
    if asset is None or asset.digest != request.path_params["digest"]:
        raise UnknownUrl(request.method, request.url.path)
    headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.compressed, headers={**headers, "content-encoding": "gzip"}, media_type=asset.media_type)
    return Response(asset.content, headers=headers, media_type=asset.media_type)
