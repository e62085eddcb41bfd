"""Streams answers through vLLM's serving class so that the tokens of each chunk are known.

The serving class makes one chunk of each choice in each output of the engine, in order. So the tokens of the outputs
wait here for their chunks. An answer that another engine began passes through the serving class from its beginning, so
that what the class counts is right; the chunks of what was written are for the reader to drop.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from vllm.lora.request import LoRARequest
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM

from deployments.models.contract.steps import PromptTokens, Written
from deployments.replica.resume.written import WrittenTokens
from deployments.replica.submit import generate, queued_s_of


class ChunkTokens(NamedTuple):
    """The tokens behind a chunk, and whether it was sent before."""

    token_ids: Sequence[int]
    was_sent: bool


class SteppingClient:
    """Replaces the engine while one request's answers are streamed.

    `prompts` has the prompts whose answers have begun, by number; `error` what ended an answer before its time;
    `queued_s` how long the first of them waited for its first step, in seconds, None where that is not known.
    """

    def __init__(
        self, engine: AsyncLLM, written: Written, choices_per_prompt: int, lora: LoRARequest | None = None
    ) -> None:
        self._lora = lora
        self.prompts = dict(written.prompts)
        self.error: Exception | None = None
        self.queued_s: float | None = None
        self._engine = engine
        self._written = written
        self._choices_per_prompt = choices_per_prompt
        self._num_prompts = 0
        self._chunks: defaultdict[int, deque[ChunkTokens]] = defaultdict(deque)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def next_chunk(self, choice: int) -> ChunkTokens:
        """Return the tokens behind the next chunk of a choice; must be called once for each chunk."""
        return self._chunks[choice].popleft()

    def generate(
        self, engine_input: dict[str, Any], params: SamplingParams, request_id: str, *, priority: int = 0, **_: Any
    ) -> AsyncIterator[RequestOutput]:
        """Return the outputs for one prompt; called once for each, in order.

        Raises:
            Exception: what the engine raised.
        """
        prompt = self._num_prompts
        self._num_prompts += 1
        return self._generate(prompt, engine_input, params, request_id, priority)

    async def _generate(
        self, prompt: int, engine_input: dict[str, Any], params: SamplingParams, request_id: str, priority: int
    ) -> AsyncIterator[RequestOutput]:
        outputs: asyncio.Queue[RequestOutput | None] = asyncio.Queue()
        first = prompt * self._choices_per_prompt
        groups = self._written.groups(first, self._choices_per_prompt)

        def take(output: RequestOutput) -> None:
            if self.queued_s is None:
                self.queued_s = queued_s_of(output)
            self.prompts.setdefault(
                prompt, PromptTokens(len(output.prompt_token_ids or ()), output.num_cached_tokens or 0)
            )
            self._queue(outputs, output, first, was_sent=False)

        def take_again(part: CompletionOutput) -> None:
            part.logprobs = None if params.logprobs is None else [None] * len(part.token_ids)
            prompt_token_ids = engine_input["prompt_token_ids"]
            prompt_logprobs = None if params.prompt_logprobs is None else [None] * len(prompt_token_ids)
            output = RequestOutput(request_id, None, prompt_token_ids, prompt_logprobs, [part], finished=False)
            self._queue(outputs, output, first, was_sent=True)

        work = generate(
            self._engine,
            engine_input,
            params,
            request_id,
            take,
            priority=priority,
            lora_request=self._lora,
            reasoning_ended=True,
            written=WrittenTokens(groups, take_again) if groups else None,
            streamed=True,
        )
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: outputs.put_nowait(None))
        try:
            while (output := await outputs.get()) is not None:
                yield output
            await task
        except Exception as error:
            self.error = error
            raise
        finally:
            task.cancel()
            await asyncio.wait([task])

    def _queue(
        self, outputs: asyncio.Queue[RequestOutput | None], output: RequestOutput, first: int, *, was_sent: bool
    ) -> None:
        # The serving class makes no chunk of a part without tokens that is none's end.
        output.outputs = [part for part in output.outputs if part.token_ids or part.text or part.finish_reason]
        if output.outputs:
            for part in output.outputs:
                self._chunks[first + part.index].append(ChunkTokens(part.token_ids, was_sent))
            outputs.put_nowait(output)
