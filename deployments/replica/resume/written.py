"""Continues an answer after the part that another engine wrote, as if this engine had written that part itself.

The written groups pass through the answer's detokenizer and parsers again. Then the engine gets them as the end of its
prompt, with the same detokenizer, so that half a character, half a stop string or text held back continue with the next
token. Internals of vLLM that are relied on, beside those of `submit`: the detokenizer in a request's state, and how
outputs are made from it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vllm.outputs import CompletionOutput
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.detokenizer import IncrementalDetokenizer

from deployments.models.contract.errors import EngineDied
from deployments.replica.resume.grammar import WRITTEN, ResumingScheduler

_AT_ONCE = 32
_MAX_BIASES = 1024  # The most that vLLM's sampler on GPUs takes.


@dataclass(frozen=True, slots=True)
class WrittenTokens:
    """Tokens of one answer, in the groups in which they were sent; `take` gets each group as an output again."""

    groups: list[list[int]]
    take: Callable[[CompletionOutput], None]


async def replay(engine: AsyncLLM, request: Any, written: WrittenTokens) -> IncrementalDetokenizer | None:
    """Make the outputs of the written groups again, and return the detokenizer as it is after them.

    `request` is the engine's, as it was before anything was written. Return None if the answer ends with the written
    tokens; the last output then has the finish reason.
    """
    params: SamplingParams = request.sampling_params
    detokenizer = IncrementalDetokenizer.from_new_request(engine.output_processor.tokenizer, request)
    stops = {params.eos_token_id, *(params.stop_token_ids or ())}
    num_left = params.max_tokens
    for position, group in enumerate(written.groups):
        if position % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)  # The same loop serves other requests.
        num_left -= len(group)
        is_stopped = bool(group) and group[-1] in stops
        if detokenizer.update(group, is_stopped) is not None:
            is_stopped = True
        reason = "stop" if is_stopped else "length" if num_left <= 0 else None
        text = detokenizer.get_next_output_text(reason is not None, delta=True)
        written.take(CompletionOutput(0, text, group, None, None, finish_reason=reason))
        if reason is not None:
            return None
    return detokenizer


def append(engine: AsyncLLM, request: Any, written: WrittenTokens) -> None:
    """Append the written tokens to the prompt of the engine's request.

    Raises:
        EngineDied: the answer is guided, and the engine's scheduler cannot continue a guided answer.
    """
    params: SamplingParams = request.sampling_params
    token_ids = [token_id for group in written.groups for token_id in group]
    request.prompt_token_ids = [*request.prompt_token_ids, *token_ids]
    params.max_tokens -= len(token_ids)
    params.min_tokens = max(0, params.min_tokens - len(token_ids))
    if params.structured_outputs is not None:
        if not issubclass(engine.vllm_config.scheduler_config.get_scheduler_cls(), ResumingScheduler):
            raise EngineDied("The engine cannot go on with a guided answer.")
        params.extra_args = {**(params.extra_args or {}), WRITTEN: written.groups}
    if engine.vllm_config.speculative_config is None:  # vLLM allows no biases beside it.
        _penalize(params, token_ids)


def _penalize(params: SamplingParams, token_ids: list[int]) -> None:
    """Bias a request against written tokens as penalties would, which count only the tokens that this engine makes.

    A token that is in both parts gets the presence penalty twice.
    """
    presence, frequency = params.presence_penalty, params.frequency_penalty
    if not presence and not frequency:
        return
    biases = dict(params.logit_bias or {})
    for token_id, count in Counter(token_ids).most_common(max(0, _MAX_BIASES - len(biases))):
        biases[token_id] = biases.get(token_id, 0.0) - presence - frequency * count
    params.logit_bias = biases


async def add_request(engine: AsyncLLM, request: Any, detokenizer: IncrementalDetokenizer, queue: Any) -> None:
    """Add a request as the engine's own `_add_request` does, with a detokenizer that has seen the written tokens."""
    engine.output_processor.add_request(request, None, None, 0, queue)
    state = engine.output_processor.request_states[request.request_id]
    state.detokenizer = detokenizer
    state.sent_tokens_offset = detokenizer.num_output_tokens()
    await engine.engine_core.add_request_async(request)
