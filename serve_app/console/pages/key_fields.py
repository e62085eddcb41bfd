"""The fields of the forms that create and change keys, for account holders and operators."""

from datetime import UTC, datetime
from typing import Any

from serve_app.errors.api import BadRequest

_NUMBERS = ("requests_per_minute", "tokens_per_minute")
_LISTS = ("operations", "models", "regions")


def parse_key_fields(fields: dict[str, str]) -> dict[str, Any]:
    """Return the fields of a form as those of a key, without empty ones.

    Raises:
        BadRequest: a number or the date is not valid.
    """
    wanted: dict[str, Any] = {}
    try:
        for name, text in fields.items():
            text = text.strip()
            if not text:
                continue
            if name in _NUMBERS:
                wanted[name] = int(text)
            elif name in _LISTS:
                wanted[name] = [line.strip() for line in text.splitlines() if line.strip()]
            elif name == "expires_at":
                wanted[name] = datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
            else:
                wanted[name] = text == "on" if name == "is_admin" else text
    except ValueError:
        raise BadRequest("A number or the date in the form is not valid.") from None
    return wanted
