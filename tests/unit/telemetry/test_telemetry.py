import io
import re
from types import SimpleNamespace

import orjson
import pytest

from deployments.models.contract.engine import Usage
from serve_app.telemetry import ray_metrics
from serve_app.telemetry.log import error_logger, log_bug, log_to, request_logger
from serve_app.telemetry.series import MOVED, PART_SERIES, PART_UP, SERIES, PrometheusMetrics, mean_inter_token_s
from serve_app.telemetry.trace import Observer, RequestTrace, record_of
from tests.twins.gatekeeper import MemoryRequestLog
from tests.twins.keys import principal_of_key

PRINCIPAL = principal_of_key(account="acct")


def trace(**more):
    values = {"request_id": "req_1", "method": "POST", "at": 5.0, "started": 10.0, "status": 200, **more}
    return RequestTrace(**values)


def test_record_of_an_anonymous_request_names_nobody():
    record = record_of(trace(status=401, code="invalid_api_key"), route="/x", ended=10.5)
    assert (record.key_id, record.account, record.tier, record.model) == (None, None, None, None)
    assert (record.status, record.code, record.total_s, record.ttft_s) == (401, "invalid_api_key", 0.5, None)


@pytest.mark.parametrize(
    ("stream", "first", "tokens", "mean_s"),
    [(True, 10.5, 11, 0.1), (False, 10.5, 11, None), (True, None, 11, None), (True, 10.5, 1, None)],
)
def test_inter_token_time_is_the_mean_over_a_stream(stream, first, tokens, mean_s):
    seen = trace(stream=stream, first_piece_at=first, usage=Usage(1, tokens))
    record = record_of(seen, route="/x", ended=11.5)
    assert mean_inter_token_s(record) == (None if mean_s is None else pytest.approx(mean_s))


def test_metrics_count_by_model_and_tier():
    metrics, log = PrometheusMetrics(), MemoryRequestLog()
    observer = Observer(log, metrics)
    for _ in range(2):
        observer.begin()
        seen = trace(principal=PRINCIPAL, model="m", stream=True, first_piece_at=10.2, usage=Usage(7, 3, 2))
        observer.end(seen, route="/x", ended=11.0)
    page = metrics.render().decode()
    assert 'manta_tokens_total{model="m",tier="free",type="prompt"} 14.0' in page
    assert 'manta_tokens_total{model="m",tier="free",type="cached"} 4.0' in page
    assert 'gen_ai_server_time_to_first_token_seconds_count{model="m"} 2.0' in page
    assert "manta_requests_in_flight 0.0" in page
    assert len(log.records) == 2


@pytest.mark.parametrize("series", [*SERIES, *PART_SERIES], ids=lambda series: series.name)
def test_each_series_can_be_added_to_with_its_labels_or_without(series):
    metrics = PrometheusMetrics()
    for _ in range(2):
        metrics.add(series, tuple("x" for _ in series.labels), 3.0)
    labels = ",".join(f'{name}="x"' for name in sorted(series.labels))
    suffix = "_sum" if series.buckets else "" if series.is_gauge else "_total"
    shown = f"{series.name}{suffix}{f'{{{labels}}}' if labels else ''}"
    assert f"{shown} {3.0 if series.is_gauge else 6.0}" in metrics.render().decode().splitlines()


def test_log_line_is_left_out_when_nobody_listens(caplog):
    observer = Observer(MemoryRequestLog(), PrometheusMetrics())
    caplog.set_level("WARNING", "manta.requests")
    observer.end(trace(), route="/x", ended=11.0)
    assert not caplog.records
    caplog.set_level("INFO", "manta.requests")
    observer.end(trace(), route="/x", ended=11.0)
    assert orjson.loads(caplog.records[0].getMessage())["route"] == "/x"


def test_log_lines_are_json_objects_and_nothing_else():
    stream = io.StringIO()
    handler = log_to(stream)
    try:
        Observer(MemoryRequestLog(), PrometheusMetrics()).end(trace(), route="/x", ended=11.0)
        log_bug("req_1", RuntimeError("private"))
    finally:
        for logger in (request_logger, error_logger):
            logger.removeHandler(handler)
            logger.setLevel("NOTSET")
    lines = [orjson.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["request_id"] for line in lines] == ["req_1", "req_1"]
    assert lines[0]["route"] == "/x"


def test_bug_is_logged_with_its_causes_and_without_words(caplog):
    try:
        try:
            raise KeyError("private")
        except KeyError as error:
            raise RuntimeError("private") from error
    except RuntimeError as error:
        log_bug("req_1", error)
    line = orjson.loads(caplog.records[0].getMessage())
    assert line["request_id"] == "req_1"
    assert [entry.split(" at ")[0] for entry in line["chain"]] == ["builtins.RuntimeError", "builtins.KeyError"]
    assert "test_telemetry.py" in line["chain"][0]
    assert "private" not in caplog.text


def test_the_cluster_is_told_the_same_series_as_this_process(monkeypatch):
    told = {}

    class Recorder:
        def __init__(self, name, description, tag_keys, boundaries=()):
            self.name, self.tag_keys = name, set(tag_keys)

        def inc(self, amount, tags):
            assert set(tags) == self.tag_keys
            told[self.name, *sorted(tags.items())] = amount

        observe = set = inc

    kinds = SimpleNamespace(Counter=Recorder, Histogram=Recorder, Gauge=Recorder)
    monkeypatch.setattr(ray_metrics, "metrics", kinds)
    local = PrometheusMetrics()
    seen = trace(principal=PRINCIPAL, model="m", stream=True, first_piece_at=10.2, usage=Usage(7, 3, 2))
    metrics = ray_metrics.ClusterMetrics(local)
    metrics.begin()
    metrics.end(record_of(seen, route="/x", ended=11.0))
    metrics.add(PART_UP, ("database",), 1)
    metrics.add(MOVED, ("m",), 2)
    shown = {
        (name.removesuffix("_total").removesuffix("_sum"), *sorted(re.findall(r'(\w+)="([^"]*)"', labels))): float(
            value
        )
        for name, labels, value in re.findall(
            r"^(\w+(?:_total|_sum|_up))\{(.*)\} (\S+)$", local.render().decode(), re.MULTILINE
        )
    }
    assert told == pytest.approx(shown)
    assert len(told) == 9
