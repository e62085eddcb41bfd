"""How many tokens a model may reason at each effort, by the size of its context."""

from collections.abc import Mapping
from typing import Final, Literal

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

_SHARES: Final[Mapping[Effort, tuple[float, float]]] = {
    "none": (0, 0),
    "minimal": (1 / 16, 1024),
    "low": (1 / 8, 4096),
    "medium": (1 / 4, 16_384),
    "high": (1 / 2, 65_536),
    "xhigh": (3 / 4, float("inf")),
    "max": (3 / 4, float("inf")),
}
"""The part of the context that may be reasoning, and a bound in tokens. The prompt and the answer get the rest."""


def reasoning_budgets(context_tokens: int, own: Mapping[Effort, int | None]) -> dict[str, int]:
    """Return the budget of reasoning by effort, in tokens; an effort without a bound is missing.

    `own` has the operator's, which come first; None there takes the bound away.
    """
    usual = {effort: int(min(share * context_tokens, most)) for effort, (share, most) in _SHARES.items()}
    return {effort: tokens for effort, tokens in {**usual, **own}.items() if tokens is not None}
