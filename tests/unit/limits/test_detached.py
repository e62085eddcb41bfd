"""Where the actors run that a cluster has one of."""

from types import SimpleNamespace
from typing import Any

from deployments.detached import must_leave, placement

HEAD = "node:__internal_head__"
ONE, TWO = "1" * 56, "2" * 56


def node(name: str, *, cpus: float = 0.0, alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"NodeID": name, "Alive": alive, "Resources": {**({"CPU": cpus} if cpus else {}), **resources}}


def test_actor_begins_on_the_node_of_its_starter_where_that_is_not_the_head() -> None:
    nodes = [node("head", cpus=8, **{HEAD: 1.0}), node(ONE, cpus=8), node(TWO, cpus=8)]
    options = placement(nodes, TWO)
    assert 0 < options["num_cpus"] <= 0.001  # Nodes for strangers' code offer none.
    assert "resources" not in options
    assert options["scheduling_strategy"].node_id == TWO
    assert options["scheduling_strategy"].soft
    assert placement(nodes, "head")["scheduling_strategy"].node_id == ONE


def test_actor_stays_on_the_head_where_no_other_node_offers_a_cpu() -> None:
    nodes = [node("head", cpus=2, **{HEAD: 1.0}), node("sandboxes", sandboxes=1.0), node("gone", cpus=8, alive=False)]
    options = placement(nodes, "head")
    assert options["num_cpus"] == 0
    assert options["resources"] == {HEAD: 0.001}
    assert "scheduling_strategy" not in options


def living(name: str, status: str = "IDLE", **totals: float) -> Any:
    usage = [SimpleNamespace(resource_name=resource, total=total) for resource, total in totals.items()]
    return SimpleNamespace(node_id=name, node_status=status, resource_usage=SimpleNamespace(usage=usage))


def test_actor_leaves_a_node_that_drains_for_one_that_can_take_it() -> None:
    here, there = living(ONE, "DRAINING", CPU=8), living(TWO, "RUNNING", CPU=8)
    assert must_leave(ONE, [here, there])
    assert not must_leave(TWO, [here, there])
    assert not must_leave(ONE, [living(ONE, "RUNNING", CPU=8), there])
    assert not must_leave(ONE, [here, living(TWO, "DRAINING", CPU=8)])
    assert not must_leave(ONE, [here, living("sandboxes", sandboxes=1)])
    assert not must_leave("head", [living("head", "DRAINING", CPU=8, **{HEAD: 1.0}), there])
