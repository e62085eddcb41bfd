from pathlib import Path

import pytest

from deployments.limits.client import record_journal as module
from deployments.limits.client.record_journal import RecordJournal, open_journal, take_orphaned_files
from deployments.state.usage.record import RequestRecord
from tests.contract.state.records import record


def left(directory: Path) -> list[RequestRecord]:
    """What dead replicas have left, each request once, as the database counts them."""
    files = list(take_orphaned_files(directory))
    for file in files:
        file.close()
    by_number = {int(one.request_id[4:]): one for file in files for one in file.records}
    return [by_number[number] for number in sorted(by_number)]


def files_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def die(journal: RecordJournal) -> None:
    journal.close(is_handed_over=False)


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SEGMENT_BYTES", 600)  # Five records.


def test_what_was_written_is_left_when_the_writer_dies_and_not_before(tmp_path: Path) -> None:
    journal = RecordJournal(tmp_path)
    journal.write(0, record(0))
    journal.write_ahead(record(1))
    assert left(tmp_path) == []
    die(journal)
    assert left(tmp_path) == [record(0), record(1)]
    assert left(tmp_path) == [record(0), record(1)]  # Nobody has handed them over yet.


def test_each_record_is_written_once(tmp_path: Path) -> None:
    journal = RecordJournal(tmp_path)
    journal.write_ahead(record(0))
    journal.write(0, record(0, total_s=0.6))
    (path,) = tmp_path.iterdir()
    assert len(path.read_bytes().splitlines()) == 1
    die(journal)
    assert left(tmp_path) == [record(0)]


@pytest.mark.usefixtures("small_files")
def test_files_go_once_their_records_are_handed_over(tmp_path: Path) -> None:
    journal = RecordJournal(tmp_path)
    for number in range(20):
        journal.write(number, record(number))
    num_files = len(files_in(tmp_path))
    assert num_files > 3
    journal.forget_below(10)
    assert 1 < len(files_in(tmp_path)) < num_files
    journal.forget_below(20)
    assert len(files_in(tmp_path)) == 1
    journal.write(20, record(20))
    die(journal)
    assert record(20) in left(tmp_path)


@pytest.mark.usefixtures("small_files")
def test_record_that_waits_for_its_number_outlives_the_file_that_it_was_in(tmp_path: Path) -> None:
    journal = RecordJournal(tmp_path)
    journal.write_ahead(record(100))  # Its client reads slowly.
    for number in range(20):
        journal.write(number, record(number))
    journal.forget_below(20)
    assert len(files_in(tmp_path)) == 1
    journal.write(20, record(100))
    for number in range(21, 41):
        journal.write(number, record(number))
    journal.forget_below(20)
    die(journal)
    assert record(100) in left(tmp_path)


def test_nothing_is_left_of_a_replica_that_has_handed_everything_over(tmp_path: Path) -> None:
    journal = RecordJournal(tmp_path)
    journal.write(0, record(0))
    journal.close(is_handed_over=True)
    assert files_in(tmp_path) == []


def test_file_belongs_to_one_at_a_time(tmp_path: Path) -> None:
    journal = RecordJournal(tmp_path)
    journal.write(0, record(0))
    die(journal)
    (file,) = take_orphaned_files(tmp_path)
    assert left(tmp_path) == []
    file.delete()
    file.close()
    assert left(tmp_path) == []


def test_lines_that_a_full_disk_has_cut_off_are_left_out(tmp_path: Path) -> None:
    journal = RecordJournal(tmp_path)
    journal.write(0, record(0))
    (path,) = tmp_path.iterdir()
    with path.open("ab") as file:
        file.write(b'["req_1", 170004\n["req_2"]\n')
    journal.write(3, record(3))
    die(journal)
    assert left(tmp_path) == [record(0), record(3)]


def test_writing_never_raises(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = RecordJournal(tmp_path)
    journal._segments[0].descriptor = -1  # As after an error of the disk.
    journal.write_ahead(record(0))
    journal.write(0, record(0))
    assert "cannot be written" in caplog.text


def test_replica_without_a_directory_has_no_journal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    assert open_journal(tmp_path / "file" / "records") is None
    assert "is not counted" in caplog.text
    assert left(tmp_path / "none") == []
