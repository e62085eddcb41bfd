"""Cuts the text of a prompt that is truncated before it becomes tokens, so that no request costs more than its context.

A prompt that is truncated to the context leaves room for the answer that is asked for: vLLM leaves it one token.
A tokenizer reads a text to its end, whatever is kept of it: sixty megabytes take minutes and fourteen gigabytes.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from vllm.renderers.base import BaseRenderer
from vllm.renderers.params import TokenizeParams

CHARS_PER_TOKEN: Final = 64
"""How much text is read for each token of the context. English has four characters a token, and the longest runs of
white space, which take the fewest tokens, rarely more than this."""


def cut_long_prompts(renderer: BaseRenderer[Any], least_answer: int) -> None:
    """Make a renderer do so from now on. `least_answer` is the number of tokens that any answer has at least."""
    for name in ("_tokenize_prompt", "_tokenize_prompt_async"):
        setattr(renderer, name, _cutting(renderer, getattr(renderer, name), least_answer))


def cut_text(text: str, num_tokens: int, side: str = "right") -> str:
    """Return a text without what `num_tokens` tokens cannot reach; `side` is the one that is cut off."""
    num_chars = CHARS_PER_TOKEN * num_tokens
    if len(text) <= num_chars:
        return text
    return text[-num_chars:] if side == "left" else text[:num_chars]


def _cutting(renderer: BaseRenderer[Any], tokenize: Callable[..., Any], least_answer: int) -> Callable[..., Any]:
    def run(prompt: Any, params: TokenizeParams) -> Any:
        if params.truncate_prompt_tokens is not None and params.max_input_tokens is not None:
            side = params.truncation_side or getattr(renderer.get_tokenizer(), "truncation_side", "left")
            prompt = {**prompt, "prompt": cut_text(prompt["prompt"], params.max_input_tokens, side)}
            if params.truncate_prompt_tokens < 0:
                room = max(1, params.max_input_tokens - max(params.max_output_tokens, least_answer))
                params = replace(params, truncate_prompt_tokens=room)
        return tokenize(prompt, params)

    return run
