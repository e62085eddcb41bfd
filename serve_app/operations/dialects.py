"""What the dialects over chats share: a chat that is checked, and its errors in the words of the client's request."""

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import ValidationError

from serve_app.errors.api import BadRequest
from serve_app.schemas.base import OperationRequest
from serve_app.validation.violations import translate_violation

Body = TypeVar("Body", bound=OperationRequest)


def checked(chat: dict[str, Any], schema: type[Body], in_own_words: Callable[[BadRequest], BadRequest]) -> Body:
    """Return a body that was made from a client's request, checked. Raises BadRequest `in_own_words` of the request."""
    try:
        return schema.model_validate(chat)
    except ValidationError as error:
        raise in_own_words(translate_violation(error, chat)) from None


def renamed(error: BadRequest, param: str | None) -> BadRequest:
    """Return an error about a field that the client calls `param`."""
    message = error.message.replace(f"'{error.param}'", f"'{param}'") if error.param else error.message
    return BadRequest(message, param=param, code=error.code, headers=error.headers)
