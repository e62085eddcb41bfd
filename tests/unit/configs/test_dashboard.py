"""The dashboard and the alerts: what they ask for is what the service measures."""

import json
import re
import time
from itertools import product
from pathlib import Path

import pytest
import yaml

from deployments.models.contract.engine import Usage
from serve_app.telemetry.series import (
    COPIES_LAG,
    LIMITS_AWAY,
    MOVED,
    PART_UP,
    REGION_DRAINED,
    REGION_SEEN,
    STANDBY_LAG,
    STANDBYS,
    PrometheusMetrics,
)
from serve_app.telemetry.trace import Observer, RequestTrace
from tests.twins.gatekeeper import MemoryRequestLog
from tests.twins.keys import principal_of_key

CONFIGS = Path(__file__).parents[3] / "configs"
DASHBOARD = json.loads((CONFIGS / "grafana" / "manta.json").read_text())
ALERTS = yaml.safe_load((CONFIGS / "prometheus" / "manta.rules.yaml").read_text())["groups"][0]["rules"]
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
OWN_ALERTS = [alert["expr"] for alert in ALERTS if re.search("ray_(manta|gen_ai)", alert["expr"])]
OF_THE_AGENT = {"NodeAddress"}
"""Labels that Ray's metrics agent adds."""
GRID_COLUMNS = 24
"""Of Grafana's."""


@pytest.fixture(scope="module")
def page() -> str:
    """What a process shows that has answered one request."""
    metrics = PrometheusMetrics()
    observer = Observer(MemoryRequestLog(), metrics)
    principal = principal_of_key(account="acct")
    seen = RequestTrace("req_1", "POST", time.time(), 10.0, principal=principal, model="m", status=200, stream=True)
    seen.first_piece_at, seen.usage = 10.2, Usage(7, 3, 2)
    observer.begin()
    observer.end(seen, route="/v1/responses", ended=11.0)
    metrics.add(PART_UP, ("database",), 1)
    metrics.add(MOVED, ("m",), 1)
    metrics.add(COPIES_LAG, ("files",), 1)
    metrics.add(REGION_SEEN, ("us",), 1)
    metrics.add(REGION_DRAINED, ("us",), 0)
    metrics.add(LIMITS_AWAY, ("asia",), 0)
    metrics.add(STANDBY_LAG, ("asia",), 0)
    metrics.add(STANDBYS, ("synchronous",), 1)
    return metrics.render().decode()


@pytest.mark.parametrize("query", [*QUERIES, *OWN_ALERTS])
def test_every_series_of_a_query_is_exported_with_its_labels(page, query):
    names = re.findall(r"(?:\$\{source\}|\bray_)(\w+)", query)
    assert names
    for name in names:
        exported = [line for line in page.splitlines() if line.startswith(name + "{")]
        assert exported, name
        labels = set(re.findall(r'(\w+)="', exported[0]))
        asked = {label for group in re.findall(r"(?:by|on) \(([^)]*)\)", query) for label in group.split(", ")}
        asked -= OF_THE_AGENT
        asked |= set(re.findall(r'(\w+)=~?"', query))
        assert asked <= labels
        for kind in re.findall(r'type="(\w+)"', query):
            assert any(f'type="{kind}"' in line for line in exported)


def test_panels_do_not_overlap_and_have_a_title_and_a_unit():
    taken: dict[tuple[int, int], int] = {}
    for number, panel in enumerate(DASHBOARD["panels"]):
        place = panel["gridPos"]
        cells = product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"]))
        for cell in cells:
            assert taken.setdefault(cell, number) == number, panel["title"]
    assert max(x for x, _ in taken) < GRID_COLUMNS
    assert all(panel["title"] and panel["fieldConfig"]["defaults"]["unit"] for panel in DASHBOARD["panels"])


def test_alerts_say_how_bad_it_is_and_what_to_do():
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS)
    for alert in ALERTS:
        assert alert["labels"]["severity"] in ("page", "ticket")
        assert alert["annotations"]["summary"]
        assert alert["annotations"]["action"]
