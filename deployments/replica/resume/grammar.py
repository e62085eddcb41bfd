"""vLLM's scheduler for requests that continue after tokens that another engine wrote.

To the scheduler such a request is like one that it has run and preempted: its output holds the written tokens, and they
are read again together with the prompt. So everything that counts output counts them: lengths, penalties, stop rules.

A new request's grammar starts at its beginning. Here the grammar first accepts the written tokens, by the rules that
vLLM's scheduler applies at each step: reasoning tokens are left out. A request whose tokens the grammar refuses fails;
it never runs unguided.

Internals of vLLM that are relied on: a grammar that is being compiled is a Future in `_grammar` of the request;
`accept_tokens` reads no more of a request than `_Steps` has; statistics of a prompt are not set for a request that was
preempted.
"""

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.structured_output.request import StructuredOutputRequest

from deployments.replica.resume.request import resumed_of


class ResumingScheduler(Scheduler):  # type: ignore[misc]  # vLLM is not typed here.
    """vLLM's scheduler, which also takes requests that continue after written tokens."""

    structured_output_manager: StructuredOutputManager

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # The worker may live in this process. Who only asks for this class need not load what a worker needs.
        from deployments.replica.resume.worker import use_resumed_states

        use_resumed_states()
        super().__init__(*args, **kwargs)

    def add_request(self, request: Request) -> None:
        """Add a request; a guided one waits until its grammar has accepted the written tokens."""
        resumed, guided = resumed_of(request.sampling_params), request.structured_output_request
        if resumed is not None:
            request.append_output_token_ids(resumed.token_ids)
            request.num_preemptions = 1  # What is cached may be more than the prompt, as for a preempted request.
            if guided is not None:
                manager = self.structured_output_manager
                # The pool starts in order, so the compilation that `_lead` waits for runs already, or has run.
                guided.grammar = manager.executor.submit(_lead, manager, request, guided._grammar, resumed.groups)
        super().add_request(request)

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Return the next step; how much of a continued request's prompt was cached is noted here, not by vLLM."""
        step: SchedulerOutput = super().schedule(*args, **kwargs)
        for new in step.scheduled_new_reqs:
            if resumed_of(new.sampling_params) is not None:
                request = self.requests[new.req_id]
                if request.prefill_stats is not None:
                    num_cached = min(new.num_computed_tokens, request.num_prompt_tokens)
                    request.prefill_stats.set(request.num_prompt_tokens, num_cached, 0)
        return step


class _Steps:
    """A request as the scheduler would have seen it after each step that wrote a group."""

    use_structured_output = True

    def __init__(self, request: Request, guided: StructuredOutputRequest) -> None:
        self.request_id = request.request_id
        self.structured_output_request = guided
        self.prompt_token_ids = list(request.prompt_token_ids)
        self.all_token_ids = self.prompt_token_ids.copy()


def _lead(
    manager: StructuredOutputManager, request: Request, grammar: "Future[Any] | Any", groups: list[list[int]]
) -> Any:
    """Return the grammar of a request after it has accepted the written tokens that it guides.

    Raises:
        ValueError: it refuses them.
    """
    if isinstance(grammar, Future):
        grammar = grammar.result()
    steps = _Steps(request, replace(request.structured_output_request, _grammar=grammar))
    for group in filter(None, groups):
        steps.all_token_ids += group
        if not manager.accept_tokens(steps, group):
            raise ValueError("The grammar refuses tokens that were written under it.")
    request.structured_output_request.reasoning_ended = steps.structured_output_request.reasoning_ended
    return grammar
