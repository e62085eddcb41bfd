"""Translates vLLM's exceptions into `EngineError`s; some of vLLM's cannot be unpickled in another process."""

import contextlib
import re
from collections.abc import Iterator

from pydantic import ValidationError
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.exceptions import GracefulHTTPError, VLLMClientError, VLLMServerError, VLLMValidationError

from deployments.models.contract.errors import (
    ContextLengthExceeded,
    EngineDied,
    EngineError,
    Overloaded,
    RequestRejected,
)

# The number of tokens is missing if vLLM finds a prompt too long by its characters.
_TOO_LONG = re.compile(
    r"context length is (?P<limit>\d+) tokens(?:.* contains (?P<at_least>at least )?(?P<num>\d+) input tokens)?",
    re.DOTALL,
)

_NAMED = re.compile(r"`?([a-z_]+)`? (?:must be|value is) ")
"""How vLLM's messages begin that name a field only in their text."""
_MAX_PROMPT_LOGPROBS_TOKENS = 2_048
"""For each token of such a prompt the engine holds a number per token of the vocabulary: here up to 2.5 GB."""


def check_prompt_logprobs(num_logprobs: int | None, num_prompt_tokens: int) -> None:
    """Raise RequestRejected if a prompt is too long for the log probabilities of its tokens, which are asked for."""
    if num_logprobs is not None and num_prompt_tokens > _MAX_PROMPT_LOGPROBS_TOKENS:
        raise RequestRejected(
            f"Invalid 'prompt_logprobs': they are shown of prompts with at most {_MAX_PROMPT_LOGPROBS_TOKENS} tokens, "
            f"but this one has {num_prompt_tokens}.",
            "prompt_logprobs",
            "invalid_value",
        )


@contextlib.contextmanager
def refused(prompt_param: str) -> Iterator[None]:
    """Translate what vLLM raises; `prompt_param` is the field that holds the prompt.

    Raises:
        EngineError: instead of vLLM's exceptions, and of a ValueError, which vLLM raises for bad requests.
    """
    try:
        yield
    except EngineError:
        raise
    except GracefulHTTPError as error:
        raise Overloaded("The engine is currently overloaded, please try again later") from error
    except VLLMServerError as error:
        raise EngineDied("The engine failed while it ran the request.") from error
    except VLLMValidationError as error:
        raise _rejected(error.args[0], error.parameter, prompt_param) from error
    except ValidationError as error:
        raise _rejected(error.errors()[0]["msg"], str(error.errors()[0]["loc"][0]), prompt_param) from error
    except TypeError as error:  # Its message is about Python functions.
        message = f"Invalid '{prompt_param}': a value has a type that the model cannot be given."
        raise RequestRejected(message, prompt_param, "invalid_type") from error
    except (VLLMClientError, ValueError) as error:
        raise _rejected(str(error), None, prompt_param) from error


def refusal_of(response: ErrorResponse, prompt_param: str) -> EngineError:
    """Return the error for an error response of vLLM; `prompt_param` is the field that holds the prompt."""
    error = response.error
    if error.code >= 500:
        return EngineDied("The engine failed while it ran the request.")
    return _rejected(error.message, error.param, prompt_param)


def _rejected(message: str, param: str | None, prompt_param: str) -> RequestRejected:
    is_too_long = param in ("input_tokens", "input_text") or "maximum context length" in message
    if is_too_long and (found := _TOO_LONG.search(message)):
        num_tokens = int(found["num"]) if found["num"] else None
        return ContextLengthExceeded(prompt_param, int(found["limit"]), num_tokens, found["at_least"] is not None)
    first = message.split("\n", 1)[0][:300]
    if first.endswith(("prompt cannot be empty", "must be provided and non-empty.")):
        return RequestRejected(f"Invalid '{prompt_param}': it has no tokens.", prompt_param, "empty_string")
    if param is None and (named := _NAMED.match(first)):
        param = named[1]
    if is_too_long:
        return RequestRejected(first, prompt_param, "context_length_exceeded")
    return RequestRejected(first, param, "invalid_value")
