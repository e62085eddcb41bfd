"""Steady load for a long time: does the memory of a process grow, or the number of its open files?

python -m tests.tools.drills --steady MINUTES
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from tests.tools.drills.nodes import title_of
from tests.tools.drills.rounds import Stage

EVERY_S = 10.0
SETTLING_SHARE, SETTLING_S = 1 / 6, 600.0
"""What is left out at the beginning: ten minutes, of a shorter run a sixth."""
MAX_MB_PER_HOUR = 1.0


@dataclass(frozen=True)
class Sample:
    """A process at one time: seconds since the run began, resident megabytes, open files."""

    at: float
    resident_mb: float
    open_files: int


@dataclass(frozen=True)
class Trend:
    """How a process has changed after the settling."""

    process: str
    first_mb: float
    last_mb: float
    mb_per_hour: float
    more_files: int

    @property
    def is_growing(self) -> bool:
        """Whether it breaks the promise."""
        return self.mb_per_hour >= MAX_MB_PER_HOUR or self.more_files > 0


async def run_steady(stage: Stage, minutes: float) -> list[Trend]:
    """Put load on the service for so long; return the trend of each process that lived all the time, worst first."""
    await stage.warm_up()
    _, load = await stage.begin("steady")
    samples: dict[str, list[Sample]] = defaultdict(list)
    while load.now < minutes * 60:
        sample_all(stage, samples, load.now)
        await asyncio.sleep(EVERY_S)
    await load.finish()
    settled = min(SETTLING_S, minutes * 60 * SETTLING_SHARE)
    num_all = max(map(len, samples.values()))
    trends = [trend_of(name, found, settled) for name, found in samples.items() if len(found) == num_all]
    return sorted(trends, key=lambda trend: -trend.mb_per_hour)


def sample_all(stage: Stage, samples: dict[str, list[Sample]], now: float) -> None:
    """Add a sample of every process of the service."""
    for node, process in stage.cluster.processes(lambda title: True):
        try:
            name = f"{node.name} {process.pid} {title_of(process)[:60]}"
            samples[name].append(Sample(now, process.memory_info().rss / 2**20, process.num_fds()))
        except psutil.Error:
            continue


def trend_of(name: str, samples: Sequence[Sample], settled_s: float) -> Trend:
    """Return the trend of a process by least squares, of the samples after the settling.

    Open files are counted where they are fewest in each half: clients' connections come and go, and what is never
    closed raises that count too.
    """
    kept = [sample for sample in samples if sample.at >= settled_s]
    half = len(kept) // 2
    files = [min(sample.open_files for sample in part) for part in (kept[:half], kept[half:])]
    slope = slope_of([sample.at for sample in kept], [sample.resident_mb for sample in kept])
    return Trend(name, kept[0].resident_mb, kept[-1].resident_mb, slope * 3600, files[1] - files[0])


def slope_of(times: Sequence[float], values: Sequence[float]) -> float:
    """Return by how much the values rise in a second."""
    middle, height = sum(times) / len(times), sum(values) / len(values)
    spread = sum((at - middle) ** 2 for at in times)
    return sum((at - middle) * (value - height) for at, value in zip(times, values, strict=True)) / spread


def render_trends(trends: Sequence[Trend], num_listed: int = 25) -> str:
    """Return the processes that grow most as a Markdown table."""
    lines = ["| process | MB at first, at last | MB/h | more open files |", "|---|---|---|---|"]
    for trend in trends[:num_listed]:
        sizes = f"{trend.first_mb:.0f}, {trend.last_mb:.0f}"
        lines.append(f"| {trend.process} | {sizes} | {trend.mb_per_hour:.1f} | {trend.more_files} |")
    return "\n".join(lines)
