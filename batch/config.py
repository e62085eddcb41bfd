"""The settings of batches, and constants beside them. Coordinator and workers read both."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from deployments.config import Section

MAX_JOBS = 4
"""Ray Data jobs that run at a time. The other batches share the permanent worker."""
MAX_RUNNING = 10
"""Batches that a coordinator runs at a time."""
MAX_RUNNING_IN_ALL = 50
"""The bound with one more batch for each account that has none running."""
SLICE_LINES = 1_000
"""Lines that a worker of a job takes at a time."""


@dataclass(frozen=True)
class Intervals:
    """Seconds between two polls for new batches, and between two commits of a worker."""

    poll_s: float = 0.5
    commit_s: float = 0.5


INTERVALS = Intervals()


class BatchConfig(Section):
    """How batches run.

    The first `small_batch_lines` lines of a batch start at once on a worker that always runs. The rest of a larger
    batch get a Ray Data job with workers of its own, if fewer than four jobs run. Starting a job takes several
    processors some seconds. Ten batches run at a time, and one of each account that has none among them.

    Args:
        max_unfinished_per_account: how many batches of one account may be unfinished at once; more are refused with
            429. Raise it for accounts that submit many small batches.
        max_requests: how many lines one batch may have.
        max_line_bytes: the largest line of an input file. A worker holds every line in flight in memory; lower it
            where that is too much.
        priority: vLLM's priority of lines; higher runs later, interactive requests have 0.
        max_lines_in_flight: how many lines the worker that always runs may send to the models at once, and how many
            all jobs together may; fewer while replicas refuse lines. Keep it below the models'
            `max_concurrent_requests`, so that interactive requests find a place. Where the tokens of a step bound how
            many requests an engine runs, keep it some steps' worth of prompts above that, so that the next line follows
            at once.
        num_workers: worker processes of each Ray Data job. One runs 500 to 1,000 lines a second; raise it where the
            models are faster.
        num_cpus: how many CPUs each worker process reserves.
        small_batch_lines: how many lines of a batch run on the worker that always runs; 0 gives every batch a job.
        lease_s: after how many seconds another coordinator takes over the batches of one that died. Raise it where
            the database is often away for longer.
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
