"""The memory of processes of the service."""

from pathlib import Path

import pytest

from tests.service import Service

pytestmark = [pytest.mark.serve, pytest.mark.timeout(300)]

_HEAP_BYTES = 64 * 2**20
"""The address space that glibc keeps for each heap of a thread's own; a heap begins at a multiple of it."""


def num_heaps_of_threads(pid: int) -> int:
    """Return how many heaps a process has beside the main one: memory in use, and then memory kept for later."""
    lines = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    begins = [int(edges.partition("-")[0], 16) for edges, rights, *_ in lines if rights == "rw-p"]
    ends = {int(edges.partition("-")[2], 16) for edges, rights, *_ in lines if rights == "---p"}
    return sum(begin % _HEAP_BYTES == 0 and begin + _HEAP_BYTES in ends for begin in begins)


def test_an_ingress_replica_has_one_heap(service: Service) -> None:
    replicas = service.running("ingress")
    assert replicas
    assert [num_heaps_of_threads(replica.pid) for replica in replicas] == [0] * len(replicas)
