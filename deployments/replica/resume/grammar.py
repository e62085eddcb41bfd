"""vLLM's scheduler for requests that continue after tokens that another engine wrote.

The scheduler treats such a request like a preempted one: its output holds the written tokens, which are read again
together with the prompt. So everything that counts output counts them: lengths, penalties, stop rules.

The grammar of a new request starts at its beginning. Here it first accepts the written tokens, by the rules that vLLM's
scheduler applies at each step: reasoning tokens are left out. If the grammar refuses them, the request fails; it never
runs unguided.

Relies on internals of vLLM: a grammar that is being compiled is a Future in `_grammar` of the request; `accept_tokens`
reads only the attributes of a request that `_Steps` has; a preempted request gets no statistics of its prompt.
"""

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.structured_output.request import StructuredOutputRequest

from deployments.replica.signals import resumed_of


class ResumingScheduler(Scheduler):  # type: ignore[misc]  # vLLM is not typed here.
    """vLLM's scheduler, also for requests that continue after written tokens."""

    structured_output_manager: StructuredOutputManager

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # The worker may run in this process. Imported late: other users of this class need not load it.
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
        """Return the next step, and note the cached tokens of continued requests, which vLLM does not."""
        step: SchedulerOutput = super().schedule(*args, **kwargs)
        for new in step.scheduled_new_reqs:
            if resumed_of(new.sampling_params) is not None:
                request = self.requests[new.req_id]
                if request.prefill_stats is not None:
                    num_cached = min(new.num_computed_tokens, request.num_prompt_tokens)
                    request.prefill_stats.set(request.num_prompt_tokens, num_cached, 0)
        return step


class _Steps:
    """A request as the scheduler would have seen it after each step."""

    use_structured_output = True

    def __init__(self, request: Request, guided: StructuredOutputRequest) -> None:
        self.request_id = request.request_id
        self.structured_output_request = guided
        self.prompt_token_ids = list(request.prompt_token_ids)
        self.all_token_ids = self.prompt_token_ids.copy()


def _lead(
    manager: StructuredOutputManager, request: Request, grammar: "Future[Any] | Any", groups: list[list[int]]
) -> Any:
    """Return a request's grammar after it has accepted the written tokens; raises ValueError if it refuses them."""
    if isinstance(grammar, Future):
        grammar = grammar.result()
    steps = _Steps(request, replace(request.structured_output_request, _grammar=grammar))
    for group in filter(None, groups):
        steps.all_token_ids += group
        if not manager.accept_tokens(steps, group):
            raise ValueError("The grammar refuses tokens that were written under it.")
    request.structured_output_request.reasoning_ended = steps.structured_output_request.reasoning_ended
    return grammar
