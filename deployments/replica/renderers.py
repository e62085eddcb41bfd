"""Changes vLLM's renderers, which turn chats and texts into tokens.

- A text that will be truncated is cut before it is tokenized. A tokenizer reads all of a text, whatever is kept of it:
  60 MB take minutes and 14 GB of memory. A prompt that is truncated to the context leaves room for the answer's max
  tokens; vLLM leaves room for one token.
- Short prompts are rendered and tokenized in the event loop. vLLM does both in a thread, so that a long prompt delays
  no other request. For a short one the thread switches take longer than the work, and wait for a CPU on a busy machine.
- Instructions in the middle of a conversation come where the chat template shows them; see `instructions`.
- A chat template gets the arguments that it names, and no others. vLLM drops others too, but later: an argument with
  the name of a parameter of vLLM's own functions would fail there with Python's message.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from vllm.renderers.base import BaseRenderer
from vllm.renderers.hf import (
    HfRenderer,
    _cached_resolve_chat_template_kwargs,
    resolve_chat_template,
    safe_apply_chat_template,
)
from vllm.renderers.params import TokenizeParams

from deployments.replica.instructions import Places, has_instructions, placed, places_of

CHARS_PER_TOKEN: Final = 64
"""How much text is read for each token of the context. English has four characters a token, and the longest runs of
white space, which take the fewest tokens, rarely more than this."""
SHORT: Final = 4096
"""In characters: about a thousand tokens, which take a millisecond."""
_PASSED_BY_VLLM: Final = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "documents",
        "return_assistant_tokens_mask",
        "return_dict",
        "tokenize",
        "tools",
    }
)
"""Not from clients: `serve_app.schemas.engine_options` refuses these names."""


def cut_long_prompts(renderer: BaseRenderer[Any], least_answer: int) -> None:
    """Make a renderer cut long prompts; any answer has at least `least_answer` tokens."""
    for name in ("_tokenize_prompt", "_tokenize_prompt_async"):
        setattr(renderer, name, _cutting(renderer, getattr(renderer, name), least_answer))


def cut_text(text: str, num_tokens: int, side: str = "right") -> str:
    """Return a text without the characters that `num_tokens` tokens cannot reach, cut off on the given side."""
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


def prepare_short_at_once(renderer: BaseRenderer[Any]) -> None:
    """Make a renderer prepare short prompts in the event loop; vLLM allows several threads to use its tokenizer."""
    renderer._tokenize_prompt_async = _at_once(
        renderer._tokenize_prompt, renderer._tokenize_prompt_async, lambda prompt, _: len(prompt["prompt"]) <= SHORT
    )
    if type(renderer) is HfRenderer:  # Its subclasses have other kinds of templates.
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
    return num_characters <= SHORT


def keep_named_arguments(renderer: BaseRenderer[Any]) -> None:
    """Make a renderer drop the arguments that its chat template does not name."""
    if type(renderer) is not HfRenderer:
        return
    apply = renderer._apply_chat_template_async

    async def run(model_config: Any, tokenizer: Any, conversation: Any, /, **arguments: Any) -> Any:
        template = resolve_chat_template(
            tokenizer, arguments.get("chat_template"), arguments.get("tools"), model_config=model_config
        )
        known = _PASSED_BY_VLLM | (_cached_resolve_chat_template_kwargs(template) if template else frozenset())
        kept = {name: value for name, value in arguments.items() if name in known}
        return await apply(model_config, tokenizer, conversation, **kept)

    renderer._apply_chat_template_async = run


def place_instructions(renderer: BaseRenderer[Any]) -> None:
    """Make a renderer put system messages where its chat template shows them."""
    if type(renderer) is not HfRenderer:  # The others render without a template, and take them anywhere.
        return
    apply = renderer._apply_chat_template_async
    known: dict[tuple[str | None, bool], Places] = {}

    async def run(model_config: Any, tokenizer: Any, conversation: Any, /, **arguments: Any) -> Any:
        if has_instructions(conversation):
            template = resolve_chat_template(
                tokenizer, arguments.get("chat_template"), arguments.get("tools"), model_config=model_config
            )
            in_parts = isinstance(conversation[0]["content"], list)
            if (template, in_parts) not in known:

                def render(talk: list[Any]) -> str:
                    options = {"chat_template": template, "tokenize": False}
                    return str(safe_apply_chat_template(model_config, tokenizer, talk, **options))

                known[template, in_parts] = places_of(render, in_parts=in_parts)
            conversation = placed(conversation, known[template, in_parts])
        return await apply(model_config, tokenizer, conversation, **arguments)

    renderer._apply_chat_template_async = run
