"""The setting that names the markers of a model that fills in the middle of a text."""

from typing import Literal

from pydantic import Field

from deployments.config import Section


class FillInMiddle(Section):
    """The tokens with which a model was trained to fill in the middle of a text.

    Args:
        prefix: the token before the text in front of the gap, a completion's `prompt`.
        suffix: the token before the text behind the gap, a completion's `suffix`.
        middle: the token after both texts, where the model begins to write; empty for a model that has none.
        end: the token with which the model ends what it writes; empty for one that ends it like any other text.
        order: which text comes first: `psm` begins with the prefix, `spm` with the suffix.
    """

    prefix: str = Field(min_length=1)
    suffix: str = Field(min_length=1)
    middle: str = ""
    end: str = ""
    order: Literal["psm", "spm"] = "psm"

    @property
    def tokens(self) -> frozenset[str]:
        """Every token that is named."""
        return frozenset({self.prefix, self.suffix, self.middle, self.end} - {""})
