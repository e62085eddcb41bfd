"""vLLM's options that are refused, each with the reason. Most of them would let one account harm another."""

from collections.abc import Mapping
from typing import Any

from serve_app.schemas.base import WireModel, refusal

_ENGINE_INSIDE = "it reaches into the engine, which all accounts share"
_ANY_MEMORY = "it could take any amount of the engine's memory, which all accounts share"
_RENDER_ONLY = "no answer of this endpoint would show it"
REFUSED: Mapping[str, tuple[Any, str]] = {
    "use_beam_search": (False, "the engine keeps no order of priorities for it, nor the limits of a key"),
    "length_penalty": (1.0, "it only means something in a beam search, which is not offered"),
    "kv_transfer_params": (None, _ENGINE_INSIDE),
    "ec_transfer_params": (None, _ENGINE_INSIDE),
    "vllm_xargs": (None, _ENGINE_INSIDE),
    "request_id": (None, "the service numbers requests itself"),
    "mm_processor_kwargs": (None, _ANY_MEMORY),
    "guided_decoding_backend": (None, "the model's configuration names the compiler of grammars"),
    "guided_whitespace_pattern": (None, "the model's configuration says which white space JSON has"),
    "routed_experts_prompt_start": (0, _RENDER_ONLY),
    "return_token_offsets": (False, _RENDER_ONLY),
    "mm_payload": ("tensors", _RENDER_ONLY),
    "return_mm_kwargs": (None, _RENDER_ONLY),
    "watermarking": (None, "the model's configuration says which answers have a watermark"),
}
"""Refused fields of all requests: the value that has no effect, and why any other is refused."""
REFUSED_IN_CHAT: Mapping[str, tuple[Any, str]] = {
    **REFUSED,
    "chat_template": (None, "templates are programs. Send 'chat_template_kwargs' to the model's own template"),
    "media_io_kwargs": (None, _ANY_MEMORY),
    "return_assistant_tokens_mask": (False, _RENDER_ONLY),
}
REFUSED_IN_COMPLETIONS: Mapping[str, tuple[Any, str]] = {**REFUSED, "prompt_embeds": (None, _ENGINE_INSIDE)}
REFUSED_IN_EMBEDDINGS: Mapping[str, tuple[Any, str]] = {
    name: REFUSED[name] for name in ("request_id", "mm_processor_kwargs")
} | {
    "messages": (None, "only texts and tokens are embedded. Send them as 'input'"),
    "padding": ("do_not_pad", "every input would take the model's whole context"),
    "priority": (0, "embeddings are not put in an order"),
}


def check_refused(request: WireModel, refused: Mapping[str, tuple[Any, str]]) -> None:
    """Check that refused fields are left out, or have the value that has no effect."""
    for name in request.model_fields_set & refused.keys():
        value, (harmless, reason) = getattr(request, name), refused[name]
        if value is not None and value != harmless:
            raise refusal(
                "unsupported_parameter", f"Unsupported parameter: '{{param}}' is not supported: {reason}.", name
            )
