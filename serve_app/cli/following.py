"""Follows a batch until it has ended, with a progress bar on standard error."""

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

ENDED = ("completed", "failed", "expired", "cancelled")
_FIRST_POLL_S, _MAX_POLL_S = 0.25, 2.0
_RATE_OVER_S = 10.0


def follow(client: Any, batch: Any) -> Any:
    """Return the batch once it has ended; `client` is OpenAI's."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    wait_s = _FIRST_POLL_S
    with Progress(*columns, console=Console(stderr=True), speed_estimate_period=_RATE_OVER_S) as progress:
        task = progress.add_task(batch.status, total=None, rate="")
        while batch.status not in ENDED:
            time.sleep(wait_s)
            wait_s = min(_MAX_POLL_S, wait_s * 1.5)
            if (polled := _poll(client, batch.id)) is None:
                progress.update(task, description="waiting for the service")
            else:
                batch = polled
                _show_progress(progress, task, batch)
    return batch


def _poll(client: Any, batch_id: str) -> Any:
    """Return the batch, None while the service is away: the batch survives that."""
    from openai import APIConnectionError, InternalServerError, RateLimitError

    try:
        return client.batches.retrieve(batch_id)
    except (APIConnectionError, InternalServerError, RateLimitError):
        return None


def _show_progress(progress: Progress, task: TaskID, batch: Any) -> None:
    counts = batch.request_counts
    speed = progress.tasks[0].speed
    progress.update(
        task,
        description=batch.status,
        total=counts.total or None,
        completed=counts.completed + counts.failed,
        rate="" if not speed else f"{speed:,.1f}/s",
    )
