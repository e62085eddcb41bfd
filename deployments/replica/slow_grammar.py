"""Says that the grammar of a request was too slow to follow: from the scheduler over `submit` to `budget`."""

from typing import Final

from deployments.models.contract.errors import RequestRejected

SLOW_GRAMMAR: Final = "slow_grammar"
"""The stop reason of such a request, with the finish reason "error"."""


class SlowGrammar(RequestRejected):
    """The answer could not be kept to its form, as to follow it takes too long; another engine could not either."""

    def __init__(self) -> None:
        super().__init__(
            "The answer could not be kept to the form that was asked for: to follow it takes too long.",
            None,
            "invalid_value",
        )

    def __reduce__(self) -> tuple[type["SlowGrammar"], tuple[object, ...]]:
        return type(self), ()
