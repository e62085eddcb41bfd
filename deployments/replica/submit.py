"""Submits a request to vLLM's engine so that the engine's output loop calls the request's sink directly.

vLLM's own `generate` wakes one task per request and step, which at 64 streams costs as much as the rendering itself.
Calling the sink directly needs three private names of vLLM: only this module uses them, and a test fails when vLLM
changes them.
"""

import asyncio
import time
from collections.abc import Callable
from copy import copy
from typing import Any

from vllm.lora.request import LoRARequest
from vllm.outputs import STREAM_FINISHED, RequestOutput
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.detokenizer import IncrementalDetokenizer
from vllm.v1.engine.output_processor import RequestOutputCollector
from vllm.v1.engine.parallel_sampling import ParentRequest

from deployments.models.contract.errors import EngineDied, RequestRejected
from deployments.replica.resume.written import WrittenTokens, add_request, append, replay
from deployments.replica.signals import SLOW_GRAMMAR, SlowGrammar, as_streamed
from deployments.replica.structural_tags import MOST, put_json_in_tag

Sink = Callable[[RequestOutput], None]


class Generation(RequestOutputCollector):  # type: ignore[misc]  # vLLM is not typed here.
    """One request inside the engine: calls its sink with every output; `wait` returns at its end."""

    def __init__(self, params: SamplingParams, request_id: str, sink: Sink, *, is_begun: bool = False) -> None:
        """`is_begun`: the answer continues after tokens that another engine wrote."""
        super().__init__(params.output_kind, request_id)
        self._sink = sink
        self._is_guided = params.structured_outputs is not None and not is_begun
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, output: RequestOutput | Exception) -> None:
        """Take an output from the engine. Never raises, as the caller serves all requests."""
        if self._end.done():
            return
        if isinstance(output, Exception):
            self._end.set_exception(output)
            return
        try:
            if output is not STREAM_FINISHED:
                _check_kept(output, is_at_fault=self._is_guided)
                self._sink(output)
        except Exception as error:
            self._end.set_exception(error)
            return
        if output.finished:
            self._end.set_result(None)

    def leave(self) -> None:
        """Take no more outputs: the last output of an aborted request looks like the end of its answer."""
        self._end.cancel()

    async def wait(self) -> None:
        """Return after the last output; raises the error of the engine or the sink."""
        await self._end


def _check_kept(output: RequestOutput, *, is_at_fault: bool) -> None:
    """Check that the engine has neither aborted the request nor failed to follow its grammar.

    `is_at_fault` makes any other failure the request's own.

    Raises:
        EngineDied: the engine aborted the request by itself.
        SlowGrammar: following the grammar takes too long.
        RequestRejected: other fields of the request forbid every token that the grammar allows, on any engine.
    """
    for part in output.outputs:
        if part.finish_reason == "abort":
            raise EngineDied("The engine gave the request up.")
        if part.finish_reason != "error":
            continue
        if part.stop_reason == SLOW_GRAMMAR:
            raise SlowGrammar
        if is_at_fault:
            raise RequestRejected(
                "The answer could not be kept to the form that was asked for: other parameters forbid every token that "
                "it allows.",
                None,
                "invalid_value",
            )


async def generate(
    engine: AsyncLLM,
    engine_input: dict[str, Any],
    params: SamplingParams,
    request_id: str,
    sink: Sink,
    *,
    priority: int = 0,
    lora_request: LoRARequest | None = None,
    reasoning_ended: bool | None = None,
    reasoning_parser_kwargs: dict[str, Any] | None = None,
    written: WrittenTokens | None = None,
    streamed: bool = False,
) -> None:
    """Run one request to its end, calling `sink` with every output; aborts it in the engine when cancelled.

    `streamed`: a client reads the answer as it comes, so no token waits for others. With `written`, each choice
    continues after its tokens; choices that end with them do not run.

    Raises:
        RequestRejected: the model cannot write a token of a bad word, or a stop token ends the answer before its form.
        Exception: what the engine or the sink raised; the request is then aborted.
    """
    engine.check_admission(params.n, request_id)
    if params.structured_outputs is not None:
        is_bounded = engine.vllm_config.structured_outputs_config.disable_any_whitespace
        put_json_in_tag(params.structured_outputs, MOST if is_bounded else None)
    if streamed and priority > 0:
        params.extra_args = as_streamed(params.extra_args)
    request = engine.input_processor.process_inputs(
        request_id,
        engine_input,
        params,
        supported_tasks=await engine.get_supported_tasks(),
        lora_request=lora_request,
        priority=priority,
    )
    _check_bad_words(request.params, engine.model_config.get_vocab_size())
    if reasoning_ended is False:
        _check_stop_tokens(request.params, engine.vllm_config.reasoning_config)
    request.reasoning_ended = reasoning_ended
    request.reasoning_parser_kwargs = reasoning_parser_kwargs
    engine.input_processor.assign_request_id(request)
    engine._run_output_handler()
    generation = Generation(request.params, request.request_id, sink, is_begun=written is not None)
    parent = ParentRequest(request) if request.params.n > 1 else None
    choices = [_Choice(0, request)] if parent is None else _choices_of(request, parent)
    if written is not None:
        for choice in choices:
            await choice.replay(engine, written)
    is_over = all(choice.has_ended for choice in choices)
    try:
        for choice in choices:
            await choice.add(engine, parent, generation)
        if not is_over:
            await generation.wait()
            is_over = True
    finally:
        if not is_over:
            generation.leave()
            await engine.abort(generation.request_id, internal=True)


def _check_bad_words(params: SamplingParams, num_tokens: int) -> None:
    """Check that the model can write the tokens of bad words; some tokenizers have more tokens than their model.

    vLLM would write beyond the request's logits, into those of another request (CVE-2026-93989).
    """
    if any(token_id >= num_tokens for word in params.bad_words_token_ids or () for token_id in word):
        raise RequestRejected(
            "Invalid 'bad_words': a word has a token that the model never writes. Leave that word out.",
            "bad_words",
            "invalid_value",
        )


def _check_stop_tokens(params: SamplingParams, marks: Any) -> None:
    """Check that an answer in a form does not stop at the end of its reasoning, where the form begins.

    `marks` is vLLM's `ReasoningConfig`.
    """
    if params.structured_outputs is None or marks is None or not marks.enabled:
        return
    if set(params.stop_token_ids or ()).intersection(marks.natural_reasoning_end_token_ids):
        raise RequestRejected(
            "Invalid 'stop_token_ids': a token ends the reasoning, and the form of the answer comes after it. Leave it "
            "out.",
            "stop_token_ids",
            "invalid_value",
        )


def _choices_of(request: Any, parent: ParentRequest) -> "list[_Choice]":
    choices = []
    for index in range(parent.n):
        child = copy(request)
        child.request_id, child.sampling_params = parent.get_child_info(index)
        choices.append(_Choice(index, child))
    return choices


class _Choice:
    """One choice of a request, on its way into the engine."""

    def __init__(self, index: int, request: Any) -> None:
        self.has_ended = False
        self._index = index
        self._request = request
        self._detokenizer: IncrementalDetokenizer | None = None

    async def replay(self, engine: AsyncLLM, written: WrittenTokens) -> None:
        groups = written.groups.get(self._index)
        if groups is not None:
            self._detokenizer = await replay(engine, self._request, self._index, written)
            self.has_ended = self._detokenizer is None
            if not self.has_ended:
                append(engine, self._request, groups)

    async def add(self, engine: AsyncLLM, parent: ParentRequest | None, generation: Generation) -> None:
        if self.has_ended:
            if parent is not None:
                parent.child_requests.discard(self._request.request_id)
        elif self._detokenizer is None:
            await engine._add_request(self._request, None, parent, self._index, generation)
        else:
            await add_request(engine, self._request, parent, self._index, self._detokenizer, generation)


class StallWatch:
    """Detects an engine that makes no progress while requests run; its own health check may still pass."""

    def __init__(self, engine: AsyncLLM, stall_s: float) -> None:
        """`stall_s`: the seconds without progress after which the engine has stalled."""
        self._engine = engine
        self._stall_s = stall_s
        self._seen: dict[str, int] = {}
        self._moved_at = time.monotonic()

    def check(self) -> None:
        """Raise EngineDied if the engine has made no progress for too long; called every few seconds."""
        states = self._engine.output_processor.request_states
        seen = {
            request_id: state.detokenizer.num_output_tokens() if state.detokenizer is not None else 0
            for request_id, state in states.items()
        }
        if not seen or seen != self._seen:
            self._seen = seen
            self._moved_at = time.monotonic()
        elif time.monotonic() - self._moved_at > self._stall_s:
            raise EngineDied(
                f"The engine has made no progress for {self._stall_s:g} s with {len(seen)} requests in it."
            )


def queued_s_of(output: RequestOutput) -> float | None:
    """Return how long a request waited for its first step, in seconds; None if the engine does not report it."""
    times = output.metrics
    if times is None or not times.scheduled_ts or not times.queued_ts:
        return None
    return float(max(0.0, times.scheduled_ts - times.queued_ts))
