"""Continues guided answers after tokens that another engine wrote.

A new request's grammar starts at its beginning, whatever the prompt ends with. Here the grammar first accepts the
written tokens, by the rules that vLLM's scheduler applies at each step: reasoning tokens are left out. A request whose
tokens the grammar refuses fails; it never runs unguided.

Two internals of vLLM are relied on: a grammar that is being compiled is a Future in `_grammar` of the request, and
`should_advance` and `trim_reasoning_for_advance` read no more of a request than `_Steps` has.
"""

from concurrent.futures import Future
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

WRITTEN = "written"
"""The key of the groups of written tokens in `SamplingParams.extra_args`; the prompt ends with the same tokens."""


class ResumingScheduler(Scheduler):  # type: ignore[misc]  # vLLM is not typed here.
    """vLLM's scheduler, which also takes requests that continue after written tokens."""

    structured_output_manager: StructuredOutputManager

    def add_request(self, request: Request) -> None:
        """Add a request; it waits until its grammar has accepted the written tokens."""
        params, guided = request.sampling_params, request.structured_output_request
        groups = (params.extra_args or {}).get(WRITTEN) if params is not None else None
        if groups and guided is not None:
            manager = self.structured_output_manager
            # The pool starts in order, so the compilation that `_lead` waits for runs already, or has run.
            guided.grammar = manager.executor.submit(_lead, manager, request, guided._grammar, groups)
        super().add_request(request)


class _Steps:
    """A request as the scheduler would have seen it after each step that wrote a group."""

    use_structured_output = True

    def __init__(self, request: Request, num_written: int) -> None:
        self.structured_output_request = request.structured_output_request
        self.all_token_ids = request.prompt_token_ids[: len(request.prompt_token_ids) - num_written]


def _lead(
    manager: StructuredOutputManager, request: Request, grammar: "Future[Any] | Any", groups: list[list[int]]
) -> Any:
    """Return the grammar of a request after it has accepted the written tokens that it guides.

    Raises:
        ValueError: it refuses them.
    """
    if isinstance(grammar, Future):
        grammar = grammar.result()
    steps = _Steps(request, sum(map(len, groups)))
    for group in filter(None, groups):
        steps.all_token_ids += group
        if not manager.should_advance(steps, new_token_ids=group):
            continue
        guided = manager.trim_reasoning_for_advance(steps, group)
        if guided and not grammar.accept_tokens(request.request_id, guided):
            raise ValueError("The grammar refuses tokens that were written under it.")
    return grammar
