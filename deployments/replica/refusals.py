"""vLLM's refusals and failures as ours: several of its exceptions cannot even be unpickled in another process."""

import contextlib
import re
from collections.abc import Iterator

from pydantic import ValidationError
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.exceptions import GracefulHTTPError, VLLMClientError, VLLMValidationError
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from deployments.models.contract.errors import EngineDied, EngineError, Overloaded, RequestRejected

_TOO_LONG = re.compile(r"maximum context length is (\d+) tokens.*?(?:contains|length \()\D*?(\d+)", re.DOTALL)


@contextlib.contextmanager
def refused(prompt_param: str) -> Iterator[None]:
    """Translate what vLLM raises; `prompt_param` is the field that holds the prompt.

    Raises:
        EngineError: in place of vLLM's exception, and of a ValueError, which vLLM raises for bad requests.
    """
    try:
        yield
    except EngineError:
        raise
    except GracefulHTTPError as error:
        raise Overloaded("The engine is currently overloaded, please try again later") from error
    except (EngineDeadError, EngineGenerateError) as error:
        raise EngineDied("The engine failed while it ran the request.") from error
    except VLLMValidationError as error:
        raise _rejected(error.args[0], error.parameter, prompt_param) from error
    except ValidationError as error:
        raise _rejected(error.errors()[0]["msg"], str(error.errors()[0]["loc"][0]), prompt_param) from error
    except (VLLMClientError, ValueError, TypeError) as error:
        raise _rejected(str(error), None, prompt_param) from error


def refusal_of(response: ErrorResponse) -> EngineError:
    """Return the error that an error response of vLLM's stands for."""
    error = response.error
    if error.code >= 500:
        return EngineDied("The engine failed while it ran the request.")
    return _rejected(error.message, error.param, "messages")


def _rejected(message: str, param: str | None, prompt_param: str) -> RequestRejected:
    if param in ("input_tokens", "input_text") or "maximum context length" in message:
        return _too_long(message, prompt_param)
    first = message.split("\n", 1)[0]
    return RequestRejected(first[:300], param, "invalid_value")


def _too_long(message: str, prompt_param: str) -> RequestRejected:
    numbers = [int(number) for number in re.findall(r"\d+", message)]
    limit = numbers[0] if numbers else 0
    found = _TOO_LONG.search(message)
    length = f"at least {found.group(2)}" if found and "at least" in message else (found.group(2) if found else "more")
    subject = "messages" if prompt_param == "messages" else "prompt"
    text = (
        f"This model's maximum context length is {limit} tokens. However, your {subject} resulted in {length} tokens"
        f", with the output that was asked for. Please reduce the length of the {subject} or of the output."
    )
    return RequestRejected(text, prompt_param, "context_length_exceeded")
