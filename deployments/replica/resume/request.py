"""What a request that continues an answer tells the engine: the tokens that were written before.

They travel in `SamplingParams.extra_args`, which vLLM hands on to its scheduler and its workers as they are.
"""

from typing import Any, NamedTuple

_KEY = "written"


class Resumed(NamedTuple):
    """Tokens that were written before, a list for each step, and the size of the model's vocabulary."""

    groups: list[list[int]]
    vocab_size: int

    @property
    def token_ids(self) -> list[int]:
        """The tokens in order."""
        return [token_id for group in self.groups for token_id in group]


def as_resumed(extra_args: dict[str, Any] | None, groups: list[list[int]], vocab_size: int) -> dict[str, Any]:
    """Return the extra arguments of a request that continues after tokens."""
    return {**(extra_args or {}), _KEY: [groups, vocab_size]}


def resumed_of(params: Any) -> Resumed | None:
    """Return what sampling parameters say was written before, None where nothing was or there are none."""
    told = (params.extra_args or {}).get(_KEY) if params is not None else None
    return None if told is None else Resumed(*told)
