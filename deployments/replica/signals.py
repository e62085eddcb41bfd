"""What a replica and its engine tell each other about a request, beside vLLM's own fields.

The replica's marks travel in `SamplingParams.extra_args`, which vLLM passes to its scheduler and workers unchanged. A
stop reason travels back.
"""

from typing import Any, Final, NamedTuple

from deployments.models.contract.errors import RequestRejected

_WRITTEN, _STREAMED = "written", "streamed"

SLOW_GRAMMAR: Final = "slow_grammar"
"""The stop reason of a request whose grammar takes too long to follow; its finish reason is "error"."""


class SlowGrammar(RequestRejected):
    """Keeping the answer to its form takes too long, on any engine."""

    def __init__(self) -> None:
        super().__init__(
            "The answer could not be kept to the form that was asked for: to follow it takes too long.",
            None,
            "invalid_value",
        )

    def __reduce__(self) -> tuple[type["SlowGrammar"], tuple[object, ...]]:
        return type(self), ()


class Resumed(NamedTuple):
    """The tokens that another engine wrote, a list for each step."""

    groups: list[list[int]]

    @property
    def token_ids(self) -> list[int]:
        """The tokens in order."""
        return [token_id for group in self.groups for token_id in group]


def as_resumed(extra_args: dict[str, Any] | None, groups: list[list[int]]) -> dict[str, Any]:
    """Return the extra arguments of a request that continues after these tokens."""
    return {**(extra_args or {}), _WRITTEN: groups}


def resumed_of(params: Any) -> Resumed | None:
    """Return the tokens after which a request continues; None for a new answer, and without sampling parameters."""
    groups = (params.extra_args or {}).get(_WRITTEN) if params is not None else None
    return None if groups is None else Resumed(groups)


def as_streamed(extra_args: dict[str, Any] | None) -> dict[str, Any]:
    """Return the extra arguments of a request whose client reads the answer as it is written."""
    return {**(extra_args or {}), _STREAMED: True}


def is_streamed(params: Any) -> bool:
    """Return whether a client reads the answer as it is written."""
    return _STREAMED in (params.extra_args or {})
