"""The periods for which usage is added up: minutes, hours and days (UTC), by the names that OpenAI has for them."""

from typing import get_args

from deployments.state.database import usage_tables

Width = usage_tables.Width
WIDTHS: tuple[Width, ...] = get_args(Width)
WIDTH_S: dict[Width, int] = {"1m": 60, "1h": 3_600, "1d": 86_400}
KEPT_S: dict[Width, int | None] = {"1m": 2 * 86_400, "1h": 90 * 86_400, "1d": None}
"""For how long the sums of a period are kept; None is for ever."""


def start_of(at: float, width: Width) -> int:
    """Return the first second of the period that a time lies in, both in Unix seconds."""
    seconds = WIDTH_S[width]
    return int(at // seconds) * seconds
