"""Stand in for the engine while vLLM's serving class handles one request for completions.

`GatheringClient` gathers whole answers token by token, so that usage is known when the client leaves: vLLM gathers them
internally, and reports no usage of an aborted request.

`SteppingClient` streams answers, and knows the tokens of each chunk. The serving class makes one chunk for each choice
in each output of the engine, in order, so the tokens of outputs are queued until their chunks come. An answer that
another engine began passes through the serving class from its start, so that the class counts right; the reader drops
the chunks that were sent before.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from vllm.lora.request import LoRARequest
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM

from deployments.models.contract.engine import Usage
from deployments.models.contract.steps import PromptTokens, Written
from deployments.replica.resume.written import WrittenTokens
from deployments.replica.submit import generate, queued_s_of


class GatheringClient:
    """Gathers the whole answers to one request; `usage` counts their tokens so far."""

    def __init__(self, engine: AsyncLLM, lora: LoRARequest | None = None) -> None:
        self._engine = engine
        self._lora = lora
        self._answers: list[GatheredAnswer] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(
        self, engine_input: dict[str, Any], params: SamplingParams, request_id: str, *, priority: int = 0, **_: Any
    ) -> AsyncIterator[RequestOutput]:
        """Yield the answer to one prompt, once it is whole."""
        answer = GatheredAnswer()
        self._answers.append(answer)
        params.output_kind = RequestOutputKind.DELTA
        await generate(
            self._engine,
            engine_input,
            params,
            request_id,
            answer.take,
            priority=priority,
            lora_request=self._lora,
            reasoning_ended=True,  # A raw prompt has no reasoning, so a form holds for the whole text.
        )
        yield answer.output()

    @property
    def queued_s(self) -> float | None:
        """How long the first prompt waited for its first step, in seconds; None if that is unknown."""
        return self._answers[0].queued_s if self._answers else None

    @property
    def usage(self) -> Usage:
        """The usage of all prompts that the engine has begun."""
        taken = [answer.usage for answer in self._answers]
        return Usage(
            sum(usage.prompt_tokens for usage in taken),
            sum(usage.completion_tokens for usage in taken),
            sum(usage.cached_tokens for usage in taken),
        )


class GatheredAnswer:
    """All choices of the answer to one prompt, so far."""

    def __init__(self) -> None:
        self.queued_s: float | None = None
        self._head: RequestOutput | None = None
        self._choices: dict[int, tuple[CompletionOutput, list[str], list[int]]] = {}

    def take(self, output: RequestOutput) -> None:
        """Add the output of one step of the engine."""
        if self._head is None:
            self._head, self.queued_s = output, queued_s_of(output)
        for choice in output.outputs:
            kept = self._choices.get(choice.index)
            if kept is None:
                self._choices[choice.index] = (choice, [choice.text], list(choice.token_ids))
                continue
            whole, texts, token_ids = kept
            texts.append(choice.text)
            token_ids.extend(choice.token_ids)
            if choice.logprobs:
                whole.logprobs.extend(choice.logprobs)
            whole.cumulative_logprob = choice.cumulative_logprob
            whole.finish_reason, whole.stop_reason = choice.finish_reason, choice.stop_reason

    def output(self) -> RequestOutput:
        """Return the whole answer as the engine would have yielded it."""
        assert self._head is not None
        for choice, texts, token_ids in self._choices.values():
            choice.text, choice.token_ids = "".join(texts), token_ids
        self._head.outputs = [self._choices[index][0] for index in sorted(self._choices)]
        self._head.finished = True
        return self._head

    @property
    def usage(self) -> Usage:
        """The tokens so far."""
        if self._head is None:
            return Usage()
        num_tokens = sum(len(token_ids) for _, _, token_ids in self._choices.values())
        return Usage(len(self._head.prompt_token_ids or ()), num_tokens, self._head.num_cached_tokens or 0)


class ChunkTokens(NamedTuple):
    """The tokens of a chunk, and whether the client has it from another engine."""

    token_ids: Sequence[int]
    was_sent: bool


class SteppingClient:
    """Streams the answers to one request.

    `prompts` holds the prompts whose answers have begun, by number. `error` is the exception that ended an answer
    early. `queued_s` is how long the first prompt waited for its first step, in seconds; None if that is unknown.
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
        """Return the tokens of a choice's next chunk; call it once for each chunk."""
        return self._chunks[choice].popleft()

    def generate(
        self, engine_input: dict[str, Any], params: SamplingParams, request_id: str, *, priority: int = 0, **_: Any
    ) -> AsyncIterator[RequestOutput]:
        """Return the outputs for one prompt; called once for each, in order."""
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
        # The serving class makes no chunk of a part without tokens, unless the part ends a choice.
        output.outputs = [part for part in output.outputs if part.token_ids or part.text or part.finish_reason]
        if output.outputs:
            for part in output.outputs:
                self._chunks[first + part.index].append(ChunkTokens(part.token_ids, was_sent))
            outputs.put_nowait(output)
