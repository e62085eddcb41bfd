"""Lists only add to a front's table; a server leaves it when no source has listed it for a while."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from serve_app.front.addresses import Address
from serve_app.front.table import Table, fresh_servers, load_table, save_table

FORGET_S, FRESH_S = 30.0, 60.0
ONE, OTHER = Address("127.0.0.1", 30000), Address("10.0.0.2", 30000)


def filled() -> Table:
    table = Table()
    table.add(ONE, 0.0, is_own=True)
    table.add(OTHER, 0.0, is_own=False)
    return table


def test_replica_is_new_once() -> None:
    table = Table()
    assert table.add(ONE, 0.0, is_own=True)
    assert not table.add(ONE, 1.0, is_own=True)


def test_empty_list_takes_nothing_out() -> None:
    table = filled()
    table.note_seen([], 1.0)
    assert table.forget(FORGET_S, FORGET_S) == []
    assert table.addresses() == {ONE, OTHER}


def test_partial_list_takes_nothing_out_before_its_time() -> None:
    table = filled()
    table.note_seen([ONE], 20.0)
    assert table.forget(FORGET_S, FORGET_S) == []
    assert table.forget(FORGET_S + 1, FORGET_S) == [OTHER]
    assert table.addresses() == {ONE}


def test_list_cannot_add_what_has_proved_nothing() -> None:
    table = Table()
    table.note_seen([ONE], 1.0)
    assert table.addresses() == set()


def test_replica_stays_while_any_source_lists_it() -> None:
    table = filled()
    for now in range(0, 600, 20):
        table.note_seen([ONE], now)
        table.note_seen([OTHER], now)
        assert table.forget(float(now), FORGET_S) == []


def test_what_the_checks_say_is_news_once_and_outlasts_a_proof() -> None:
    table = filled()
    assert not table.note_checks({ONE, OTHER}, set(), 1.0)
    assert table.note_checks({ONE}, {OTHER, Address("10.0.0.3", 1)}, 2.0)
    assert not table.note_checks({ONE}, {OTHER}, 3.0)
    table.add(OTHER, 4.0, is_own=False)  # One that drains proves what it is, and gets no new request.
    assert [server.is_up for server in table.servers()] == [True, False]
    assert table.note_checks({ONE, OTHER}, set(), 5.0)
    assert [server.is_up for server in table.servers()] == [True, True]


def test_failed_check_keeps_no_replica() -> None:
    table = filled()
    table.note_checks({ONE}, {OTHER}, 20.0)
    assert table.forget(FORGET_S + 1, FORGET_S) == [OTHER]


def test_other_program_is_dropped_at_once() -> None:
    table = filled()
    assert table.drop(ONE)
    assert not table.drop(ONE)
    assert table.addresses() == {OTHER}


def test_own_node_comes_first() -> None:
    assert [server.address for server in filled().servers()] == [ONE, OTHER]


@given(st.lists(st.tuples(st.integers(1, 65535), st.booleans(), st.floats(0, 1e9)), unique_by=lambda one: one[0]))
def test_saved_table_is_loaded_as_it_was(tmp_path_factory, rows: list[tuple[int, bool, float]]) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("table") / "table.json"
    table = Table()
    for port, own, at in rows:
        address = Address("::1" if port % 2 else "127.0.0.1", port)
        table.add(address, at, is_own=own)
        table.note_checks((), {address} if port % 3 else (), at)
    save_table(path, table, 7.0)
    loaded, saved_at = load_table(path)
    assert loaded.servers() == table.servers()
    assert saved_at == 7.0


def test_unreadable_table_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    for text in (
        "",
        "{",
        "[]",
        "{}",
        '{"saved_at": 1, "servers": [["nowhere", true, 1]]}',
        '{"saved_at": 1, "servers": 3}',
    ):
        path.write_text(text)
        table, saved_at = load_table(path)
        assert (table.addresses(), saved_at) == (set(), 0.0)
    assert load_table(tmp_path / "nothing")[1] == 0.0


def test_table_is_only_taken_over_unasked_while_it_is_fresh(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    save_table(path, filled(), 1000.0)
    assert fresh_servers(path, 1000.0 + FRESH_S, FRESH_S) == [(ONE, True), (OTHER, False)]
    assert fresh_servers(path, 1001.0 + FRESH_S, FRESH_S) == []
    assert fresh_servers(path, 999.0, FRESH_S) == []  # A clock that was put back says nothing about its age.


def test_new_process_gets_the_servers_that_are_up_or_all_if_none_is(tmp_path: Path) -> None:
    path, table = tmp_path / "table.json", filled()
    table.note_checks({OTHER}, {ONE}, 1.0)
    save_table(path, table, 1.0)
    assert fresh_servers(path, 1.0, FRESH_S) == [(OTHER, False)]
    table.note_checks(set(), {ONE, OTHER}, 2.0)
    save_table(path, table, 2.0)
    assert fresh_servers(path, 2.0, FRESH_S) == [(ONE, True), (OTHER, False)]


def test_table_of_the_version_before_is_read(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text('{"saved_at": 1.0, "servers": [["127.0.0.1:30000", true, 1.0]]}')
    assert fresh_servers(path, 1.0, FRESH_S) == [(ONE, True)]


def test_table_is_written_in_one_step_and_for_this_user_only(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    save_table(path, filled(), 1.0)
    save_table(path, Table(), 2.0)
    assert json.loads(path.read_text()) == {"saved_at": 2.0, "servers": []}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["table.json"]
