"""What a request that continues an answer tells the engine: the tokens that were written before.

They travel in `SamplingParams.extra_args`, which vLLM hands on to its scheduler and its workers as they are.
"""

from typing import Any, NamedTuple

_KEY = "written"


class Resumed(NamedTuple):
    """Tokens that were written before, a list for each step."""

    groups: list[list[int]]

    @property
    def token_ids(self) -> list[int]:
        """The tokens in order."""
        return [token_id for group in self.groups for token_id in group]


def as_resumed(extra_args: dict[str, Any] | None, groups: list[list[int]]) -> dict[str, Any]:
    """Return the extra arguments of a request that continues after tokens."""
    return {**(extra_args or {}), _KEY: groups}


def resumed_of(params: Any) -> Resumed | None:
    """Return what sampling parameters say was written before, None where nothing was or there are none."""
    groups = (params.extra_args or {}).get(_KEY) if params is not None else None
    return None if groups is None else Resumed(groups)
