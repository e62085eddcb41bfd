"""The queries of usage, costs, requests, latencies and the audit log, with OpenAI's parameters where it has them."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from deployments.state.database.tables.usage import Width
from serve_app.schemas.base import WireModel

_Ids = Annotated[list[Annotated[str, Field(max_length=256)]], Field(max_length=100)]
_Time = Annotated[int, Field(ge=0, le=10**11)]
_Cursor = Annotated[str, Field(max_length=256)]
_Group = Literal["project_id", "user_id", "api_key_id", "model", "batch", "service_tier", "operation", "api_source"]

DEFAULT_BUCKETS: dict[Width, int] = {"1m": 60, "1h": 24, "1d": 7}
MAX_BUCKETS: dict[Width, int] = {"1m": 1_440, "1h": 168, "1d": 366}
"""OpenAI's bounds, but a year of days instead of a month."""
MAX_LATENCY_BUCKETS: dict[Width, int] = {**MAX_BUCKETS, "1d": 31}
"""A day of latencies takes hundreds of counts for each model."""


class PeriodQuery(WireModel):
    """Which periods are shown, from `start_time` to `end_time` (Unix seconds), by default to now.

    Args:
        start_time: the start of the first period, in Unix seconds.
        end_time: the end of the last period, in Unix seconds. Left out, now.
        bucket_width: the length of each period: a minute, an hour or a day.
        limit: how many periods to return on a page.
        page: the cursor of a page, from `next_page` of the previous one.
        project_ids: only these accounts. Needs an admin key for others than one's own.
    """

    example: ClassVar[dict[str, Any]] = {"start_time": 1_767_225_600}

    start_time: _Time
    end_time: _Time | None = None
    bucket_width: Width = "1d"
    limit: Annotated[int, Field(ge=1)] | None = None
    page: _Cursor | None = None
    project_ids: _Ids | None = None


class UsageQuery(PeriodQuery):
    """The query of usage. A project is an account; requests belong to no user.

    Args:
        group_by: adds up each combination of these separately.
        user_ids: accepted for compatibility; requests belong to no user.
        api_key_ids: only requests of these keys.
        models: only requests to these models.
        batch: only batch requests if true, only others if false.
    """

    group_by: Annotated[list[_Group], Field(max_length=8)] = []
    user_ids: _Ids | None = None
    api_key_ids: _Ids | None = None
    models: _Ids | None = None
    batch: bool | None = None


class CostQuery(PeriodQuery):
    """The query of costs.

    Args:
        group_by: adds up each combination of these separately.
        api_key_ids: only requests of these keys.
        line_items: only these line items.
    """

    bucket_width: Literal["1d"] = "1d"
    group_by: Annotated[list[Literal["project_id", "user_id", "api_key_id", "line_item", "api_source"]], Field()] = []
    api_key_ids: _Ids | None = None
    line_items: _Ids | None = None


class LatencyQuery(PeriodQuery):
    """The query of latencies.

    Args:
        models: only requests to these models.
    """

    bucket_width: Width = "1h"
    models: _Ids | None = None


class RequestLogQuery(WireModel):
    """The query of the request log, newest first. `format` exports all matching requests.

    Args:
        start_time: only requests from this time on, in Unix seconds.
        end_time: only requests before this time, in Unix seconds.
        project_id: only requests of this account.
        api_key_id: only requests of this key.
        model: only requests to this model.
        operation: only requests of this operation, such as `chat`.
        status: only requests with this HTTP status.
        code: only requests with this error code.
        is_error: only failed requests if true, only others if false.
        batch_id: only the requests of this batch.
        batch: only batch requests if true, only others if false.
        request_id: only the request with this id.
        limit: how many requests to return on a page.
        after: the cursor of a page, from `next` of the previous one.
        format: `csv` and `jsonl` export all matching requests.
    """

    start_time: _Time | None = None
    end_time: _Time | None = None
    project_id: Annotated[str, Field(max_length=64)] | None = None
    api_key_id: Annotated[str, Field(max_length=64)] | None = None
    model: Annotated[str, Field(max_length=256)] | None = None
    operation: Annotated[str, Field(max_length=32)] | None = None
    status: Annotated[int, Field(ge=100, le=599)] | None = None
    code: Annotated[str, Field(max_length=64)] | None = None
    is_error: bool | None = None
    batch_id: Annotated[str, Field(max_length=64)] | None = None
    batch: bool | None = None
    request_id: Annotated[str, Field(max_length=128)] | None = None
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100
    after: _Cursor | None = None
    format: Literal["json", "jsonl", "csv"] = "json"


class LimitQuery(WireModel):
    """The query of limits.

    Args:
        project_id: only the keys of this account.
    """

    project_id: Annotated[str, Field(max_length=64)] | None = None


class AuditQuery(WireModel):
    """The query of the audit log, newest first.

    Args:
        effective_at_gt: only changes after this time, in Unix seconds.
        effective_at_gte: only changes at or after this time, in Unix seconds.
        effective_at_lt: only changes before this time, in Unix seconds.
        effective_at_lte: only changes at or before this time, in Unix seconds.
        event_types: only events of these types.
        actor_ids: only changes by these keys or sessions.
        resource_ids: only changes of these objects.
        project_ids: only changes in these accounts.
        limit: how many entries to return on a page.
        after: the id of the last entry of the previous page.
        before: the id of the first entry of the following page.
    """

    effective_at_gt: Annotated[_Time | None, Field(alias="effective_at[gt]")] = None
    effective_at_gte: Annotated[_Time | None, Field(alias="effective_at[gte]")] = None
    effective_at_lt: Annotated[_Time | None, Field(alias="effective_at[lt]")] = None
    effective_at_lte: Annotated[_Time | None, Field(alias="effective_at[lte]")] = None
    event_types: _Ids | None = None
    actor_ids: _Ids | None = None
    resource_ids: _Ids | None = None
    project_ids: _Ids | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    after: _Cursor | None = None
    before: _Cursor | None = None
