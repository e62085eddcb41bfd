"""The log probabilities of a chat's tokens, in OpenAI's format.

vLLM gives a token the bytes of its text. A token that is a part of a character has no text of its own.
"""

import asyncio
from itertools import islice
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.logprobs import Logprob
from vllm.outputs import CompletionOutput

LEAST = -9999.0
"""The logarithm of a probability of 0; JSON has no infinity."""


class TokenBytes:
    """The bytes of each token of a vocabulary, once it is loaded."""

    def __init__(self) -> None:
        self._vocabulary: list[bytes] = []

    async def load(self, tokenizer: Any) -> None:
        """Read the vocabulary, once: up to a second for a large one."""
        if not self._vocabulary:
            self._vocabulary = await asyncio.to_thread(_vocabulary_of, tokenizer)

    def of(self, token_id: int, text: str) -> list[int]:
        """Return the bytes of a token; the bytes of its text if the vocabulary lacks it."""
        if token_id < len(self._vocabulary):
            return list(self._vocabulary[token_id])
        return list(text.encode("utf-8", errors="replace"))


def _vocabulary_of(tokenizer: Any) -> list[bytes]:
    import xgrammar

    vocabulary: list[bytes] = xgrammar.TokenizerInfo.from_huggingface(tokenizer).decoded_vocab
    return vocabulary


def has_end_token(finish_reason: str | None, stop_reason: int | str | None) -> bool:
    """Return whether a token ended an answer; that token is not part of the text."""
    return finish_reason == "stop" and not isinstance(stop_reason, str)


def chat_logprobs(
    part: CompletionOutput, request: ChatCompletionRequest, tokenizer: Any, token_bytes: TokenBytes
) -> list[dict[str, Any]]:
    """Return the entries of `logprobs.content` for the tokens of a part whose text is shown."""
    token_ids, steps = list(part.token_ids), part.logprobs or []
    if has_end_token(part.finish_reason, part.stop_reason) and not request.include_stop_str_in_output:
        token_ids = token_ids[:-1]
    num_shown = None if request.logprob_token_ids else request.top_logprobs or 0

    def shown(token_id: int, logprob: Logprob | None) -> dict[str, Any]:
        text = None if logprob is None else logprob.decoded_token
        text = tokenizer.decode(token_id) if text is None else text
        return {
            "token": f"token_id:{token_id}" if request.return_tokens_as_token_ids else text,
            "logprob": LEAST if logprob is None else max(logprob.logprob, LEAST),
            "bytes": token_bytes.of(token_id, text),
        }

    content = []
    for token_id, step in zip(token_ids, steps, strict=False):
        top = [shown(*other) for other in islice((step or {}).items(), num_shown)]
        content.append({**shown(token_id, (step or {}).get(token_id)), "top_logprobs": top})
    return content


def prompt_logprobs_to_wire(prompt_logprobs: Any) -> list[dict[str, dict[str, Any]] | None]:
    """Return a prompt's log probabilities: for each position, by token id; None for the first."""
    return [
        None
        if of_one is None
        else {
            str(token_id): {
                "logprob": max(shown.logprob, LEAST),
                "rank": shown.rank,
                "decoded_token": shown.decoded_token,
            }
            for token_id, shown in of_one.items()
        }
        for of_one in prompt_logprobs
    ]
