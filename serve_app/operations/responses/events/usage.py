"""The tokens of a response, as its object shows them."""

from typing import Any

from deployments.models.contract.engine import Usage


def usage_to_wire(usage: Usage) -> dict[str, Any]:
    """Return a response's `usage` object."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def usage_from_wire(usage: dict[str, Any]) -> Usage:
    """Return the tokens in a response's `usage` object."""
    return Usage(
        prompt_tokens=usage["input_tokens"],
        completion_tokens=usage["output_tokens"],
        cached_tokens=usage["input_tokens_details"]["cached_tokens"],
        reasoning_tokens=usage["output_tokens_details"]["reasoning_tokens"],
    )
