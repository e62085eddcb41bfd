"""The options of a search over files: conditions on their attributes, and how results are ranked."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, Tag, model_validator

from serve_app.schemas.base import (
    MAX_METADATA_KEY_CHARS,
    MAX_METADATA_PAIRS,
    WireModel,
    check_metadata_value,
    check_size,
    invalid,
    refusal,
)

MAX_RESULTS = 50
MAX_FILTER_DEPTH = 8
MAX_FILTERS = 256
MAX_FILTER_VALUES = 1000

NumResults = Annotated[int, Field(ge=1, le=MAX_RESULTS)]
StoreId = Annotated[str, Field(min_length=1, max_length=128)]
Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, le=1000)]
Key = Annotated[str, Field(min_length=1, max_length=MAX_METADATA_KEY_CHARS)]


def _check_value(value: Any) -> Any:
    many = value if isinstance(value, list) else [value]
    if len(many) > MAX_FILTER_VALUES:
        raise refusal(
            "array_above_max_length",
            f"Invalid '{{param}}': array too long. Expected an array with maximum length {MAX_FILTER_VALUES}, but got "
            f"an array with length {len(many)} instead.",
        )
    if not all(type(one) in (str, bool, int, float) for one in many):
        raise refusal(
            "invalid_type", "Invalid type for '{param}': expected a string, a number, a boolean, or a list of them."
        )
    return value


class ComparisonFilter(WireModel):
    """A condition on one attribute; files without it meet only 'ne' and 'nin'.

    Args:
        type: how the attribute is compared: equal, not equal, greater, less, in a list or not in it.
        key: the name of the attribute.
        value: the value to compare with; a list with `in` and `nin`.
    """

    type: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
    key: Key
    value: Annotated[Any, BeforeValidator(_check_value)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.type in ("in", "nin")) != isinstance(self.value, list):
            wanted = "a list" if self.type in ("in", "nin") else "one value"
            raise refusal(
                "invalid_type", f"Invalid type for '{{param}}': expected {wanted} with this 'type'.", ".value"
            )
        return self


class CompoundFilter(WireModel):
    """Conditions: all must hold, or one.

    Args:
        type: `and` if all filters must hold, `or` if one is enough.
        filters: the filters to combine.
    """

    type: Literal["and", "or"]
    filters: Annotated[list["Filter"], Field(fail_fast=True, min_length=1, max_length=MAX_FILTERS)]


Filter = Annotated[ComparisonFilter | CompoundFilter, Field(discriminator="type")]


def _check_extent(value: Any) -> Any:
    level, depth, count = [value], 0, 0
    while level:
        depth += 1
        count += len(level)
        if depth > MAX_FILTER_DEPTH or count > MAX_FILTERS:
            raise invalid(
                f"Invalid '{{param}}': there may be at most {MAX_FILTERS} filters in all, nested at most "
                f"{MAX_FILTER_DEPTH} levels deep."
            )
        nested = [one.get("filters") for one in level if isinstance(one, dict)]
        level = [one for some in nested if isinstance(some, list) for one in some]
    return value


Filters = Annotated[Filter, BeforeValidator(_check_extent)]


class HybridWeights(WireModel):
    """The weights of meaning and words in the ranking.

    Args:
        embedding_weight: the weight of the meaning of a passage.
        text_weight: the weight of the words that a passage shares with the query.
    """

    embedding_weight: Weight
    text_weight: Weight

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.embedding_weight + self.text_weight == 0:
            raise invalid("Invalid '{param}': one of the two weights must be above 0.")
        return self


class RankingOptions(WireModel):
    """How results are ranked; 'none' ranks by meaning alone, and its scores are cosines.

    Args:
        ranker: `auto` ranks by meaning and words, `none` by meaning alone.
        score_threshold: leaves out results with a lower score.
    """

    ranker: Literal["none", "auto", "default-2024-11-15"] | None = None
    score_threshold: Share | None = None
    hybrid_search: HybridWeights | None = None


def _check_attributes(pairs: dict[str, Any]) -> dict[str, Any]:
    check_size(pairs, MAX_METADATA_PAIRS)
    for key, value in pairs.items():
        if not key or len(key) > MAX_METADATA_KEY_CHARS:
            raise refusal(
                "string_above_max_length",
                f"Invalid key in '{{param}}': expected keys with a length from 1 to {MAX_METADATA_KEY_CHARS}.",
            )
        if type(value) not in (str, bool, int, float):
            raise refusal(
                "invalid_type", "Invalid type in '{param}': expected every value to be a string, a number or a boolean."
            )
        if isinstance(value, str):
            check_metadata_value(value)
    return pairs


Attributes = Annotated[dict[str, Any], AfterValidator(_check_attributes)]


class SearchRequest(WireModel):
    """The body of POST /v1/vector_stores/{id}/search.

    Args:
        query: the text to search for, or several.
        filters: searches only files whose attributes fulfil these conditions.
        max_num_results: how many results to return at most.
        rewrite_query: only `false` is supported: queries are searched as they are.
    """

    example: ClassVar[dict[str, Any]] = {"query": "How many days off do I have?"}

    query: (
        Annotated[str, Field(min_length=1, max_length=8192), Tag("?string")]
        | Annotated[
            list[Annotated[str, Field(min_length=1, max_length=8192)]],
            Field(fail_fast=True, min_length=1, max_length=8),
            Tag("?array of strings"),
        ]
    )
    filters: Filters | None = None
    max_num_results: NumResults | None = None
    ranking_options: RankingOptions | None = None
    rewrite_query: bool | None = None

    @property
    def queries(self) -> list[str]:
        """The texts to search for."""
        return [self.query] if isinstance(self.query, str) else self.query
