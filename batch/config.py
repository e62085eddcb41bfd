"""What the operator says about batches."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from deployments.config import Section


class BatchConfig(Section):
    """How batches run. Times in seconds.

    The first `small_batch_lines` lines of a batch go to a worker that is always there and start at once; the rest of
    larger ones get a Ray Data job with `num_workers` workers of their own, up to `max_jobs` jobs at a time. A job takes
    seconds of several processors to start; one process runs 500 to 1,000 lines a second. Jobs share
    `max_lines_in_flight`, the lines that may be with the models at once; there are fewer while replicas refuse them.
    Keep it below the models' `max_concurrent_requests`, so that interactive requests always find a place. Where the
    tokens of a step bound how many an engine runs, keep it some steps' worth of prompts above that, so that lines wait
    to follow those that end. `priority` is vLLM's: higher runs later, interactive requests have 0.
    """

    retired: ClassVar[Mapping[str, str]] = {"sweep_interval_s": "set state.sweep_interval_s."}

    max_unfinished_per_account: Annotated[int, Field(ge=1)] = 10
    max_requests: Annotated[int, Field(ge=1, le=1_000_000)] = 50_000
    max_line_bytes: Annotated[int, Field(ge=1024)] = 64 * 1024 * 1024
    priority: Annotated[int, Field(ge=1, le=1000)] = 10
    max_lines_in_flight: Annotated[int, Field(ge=1, le=65_536)] = 192
    num_workers: Annotated[int, Field(ge=1, le=256)] = 1
    num_cpus: Annotated[float, Field(ge=0)] = 0.1
    small_batch_lines: Annotated[int, Field(ge=0)] = 10_000
    max_jobs: Annotated[int, Field(ge=1, le=100)] = 4
    slice_lines: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    max_running: Annotated[int, Field(ge=1, le=100)] = 10
    lease_s: Annotated[float, Field(ge=2, le=600)] = 15.0
    poll_interval_s: Annotated[float, Field(gt=0, le=10)] = 0.5
    commit_interval_s: Annotated[float, Field(gt=0, le=1)] = 0.5
