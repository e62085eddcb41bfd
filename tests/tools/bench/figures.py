"""Turns what was seen of requests into figures, and the figures of several rounds into one with its spread."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from tests.tools.bench.client import Sample

NOISY_SPREAD = 0.3
NOISY_CORES = 0.2
_DRAWS = 2_000


@dataclass(frozen=True, slots=True)
class Figures:
    """One measurement. Times in milliseconds, memory in MB, processor seconds per 1,000 output tokens.

    `ttft` is from sending a request to its first text; without streaming it is to the whole answer, as `total` is.
    `cpu_by_process` is the server's processor time by process title, also per 1,000 tokens.
    `itl` is the time per token after the first: (last text - first text) / (tokens - 1) of one request.
    `gap` is the time between two arrivals of text, which is what a reader sees as a pause: tokens that come
    together have one gap.
    """

    requests: int
    errors: int
    requests_per_s: float
    tokens_per_s: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    itl_p50_ms: float
    itl_p99_ms: float
    gap_p50_ms: float
    gap_p99_ms: float
    total_p50_ms: float
    total_p99_ms: float
    tokens_per_event: float
    prompt_tokens: float
    cpu_s_per_1k_tokens: float
    client_cpu_s_per_1k_tokens: float
    other_cores: float
    machine_speed: float
    pss_mb: float
    peak_rss_mb: float
    cpu_by_process: dict[str, float]


@dataclass(frozen=True, slots=True)
class Costs:
    """What a measurement took from the machine: processor seconds, and the server's memory in MB.

    `other_cores` is how many cores were taken by what is neither the server nor the client. `machine_speed` is how
    fast one core did a fixed piece of work just before, in pieces a second: on shared hosts it changes by itself.
    """

    cpu_s: float
    client_cpu_s: float
    other_cores: float
    machine_speed: float
    pss_mb: float
    peak_rss_mb: float
    cpu_by_process: dict[str, float]


def percentile(values: Sequence[float] | np.ndarray, rank: float) -> float:
    """Return a percentile, NaN where there are no values."""
    return float(np.percentile(values, rank)) if len(values) else float("nan")


def seconds_per_token(sample: Sample) -> float:
    """Return the time per token after the first of an answer that came as a stream of two tokens or more."""
    return (sample.arrivals[-1] - sample.arrivals[0]) / (sample.completion_tokens - 1)


def summarize(samples: Sequence[Sample], costs: Costs) -> Figures:
    """Return the figures of one measurement; answers with an error count as errors and nowhere else.

    Raises:
        ValueError: not one answer was right; the message says what was wrong with the first.
    """
    good = [sample for sample in samples if sample.error is None]
    if not good:
        raise ValueError(f"every request failed; the first: {samples[0].error}")
    wall_s = max(sample.ended for sample in good) - min(sample.started for sample in samples)
    tokens = sum(sample.completion_tokens for sample in good)
    firsts = [(sample.arrivals[0] if sample.arrivals else sample.ended) - sample.started for sample in good]
    totals = [sample.ended - sample.started for sample in good]
    per_token = [seconds_per_token(sample) for sample in good if sample.arrivals and sample.completion_tokens > 1]
    gaps = [np.diff(np.unique(sample.arrivals)) for sample in good if len(sample.arrivals) > 1]
    all_gaps = np.concatenate(gaps) if gaps else np.empty(0)
    events = sum(len(sample.arrivals) for sample in good)
    per_thousand = 1000 / tokens
    return Figures(
        requests=len(samples),
        errors=len(samples) - len(good),
        requests_per_s=len(good) / wall_s,
        tokens_per_s=tokens / wall_s,
        ttft_p50_ms=percentile(firsts, 50) * 1000,
        ttft_p99_ms=percentile(firsts, 99) * 1000,
        itl_p50_ms=percentile(per_token, 50) * 1000,
        itl_p99_ms=percentile(per_token, 99) * 1000,
        gap_p50_ms=percentile(all_gaps, 50) * 1000,
        gap_p99_ms=percentile(all_gaps, 99) * 1000,
        total_p50_ms=percentile(totals, 50) * 1000,
        total_p99_ms=percentile(totals, 99) * 1000,
        tokens_per_event=tokens / events if events else float("nan"),
        prompt_tokens=statistics.fmean(sample.prompt_tokens for sample in good),
        cpu_s_per_1k_tokens=costs.cpu_s * per_thousand,
        client_cpu_s_per_1k_tokens=costs.client_cpu_s * per_thousand,
        other_cores=costs.other_cores,
        machine_speed=costs.machine_speed,
        pss_mb=costs.pss_mb,
        peak_rss_mb=costs.peak_rss_mb,
        cpu_by_process={title: cpu_s * per_thousand for title, cpu_s in costs.cpu_by_process.items()},
    )


def median_of(rounds: Sequence[Figures]) -> Figures:
    """Return the median of every figure over the rounds; requests and errors are added up."""
    names = [field.name for field in fields(Figures) if field.name != "cpu_by_process"]
    values: dict[str, Any] = {name: statistics.median(getattr(one, name) for one in rounds) for name in names}
    for name in ("requests", "errors"):
        values[name] = sum(getattr(one, name) for one in rounds)
    titles = {title for one in rounds for title in one.cpu_by_process}
    shares = {title: statistics.median(one.cpu_by_process.get(title, 0.0) for one in rounds) for title in titles}
    return Figures(**values, cpu_by_process=shares)


def ratio_of(rounds: Sequence[Figures], reference: Sequence[Figures], name: str = "requests_per_s") -> float:
    """Return the median, over the rounds, of a figure as a multiple of another peer's in the same round."""
    pairs = zip(rounds, reference, strict=True)
    return float(statistics.median(getattr(ours, name) / getattr(theirs, name) for ours, theirs in pairs))


def ratio_interval(
    reference: Sequence[Sequence[float]], rounds: Sequence[Sequence[float]], rank: float
) -> tuple[float, float]:
    """Return the 5th and 95th percentile of what a ratio of two percentiles would be in rounds like these.

    Rounds are drawn with replacement, both sides of each together (a bootstrap of blocks), since what is measured at
    one time resembles itself.
    """
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(_DRAWS):
        drawn = rng.integers(len(rounds), size=len(rounds))
        one, other = (np.concatenate([side[at] for at in drawn]) for side in (reference, rounds))
        ratios.append(percentile(other, rank) / percentile(one, rank))
    low, high = np.nanpercentile(ratios, [5, 95])
    return float(low), float(high)


def spread_of(rounds: Sequence[Figures], name: str = "requests_per_s") -> float:
    """Return (largest - smallest) / median of a figure over the rounds."""
    numbers = [getattr(figures, name) for figures in rounds]
    return float((max(numbers) - min(numbers)) / statistics.median(numbers))


def to_json(figures: Figures) -> dict[str, Any]:
    """Return the figures as JSON can carry them: rounded, None for what does not apply."""
    values = asdict(figures)
    shares = {title: round(share, 5) for title, share in values.pop("cpu_by_process").items()}
    rounded = {name: None if value != value else round(value, 4) for name, value in values.items()}
    return rounded | {"cpu_by_process": shares}
