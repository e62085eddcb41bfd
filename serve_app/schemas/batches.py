"""The bodies of the batches API."""

from typing import Annotated, Any, Literal

from pydantic import Field

from deployments.state.batches.rows import Batch
from serve_app.schemas.base import Metadata, WireModel
from serve_app.schemas.files import ExpiresAfter

WINDOW_S = 86_400.0
_TIMES = (
    "in_progress_at",
    "expires_at",
    "finalizing_at",
    "completed_at",
    "failed_at",
    "expired_at",
    "cancelling_at",
    "cancelled_at",
)


class BatchCreateRequest(WireModel):
    """The body of POST /v1/batches."""

    input_file_id: Annotated[str, Field(min_length=1, max_length=64)]
    endpoint: Annotated[str, Field(max_length=64)]
    completion_window: Literal["24h"]
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None


class BatchQuery(WireModel):
    """The query of a list of batches."""

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    after: Annotated[str, Field(max_length=128)] | None = None


class AllBatchesQuery(BatchQuery):
    """The query of a list of the batches of all accounts."""

    project_id: Annotated[str, Field(max_length=64)] | None = None


def batch_to_wire(batch: Batch) -> dict[str, Any]:
    """Return a batch for a client, always with every key."""
    state = batch.state
    times = {name: getattr(state, name) for name in _TIMES}
    return {
        "id": batch.batch_id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": None,
        "errors": None if batch.errors is None else {"object": "list", "data": batch.errors},
        "input_file_id": batch.input_file_id,
        "completion_window": batch.completion_window,
        "status": state.status,
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        "created_at": int(state.created_at),
        **{name: None if at is None else int(at) for name, at in times.items()},
        "paused_at": int(state.paused_at or 0) if state.is_paused else None,
        "request_counts": {"total": state.num_total, "completed": state.num_completed, "failed": state.num_failed},
        "usage": {
            "input_tokens": state.tokens.prompt,
            "input_tokens_details": {"cached_tokens": state.tokens.cached},
            "output_tokens": state.tokens.completion,
            "output_tokens_details": {"reasoning_tokens": state.tokens.reasoning},
            "total_tokens": state.tokens.prompt + state.tokens.completion,
        },
        "metadata": batch.metadata,
    }
