"""Keeps an answer in a form from ending while the model still reasons.

The grammar of a form begins after the reasoning. Before that vLLM allows every token, also one that ends the answer,
which would then lack its form and still have the finish reason "stop". So these tokens are not allowed within
reasoning: the form follows, or max tokens cut the answer off and its finish reason says so.

Only reasoning that was seen to begin counts. A model that answers without any never ends it either.

Relies on internals of vLLM: the masks of a step are in the order of its requests; a request that has a form knows
whether its reasoning has ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

_RECENT = 64
"""More tokens than a step writes."""


class OpenReasoning:
    """Finds the requests of an engine whose reasoning has begun and not ended; `marks` is vLLM's `ReasoningConfig`."""

    def __init__(self, marks: Any) -> None:
        self._start: list[int] = marks.reasoning_start_token_ids
        self._end: list[int] = marks.natural_reasoning_end_token_ids
        self._begun: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()

    @classmethod
    def of(cls, marks: Any) -> "OpenReasoning | None":
        """Return what finds reasoning by its marks; None if the engine does not know them."""
        return cls(marks) if marks is not None and marks.enabled else None

    def forbid_ends(self, output: Any, requests: Mapping[str, Any], drafts: Mapping[str, Sequence[int]]) -> None:
        """Leave the tokens that end an answer out of the masks of requests whose reasoning is open.

        `output` is vLLM's `GrammarOutput`. A request has a mask for each of its `drafts`, and one more.
        """
        row = 0
        for request_id in output.structured_output_request_ids:
            request, first = requests[request_id], row
            row += 1 + len(drafts.get(request_id, ()))
            if request.structured_output_request.reasoning_ended is False and self._has_begun(request):
                ends = request.sampling_params.all_stop_token_ids.difference(self._end)
                for mask in output.grammar_bitmask[first:row]:
                    if (mask == -1).all():  # After a draft that ends the reasoning, the grammar allows less.
                        _leave_out(mask, ends)

    def _has_begun(self, request: Any) -> bool:
        """Return whether the reasoning of a request that has not ended it has begun."""
        if not self._begun.get(request):
            tokens = request.all_token_ids[-_RECENT if request in self._begun else 0 :]
            self._begun[request] = _last(tokens, self._start) > _last(tokens, self._end)
        return self._begun[request]


def _last(tokens: Sequence[int], part: list[int]) -> int:
    """Return the last position of a sequence within tokens, -1 if it is not there."""
    positions = range(len(tokens) - len(part), -1, -1)
    return next((at for at in positions if tokens[at] == part[0] and list(tokens[at : at + len(part)]) == part), -1)


def _leave_out(mask: Any, token_ids: Iterable[int]) -> None:
    bits = mask.view("uint32")
    for token_id in token_ids:
        if 0 <= token_id < 32 * len(bits):
            bits[token_id // 32] &= 0xFFFFFFFF ^ (1 << token_id % 32)
