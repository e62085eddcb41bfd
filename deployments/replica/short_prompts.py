"""Renders and tokenizes short prompts in the event loop, where they arrive.

vLLM does both in a thread, so that a long prompt delays no other request. For a short one the switch to the thread and
back takes longer than the work, twice, and on a busy machine each of the four switches waits for a CPU.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from vllm.renderers.base import BaseRenderer
from vllm.renderers.hf import HfRenderer, safe_apply_chat_template

_SHORT = 4096
"""In characters: about a thousand tokens, which take a millisecond."""


def prepare_short_at_once(renderer: BaseRenderer[Any]) -> None:
    """Make a renderer do so from now on. vLLM promises that several threads may use its tokenizer."""
    renderer._tokenize_prompt_async = _at_once(
        renderer._tokenize_prompt, renderer._tokenize_prompt_async, lambda prompt, _: len(prompt["prompt"]) <= _SHORT
    )
    if type(renderer) is HfRenderer:  # Others derived from it have templates of their own kind.
        renderer._apply_chat_template_async = _at_once(
            safe_apply_chat_template, renderer._apply_chat_template_async, _is_short
        )


def _at_once(
    work: Callable[..., Any], hand_over: Callable[..., Awaitable[Any]], is_short: Callable[..., bool]
) -> Callable[..., Awaitable[Any]]:
    async def run(*args: Any, **kwargs: Any) -> Any:
        return work(*args, **kwargs) if is_short(*args, **kwargs) else await hand_over(*args, **kwargs)

    return run


def _is_short(
    _: object, __: object, conversation: list[dict[str, Any]], *, tools: object = None, **___: object
) -> bool:
    if tools or any(message.get("tool_calls") for message in conversation):
        return False
    num_characters = 0
    for message in conversation:
        content = message.get("content") or ""
        for part in [{"text": content}] if isinstance(content, str) else content:
            if "text" not in part:
                return False
            num_characters += len(part["text"])
    return num_characters <= _SHORT
