from typing import Any

import pytest

from deployments.limits.orphaned_records import nodes_without


def node(name: str, host: str, *, is_alive: bool = True, cpus: float = 4.0) -> dict[str, Any]:
    resources = {"CPU": cpus} if cpus else {"memory": 1.0}
    return {"NodeID": name, "NodeManagerAddress": host, "Alive": is_alive, "Resources": resources}


NODES = [
    node("one", "10.0.0.1"),
    node("two", "10.0.0.2"),
    node("gone", "10.0.0.3", is_alive=False),
    node("sandboxes", "10.0.0.4", cpus=0),
    node("v6", "fd00::5"),
]


@pytest.mark.parametrize(
    ("living", "without"),
    [
        ([], {"one", "two", "v6"}),
        (["10.0.0.1:30000", "10.0.0.1:30001"], {"two", "v6"}),
        (["10.0.0.2:30000", "[fd00::5]:30000", "10.0.0.9:30000"], {"one"}),
    ],
)
def test_nodes_that_could_have_a_replica_and_have_none(living: list[str], without: set[str]) -> None:
    assert nodes_without(living, NODES) == without
