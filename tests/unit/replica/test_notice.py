"""The word from a replica to its engine, across processes."""

import multiprocessing
import os
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory

import pytest

from deployments.replica.scheduling.preparing import Notice


def read_when_asked(pipe: Connection) -> None:
    notice = Notice.find()
    while pipe.recv() is not None:
        pipe.send(notice.until)


def test_a_process_that_was_started_with_it_reads_what_is_written_later() -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with Notice.offer() as notice:
        name = os.environ["MANTA_NOTICE"]
        process = context.Process(target=read_when_asked, args=(theirs,))
        process.start()
        ours.send("now")
        assert ours.recv() == 0.0
    with pytest.raises(FileNotFoundError):  # Whatever becomes of the two, nothing stays behind.
        SharedMemory(name)
    for moment in (12.5, 13.75):
        notice.until = moment
        ours.send("now")
        assert ours.recv() == moment
    ours.send(None)
    process.join(30)
    assert process.exitcode == 0


def test_where_nobody_offers_one_none_is_on_its_way() -> None:
    assert "MANTA_NOTICE" not in os.environ
    assert Notice.find().until == 0.0
