"""Tells the scheduler that a client reads an answer as it is written; `submit` says it, `scheduling.pieces` reads it.

It travels in `SamplingParams.extra_args`, which vLLM hands on to its scheduler as they are.
"""

from typing import Any

_KEY = "streamed"


def as_streamed(extra_args: dict[str, Any] | None) -> dict[str, Any]:
    """Return the extra arguments of a request whose answer is streamed."""
    return {**(extra_args or {}), _KEY: True}


def is_streamed(params: Any) -> bool:
    """Return whether sampling parameters say that the answer is streamed."""
    return _KEY in (params.extra_args or {})
