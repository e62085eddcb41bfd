"""Gathers whole answers for vLLM's serving class token by token, so that usage is known when the client leaves.

vLLM gathers them internally, and reports no usage of a request that is aborted.
"""

from collections.abc import AsyncIterator
from typing import Any

from vllm.lora.request import LoRARequest
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM

from deployments.models.contract.engine import Usage
from deployments.replica.submit import generate, queued_s_of


class GatheringClient:
    """Replaces the engine while one request's answers are made; `usage` counts their tokens so far."""

    def __init__(self, engine: AsyncLLM, lora: LoRARequest | None = None) -> None:
        self._engine = engine
        self._lora = lora
        self._answers: list[GatheredAnswer] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(
        self, engine_input: dict[str, Any], params: SamplingParams, request_id: str, *, priority: int = 0, **_: Any
    ) -> AsyncIterator[RequestOutput]:
        """Yield the answer to one prompt, once it is whole.

        Raises:
            Exception: what the engine raised.
        """
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
            reasoning_ended=True,  # A form holds the whole text: a raw prompt has no reasoning before an answer.
        )
        yield answer.output()

    @property
    def queued_s(self) -> float | None:
        """How long the first prompt waited for its first step, in seconds; None where that is not known."""
        return self._answers[0].queued_s if self._answers else None

    @property
    def usage(self) -> Usage:
        """The usage of all prompts; one that has not been read yet counts nothing."""
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
