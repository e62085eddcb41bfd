"""Continues an answer that another engine began, as if this engine had written its first tokens too.

The written tokens pass through the answer's detokenizer and parsers again, step by step. Then the engine gets them as
output of the request, with the same detokenizer, so that half a character, half a stop string or text held back
continue with the next token. `grammar` and `worker` are the engine's side. Relies on internals of vLLM beside those of
`submit`: the detokenizer in a request's state, and how it makes outputs.
"""

import asyncio
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from vllm.outputs import CompletionOutput
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.utils import check_sequence_repetition
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.detokenizer import IncrementalDetokenizer

from deployments.models.contract.errors import EngineDied
from deployments.replica.resume.grammar import ResumingScheduler
from deployments.replica.signals import as_resumed

_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class WrittenTokens:
    """The tokens that another engine wrote: for each choice that has any, a list for each step.

    `take` gets an output for each step.
    """

    groups: Mapping[int, list[list[int]]]
    take: Callable[[CompletionOutput], None]


async def replay(engine: AsyncLLM, request: Any, choice: int, written: WrittenTokens) -> IncrementalDetokenizer | None:
    """Repeat the outputs of a choice's written tokens, and return the detokenizer in its state after them.

    `request` is the engine's. Return None if the choice ends with these tokens; the last output then has the finish
    reason.
    """
    params: SamplingParams = request.sampling_params
    detokenizer = IncrementalDetokenizer.from_new_request(engine.output_processor.tokenizer, request)
    stops = {params.eos_token_id, *(params.stop_token_ids or ())}
    num_left = params.max_tokens
    token_ids: list[int] = []
    for position, group in enumerate(written.groups[choice]):
        if position % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)  # The same loop serves other requests.
        num_left -= len(group)
        token_ids += group
        is_stopped = bool(group) and (group[-1] in stops or _repeats(token_ids, params))
        if detokenizer.update(group, is_stopped) is not None:
            is_stopped = True
        reason = "stop" if is_stopped else "length" if num_left <= 0 else None
        text = detokenizer.get_next_output_text(reason is not None, delta=True)
        written.take(CompletionOutput(choice, text, group, None, None, finish_reason=reason))
        if reason is not None:
            return None
    return detokenizer


def _repeats(token_ids: list[int], params: SamplingParams) -> bool:
    """Return whether the engine's scheduler ends an answer here because it repeats itself."""
    detection = params.repetition_detection
    is_long_enough = len(token_ids) >= params.min_tokens
    return detection is not None and is_long_enough and bool(check_sequence_repetition(token_ids, detection))


def append(engine: AsyncLLM, request: Any, groups: list[list[int]]) -> None:
    """Give the engine's request the written tokens as output; raises EngineDied if its scheduler cannot continue."""
    if not issubclass(engine.vllm_config.scheduler_config.get_scheduler_cls(), ResumingScheduler):
        raise EngineDied("The engine cannot go on with an answer.")
    params: SamplingParams = copy(request.sampling_params)  # The choices of a request share one.
    params.extra_args = as_resumed(params.extra_args, groups)
    request.sampling_params = params


async def add_request(
    engine: AsyncLLM, request: Any, parent: Any, choice: int, detokenizer: IncrementalDetokenizer, queue: Any
) -> None:
    """Add a request like the engine's own `_add_request`, with a detokenizer that has seen the written tokens."""
    engine.output_processor.add_request(request, None, parent, choice, queue)
    state = engine.output_processor.request_states[request.request_id]
    state.detokenizer = detokenizer
    state.sent_tokens_offset = detokenizer.num_output_tokens()
    await engine.engine_core.add_request_async(request)
