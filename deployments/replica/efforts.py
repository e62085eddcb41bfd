"""What the effort of a request means to one engine: a name that its template has, and a bound on its reasoning.

The engine keeps the bound: after that many tokens it writes the end of the reasoning. It can where the parser of
reasoning knows the texts around it; elsewhere, as with gpt-oss, the effort is only a hint in the prompt.
"""

from collections.abc import Mapping
from typing import Any

_HARMONY = {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}
"""gpt-oss always reasons, and has three efforts: the nearest one to each of the others. vLLM would refuse these."""


class Efforts:
    """The efforts of one engine; `budgets` has the tokens of reasoning by effort."""

    def __init__(self, config: Any, budgets: Mapping[str, int]) -> None:
        self._is_harmony = config.model_config.hf_config.model_type == "gpt_oss"
        keeps = config.reasoning_config is not None and config.reasoning_config.enabled
        self._budgets = budgets if keeps else {}

    def name(self, fields: dict[str, Any]) -> None:
        """Replace the effort in the body of a chat by the nearest one that the engine can name."""
        effort = fields.get("reasoning_effort")
        if self._is_harmony and effort is not None:
            fields["reasoning_effort"] = _HARMONY.get(effort, effort)

    def budget_of(self, request: Any) -> int | None:
        """Return how many tokens of reasoning the effort of a vLLM request allows; None if nothing bounds it."""
        return self._budgets.get(request.reasoning_effort)
