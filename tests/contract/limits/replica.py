"""The request records of an ingress replica that dies; run as a module, it writes them and waits to be killed."""

import signal
import sys
from pathlib import Path

from deployments.limits.client.record_journal import RecordJournal
from deployments.limits.client.request_log import ShippedRequestLog
from tests.contract.state.records import record

NUM_RECORDS = 50


def write_records(directory: Path, at: float) -> RecordJournal:
    """Write what a replica answered, and what it was about to answer; return where they are."""
    journal = RecordJournal(directory)
    log = ShippedRequestLog(None, journal=journal, background=False)  # type: ignore[arg-type]
    for number in range(NUM_RECORDS - 10):
        log.record(record(number, at=at))
    for number in range(NUM_RECORDS - 10, NUM_RECORDS):
        log.write_ahead(record(number, at=at))
    return journal


if __name__ == "__main__":
    kept = write_records(Path(sys.argv[1]), float(sys.argv[2]))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    signal.pause()  # Until it is killed.
