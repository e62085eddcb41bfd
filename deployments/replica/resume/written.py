"""The part of an answer that another engine wrote, and how this engine goes on as if it had written that part itself.

The written groups pass through the detokenizer and the parsers of the answer once more; the engine then gets them as
the end of its prompt, and the same detokenizer: half a character, a stop string begun, or text held back go on with the
next token. What is used of vLLM and not public, beside what `submit` names: the detokenizer of a request's state, and
how its outputs are made from it.
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
_MAX_BIASES = 1024  # What vLLM's sampler on GPUs has room for.


@dataclass(frozen=True, slots=True)
class Written:
    """Tokens of one answer, in the groups in which they were told; `take` gets each group as an output again."""

    groups: list[list[int]]
    take: Callable[[CompletionOutput], None]


async def replay(engine: AsyncLLM, request: Any, written: Written) -> IncrementalDetokenizer | None:
    """Make the outputs of the written groups again, and return the detokenizer, which stands after them.

    `request` is the engine's, as it was before anything was written. Return None when the answer ends with the written
    tokens: then the last output that `written` took said so.
    """
    params: SamplingParams = request.sampling_params
    detokenizer = IncrementalDetokenizer.from_new_request(engine.output_processor.tokenizer, request)
    stops = {params.eos_token_id, *(params.stop_token_ids or ())}
    num_left = params.max_tokens
    for position, group in enumerate(written.groups):
        if position % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)  # Others are served by the same loop.
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


def append(engine: AsyncLLM, request: Any, written: Written) -> None:
    """Move the engine's request behind the written tokens.

    Raises:
        EngineDied: the answer is guided, and the engine runs a scheduler that cannot go on with such a one.
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
    """Bias a request against written tokens as penalties would, which count those alone that this engine makes.

    The presence of a token that comes up on both sides is penalized twice.
    """
    presence, frequency = params.presence_penalty, params.frequency_penalty
    if not presence and not frequency:
        return
    biases = dict(params.logit_bias or {})
    for token_id, count in Counter(token_ids).most_common(max(0, _MAX_BIASES - len(biases))):
        biases[token_id] = biases.get(token_id, 0.0) - presence - frequency * count
    params.logit_bias = biases


async def add_request(engine: AsyncLLM, request: Any, detokenizer: IncrementalDetokenizer, queue: Any) -> None:
    """Hand over a request as the engine's own `_add_request` does, with a detokenizer that has a past."""
    engine.output_processor.add_request(request, None, None, 0, queue)
    state = engine.output_processor.request_states[request.request_id]
    state.detokenizer = detokenizer
    state.sent_tokens_offset = detokenizer.num_output_tokens()
    await engine.engine_core.add_request_async(request)
