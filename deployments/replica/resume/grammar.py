"""Guided answers that go on after tokens which another engine wrote.

vLLM's grammar stands at its beginning when a request comes, whatever the prompt ends with. Here it is led through the
written tokens first, by the rules that vLLM's scheduler follows for each step: those of a thought are left out. A
request whose tokens the grammar refuses fails; it never runs unguided.

What is used of vLLM and not public: that a grammar which is still compiled is a Future in `_grammar` of the request,
and that `should_advance` and `trim_reasoning_for_advance` look at no more of a request than `_Steps` has.
"""

from concurrent.futures import Future
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

WRITTEN = "written"
"""Where the groups of written tokens stand in `SamplingParams.extra_args`; the prompt ends with the same tokens."""


class ResumingScheduler(Scheduler):  # type: ignore[misc]  # vLLM is not typed here.
    """vLLM's scheduler, which takes in requests that go on after written tokens too."""

    structured_output_manager: StructuredOutputManager

    def add_request(self, request: Request) -> None:
        """Take in a request; it waits until its grammar has been led through what was written."""
        params, guided = request.sampling_params, request.structured_output_request
        groups = (params.extra_args or {}).get(WRITTEN) if params is not None else None
        if groups and guided is not None:
            manager = self.structured_output_manager
            # The pool starts in order, so the compilation that is waited for runs already, or has run.
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
    """Return the grammar of a request, led through the written tokens that it guides.

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
