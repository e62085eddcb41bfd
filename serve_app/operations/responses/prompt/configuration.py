"""The configuration of a response: the fields of its request, and the updates in its conversation."""

from collections.abc import Sequence
from typing import Any, TypeVar

from serve_app.operations.responses.events.writer import Item
from serve_app.schemas.responses.request import PromptedRequest, Reasoning
from serve_app.schemas.responses.text import TextConfig
from serve_app.schemas.responses.updates import CONFIGURATION_UPDATE, ConfigurationUpdateItem

Request = TypeVar("Request", bound=PromptedRequest)


def configured(request: Request, items: Sequence[Item]) -> Request:
    """Return a request with the updates among the items of its conversation; of each setting, the last one holds."""
    changes: dict[str, Any] = {}
    for item in items:
        if item["type"] != CONFIGURATION_UPDATE:
            continue
        update = ConfigurationUpdateItem.model_validate(item)
        if update.reasoning is not None and update.reasoning.effort is not None:
            effort = {"effort": update.reasoning.effort}
            changes["reasoning"] = (request.reasoning or Reasoning()).model_copy(update=effort)
        if update.text is not None:
            changes["text"] = (request.text or TextConfig()).model_copy(update={"format": update.text.format})
    return request.model_copy(update=changes) if changes else request
