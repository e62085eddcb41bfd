"""Hands a chat template the arguments that it names, and drops others, before they could name one of a function's.

vLLM drops them too, but later, and lets names pass that its functions have themselves: those fail with Python's words.
"""

from typing import Any, Final

from vllm.renderers.base import BaseRenderer
from vllm.renderers.hf import HfRenderer, _cached_resolve_chat_template_kwargs, resolve_chat_template

_OF_THE_ENGINE: Final = frozenset(
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
"""What vLLM passes on beside them. Clients cannot: `serve_app.schemas.engine_options` refuses these names."""


def keep_named_arguments(renderer: BaseRenderer[Any]) -> None:
    """Make a renderer do so from now on."""
    if type(renderer) is not HfRenderer:  # Others derived from it have templates of their own kind.
        return
    apply = renderer._apply_chat_template_async

    async def run(model_config: Any, tokenizer: Any, conversation: Any, /, **arguments: Any) -> Any:
        template = resolve_chat_template(
            tokenizer, arguments.get("chat_template"), arguments.get("tools"), model_config=model_config
        )
        known = _OF_THE_ENGINE | (_cached_resolve_chat_template_kwargs(template) if template else frozenset())
        kept = {name: value for name, value in arguments.items() if name in known}
        return await apply(model_config, tokenizer, conversation, **kept)

    renderer._apply_chat_template_async = run
