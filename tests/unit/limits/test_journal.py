from pathlib import Path

from deployments.limits.journal import FileJournal, read_journal
from deployments.limits.ledger import Change, Ledger
from deployments.limits.messages import Ask, Posting
from deployments.limits.window import Shortage
from deployments.state.database.clock import SteadyClock

NAME = "0123456789abcdef"


def change(number: int) -> Change:
    return Change(number, Posting("key_a", "tokens" if number % 2 else "requests", 1_700_000_000.1 + number, number))


def test_what_was_noted_is_read_again_after_a_flush(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path, NAME, 0)
    for number in range(1, 6):
        journal.note(change(number))
    journal.note_serial("client", 7)
    assert read_journal(tmp_path, NAME, 0).changes == []
    journal.close()
    recorded = read_journal(tmp_path, NAME, 0)
    assert recorded.changes == [change(number) for number in range(1, 6)]
    assert recorded.serials == {"client": 7}
    assert recorded.last_segment == 0


def test_segments_follow_each_other_and_carry_the_serials_on(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path, NAME, 3)
    journal.note(change(1))
    assert journal.rotate({"client": 9}) == 4
    journal.note(change(2))
    journal.close()
    assert read_journal(tmp_path, NAME, 3).changes == [change(1), change(2)]
    later = read_journal(tmp_path, NAME, 4)
    assert (later.changes, later.serials, later.last_segment) == ([change(2)], {"client": 9}, 4)


def test_a_missing_journal_differs_from_an_empty_one(tmp_path: Path) -> None:
    FileJournal(tmp_path, NAME, 2).close()
    assert read_journal(tmp_path, NAME, 2).last_segment == 2
    assert read_journal(tmp_path, NAME, 1).last_segment is None
    assert read_journal(tmp_path / "none", NAME, 0).last_segment is None


def test_only_old_segments_are_dropped(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    FileJournal(tmp_path, "f" * 16, 9).close()
    for segment in range(4):
        FileJournal(tmp_path, NAME, segment).close()
    journal = FileJournal(tmp_path, NAME, 4)
    journal.drop_before(3)
    journal.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{NAME}.3", f"{NAME}.4", "notes.txt"]


def test_a_ledger_made_from_its_journal_is_the_same(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path, NAME, 0)
    ledger = Ledger(journal)
    ledger.set_limits("key", 5, 1_000)
    lease = ledger.take(Ask("key", 2, 300), 100.0, 0.4, 1)
    assert not isinstance(lease, Shortage)
    ledger.refund(Posting("key", "tokens", lease.at, 120), 101.0)
    ledger.refund(Posting("unknown", "tokens", lease.at, 120), 101.0)
    ledger.charge(Posting("other", "requests", 102.0, 4))
    journal.close()
    again = Ledger()
    for each in read_journal(tmp_path, NAME, 0).changes:
        again.replay(each, 103.0)
    assert again.number == ledger.number == 4
    for key_id in ("key", "other"):
        assert again.charges(key_id, 103.0) == ledger.charges(key_id, 103.0)
    assert again.charges("unknown", 103.0).requests == []
    assert again.usage("unknown", 103.0) is None


def test_the_clock_goes_on_from_where_it_was_when_the_wall_clock_is_behind() -> None:
    monotonic = iter([5.0, 6.0, 8.0])
    clock = SteadyClock(not_before=1_000.0, wall=lambda: 900.0, monotonic=lambda: next(monotonic))
    assert [clock(), clock()] == [1_001.0, 1_003.0]
