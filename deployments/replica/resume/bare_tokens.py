"""Tokens without a LoRA adapter, in a step with adapters, on CPUs: vLLM's operations must leave them as they are.

vLLM marks such a token with the index -1. Its operations for CPUs take that for the last adapter in place, which then
changes the answers of all who asked for none. Here the input of these tokens is zero, which no adapter changes.
"""

from typing import Any

from vllm.lora.ops.torch_ops import lora_ops
from vllm.lora.punica_wrapper import punica_cpu

_OPERATIONS = ("bgmv_shrink", "bgmv_expand", "bgmv_expand_slice")


def leave_bare_tokens() -> None:
    """Make the operations of this process leave tokens without an adapter as they are."""
    for name in _OPERATIONS:
        operation = getattr(lora_ops, name)
        if not getattr(operation, "leaves_bare_tokens", False):
            left = _leaving(operation)
            setattr(lora_ops, name, left)
            setattr(punica_cpu, name, left)


def _leaving(operation: Any) -> Any:
    def run(inputs: Any, weights: Any, output: Any, indices: Any, *more: Any, **options: Any) -> None:
        inputs = inputs.masked_fill((indices < 0).unsqueeze(-1), 0)
        operation(inputs, weights, output, indices, *more, **options)

    run.leaves_bare_tokens = True  # type: ignore[attr-defined]
    return run
