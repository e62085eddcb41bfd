"""From a template and values to HTML: the templates' environment and its filters.

Every value is escaped. Names and texts of clients are cut and isolated by the macros of `parts.html`, so that none can
break a page or turn its direction.
"""

import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.filters import FILTERS

from serve_app.console.static import address_of

THEMES = ("light", "dark")
_TEMPLATES = Path(__file__).parent / "templates"
_AGES = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_UNITS = ("B", "KB", "MB", "GB", "TB")


def render(template: str, **values: Any) -> str:
    """Return a template filled in."""
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
    """Return a number with its thousands apart, a dash for None."""
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
    """Return a time of Unix seconds in UTC, to the second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def show_machine_time(at: float) -> str:
    """Return a time of Unix seconds as the attribute of a `time` element."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def show_ago(at: float) -> str:
    """Return how long ago a time is, or until it: "5 min ago", "in 3 h"."""
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
    """Return a text in one line, what cannot be printed left out."""
    return "".join(c for c in str(text) if c.isprintable())
