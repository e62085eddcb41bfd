"""What the operator says about batches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from deployments.config import Section

MAX_JOBS = 4
"""How many Ray Data jobs run at a time."""
MAX_RUNNING = 10
"""How many batches a coordinator works on at a time."""
SLICE_LINES = 1_000
"""How many lines a worker of a job takes at a time."""


@dataclass(frozen=True)
class Intervals:
    """Seconds between two looks for new batches, and between two commits of a worker."""

    poll_s: float = 0.5
    commit_s: float = 0.5


INTERVALS = Intervals()


class BatchConfig(Section):
    """How batches run. Times in seconds.

    The first `small_batch_lines` lines of a batch go to a worker that is always there and start at once; the rest of
    larger ones get a Ray Data job with `num_workers` workers of their own, up to four jobs at a time. A job takes
    seconds of several processors to start; one process runs 500 to 1,000 lines a second. Jobs share
    `max_lines_in_flight`, the lines that may be with the models at once; there are fewer while replicas refuse them.
    Keep it below the models' `max_concurrent_requests`, so that interactive requests always find a place. Where the
    tokens of a step bound how many an engine runs, keep it some steps' worth of prompts above that, so that lines wait
    to follow those that end. `priority` is vLLM's: higher runs later, interactive requests have 0.
    """

    retired: ClassVar[Mapping[str, str]] = {
        "sweep_interval_s": "set state.sweep_interval_s.",
        "max_jobs": f"it is always {MAX_JOBS} now; remove it.",
        "max_running": f"it is always {MAX_RUNNING} now; remove it.",
        "slice_lines": f"it is always {SLICE_LINES} now; remove it.",
        "poll_interval_s": "it is always 0.5 now; remove it.",
        "commit_interval_s": "it is always 0.5 now; remove it.",
    }

    max_unfinished_per_account: Annotated[int, Field(ge=1)] = 10
    max_requests: Annotated[int, Field(ge=1, le=1_000_000)] = 50_000
    max_line_bytes: Annotated[int, Field(ge=1024)] = 64 * 1024 * 1024
    priority: Annotated[int, Field(ge=1, le=1000)] = 10
    max_lines_in_flight: Annotated[int, Field(ge=1, le=65_536)] = 192
    num_workers: Annotated[int, Field(ge=1, le=256)] = 1
    num_cpus: Annotated[float, Field(ge=0)] = 0.1
    small_batch_lines: Annotated[int, Field(ge=0)] = 10_000
    lease_s: Annotated[float, Field(ge=2, le=600)] = 15.0
