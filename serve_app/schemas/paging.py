"""The query of a list that is read in pages."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from serve_app.schemas.base import WireModel

_Cursor = Annotated[str | None, AfterValidator(lambda cursor: cursor or None)]


class PageQuery(WireModel):
    """Which part of a list is asked for: the newest first, unless `order` is "asc"."""

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: _Cursor = None

    @property
    def is_ascending(self) -> bool:
        """Whether the oldest come first."""
        return self.order == "asc"


class TwoWayQuery(PageQuery):
    """Which part of a list is asked for that can also be read backwards: the last items before one; `after` wins."""

    before: _Cursor = None
