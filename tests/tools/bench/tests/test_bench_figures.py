"""Figures are what their names say, and a table has a value for each of its columns."""

from dataclasses import replace

import numpy as np
import pytest

from tests.tools.bench.client import Sample
from tests.tools.bench.figures import Costs, Figures, median_of, ratio_interval, ratio_of, spread_of, summarize
from tests.tools.bench.report import COLUMNS, Cell, process_rows, tables_of, to_markdown

COSTS = Costs(
    cpu_s=0.5,
    client_cpu_s=0.05,
    other_cores=0.1,
    machine_speed=200,
    pss_mb=1000,
    peak_rss_mb=1500,
    cpu_by_process={"engine": 0.4, "api": 0.1},
)


def sample(started: float, arrivals: list[float], ended: float, tokens: int = 5, error: str | None = None) -> Sample:
    return Sample(started, ended, arrivals, 30, tokens, error)


@pytest.fixture
def figures() -> Figures:
    samples = [
        sample(0.0, [0.1, 0.2, 0.2, 0.5], 1.0),
        sample(1.0, [1.3, 1.4, 1.5, 1.6, 1.7], 2.0),
        sample(1.0, [], 1.5, tokens=0, error="status 503"),
    ]
    return summarize(samples, COSTS)


def test_figures_are_those_of_the_right_answers_when_one_is_wrong(figures: Figures) -> None:
    assert (figures.requests, figures.errors) == (3, 1)
    assert figures.requests_per_s == pytest.approx(1.0)
    assert figures.tokens_per_s == pytest.approx(5.0)
    assert figures.ttft_p50_ms == pytest.approx(200)
    assert figures.itl_p50_ms == pytest.approx(100)
    assert figures.gap_p99_ms == pytest.approx(290, rel=0.1)
    assert figures.tokens_per_event == pytest.approx(10 / 9)
    assert figures.cpu_s_per_1k_tokens == pytest.approx(50)


def test_summary_is_refused_when_every_answer_is_wrong() -> None:
    with pytest.raises(ValueError, match="status 503"):
        summarize([sample(0, [], 1, error="status 503")], COSTS)


def test_rounds_are_compared_pair_by_pair_when_the_machine_slows(figures: Figures) -> None:
    reference = [replace(figures, requests_per_s=speed) for speed in (100, 50, 10)]
    ours = [replace(figures, requests_per_s=speed) for speed in (90, 45, 9)]
    assert ratio_of(ours, reference) == pytest.approx(0.9)
    assert spread_of(ours) == pytest.approx(81 / 45)
    assert median_of(ours).requests_per_s == 45
    assert median_of(ours).requests == 9


def test_processes_are_listed_by_what_they_take(figures: Figures) -> None:
    cells = {Cell(mode, "short", 16): {"bare": [figures, figures]} for mode in ("plain", "stream")}
    title, rows = process_rows(cells)
    assert title.endswith("stream, short prompts, 16 clients")
    assert rows == [["bare", "engine", "40.000"], ["bare", "api", "10.000"]]


def test_table_has_a_value_for_each_column(figures: Figures) -> None:
    noisy = replace(figures, other_cores=0.9)
    tables = tables_of({Cell("stream", "short", 16): {"bare": [figures, figures], "manta": [noisy, noisy]}})
    (rows,) = tables.values()
    assert [len(row) for row in rows] == [len(COLUMNS)] * 2
    assert rows[1][COLUMNS.index("others")] == "0.90 (!)"
    assert rows[1][COLUMNS.index("ratio")] == "1.00"
    assert to_markdown(COLUMNS, rows).count("\n") == 3


def test_interval_of_a_ratio_is_narrow_where_rounds_are_many_and_a_slow_minute_meets_both_sides() -> None:
    rng = np.random.default_rng(1)
    speeds = [1.0, 1.0, 3.0, 1.0] * 10
    alone = [list(speed * rng.normal(10, 1, 50)) for speed in speeds]
    beside = [list(1.5 * speed * rng.normal(10, 1, 50)) for speed in speeds]
    low, high = ratio_interval(alone, beside, 50)
    few_low, few_high = ratio_interval(alone[:4], beside[:4], 50)
    assert 1.45 < low < 1.5 < high < 1.56
    assert few_high - few_low > 2 * (high - low)
