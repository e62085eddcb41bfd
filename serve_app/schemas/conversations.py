"""The bodies of the conversations API."""

from typing import Annotated

from pydantic import Field

from serve_app.schemas.base import Metadata, WireModel
from serve_app.schemas.responses.items import InputItem

MAX_NEW_ITEMS = 20
NewItems = Annotated[list[InputItem], Field(fail_fast=True, max_length=MAX_NEW_ITEMS)]


class NewConversation(WireModel):
    """A conversation to be created, with its first items."""

    items: NewItems | None = None
    metadata: Metadata | None = None


class ConversationChange(WireModel):
    """New metadata of a conversation."""

    metadata: Metadata | None


class NewConversationItems(WireModel):
    """Items to be added to a conversation."""

    items: Annotated[list[InputItem], Field(fail_fast=True, min_length=1, max_length=MAX_NEW_ITEMS)]
