"""The commands that bring a HAProxy process to a table, carried out on a model of one."""

import re

from hypothesis import given
from hypothesis import strategies as st

from serve_app.front.addresses import Address
from serve_app.front.rendering import EMPTY, LAST_RESORT, MAIN, OTHER_WEIGHT, OWN_WEIGHT
from serve_app.front.runtime import OWN_IS_FULL, Slot, end_streams, plan, silent, weigh, without_returning
from serve_app.front.table import Server

NUM_SLOTS = 5
SILENT_S, SPARE_S = 3, 10.0
OWN, OTHER = Server(Address("127.0.0.1", 30000), True, 0.0), Server(Address("10.0.0.2", 30000), False, 0.0)


def slot(name: str, address: Address = EMPTY, status: str = "MAINT", weight: int = OWN_WEIGHT) -> Slot:
    return Slot(name, address, status, weight, num_sessions=0, check="", check_details="", since_s=0)


class Process:
    """What HAProxy makes of the commands."""

    def __init__(self) -> None:
        self.backends = {name: {f"s{n}": slot(f"s{n}") for n in range(NUM_SLOTS)} for name in (MAIN, LAST_RESORT)}
        self.num_filled = 0

    def slots(self, backend: str) -> list[Slot]:
        return list(self.backends[backend].values())

    def obey(self, commands: list[str]) -> None:
        for command in commands:
            if command.startswith("enable health"):
                continue
            if failed := re.fullmatch(rf"set server {MAIN}/(\w+) health down", command):
                old = self.backends[MAIN][failed[1]]
                assert not old.is_empty, "an empty slot has no health"
                self.backends[MAIN][failed[1]] = slot(old.name, old.address, "DOWN", old.weight)
                continue
            found = re.fullmatch(r"set server (\w+)/(\w+) (state|addr|weight) (\S+)(?: port (\d+))?", command)
            assert found is not None, command
            backend, name, what, value, port = found.groups()
            old = self.backends[backend][name]
            if what == "state":
                new = slot(name, old.address, "MAINT" if value == "maint" else "UP", old.weight)
            elif what == "addr":
                assert old.is_empty, "a slot in use is given another address"
                self.num_filled += 1
                new = slot(name, Address(value, int(port)), old.status, old.weight)
            else:
                new = slot(name, old.address, old.status, int(value))
            self.backends[backend][name] = new

    def serving(self, backend: str) -> dict[Address, int]:
        return {one.address: one.weight for one in self.slots(backend) if not one.is_empty}


addresses = st.integers(1, 9).map(lambda port: Address("127.0.0.1", port))
tables = st.dictionaries(addresses, st.sampled_from([OWN_WEIGHT, OTHER_WEIGHT]), max_size=NUM_SLOTS)


@given(st.lists(tables, max_size=6))
def test_process_has_exactly_the_servers_of_each_table_and_moves_none(history: list[dict[Address, int]]) -> None:
    process = Process()
    for weights in history:
        before = {one.address: one.name for one in process.slots(MAIN) if not one.is_empty}
        process.obey(plan(process.slots(MAIN), process.slots(LAST_RESORT), weights))
        assert process.serving(MAIN) == weights
        assert process.serving(LAST_RESORT).keys() == weights.keys()
        after = {one.address: one.name for one in process.slots(MAIN) if not one.is_empty}
        assert all(after[address] == name for address, name in before.items() if address in weights)
        assert plan(process.slots(MAIN), process.slots(LAST_RESORT), weights) == []


def test_slot_whose_twin_is_elsewhere_is_filled_anew() -> None:
    process = Process()
    weights = {OWN.address: OWN_WEIGHT}
    process.obey(plan(process.slots(MAIN), process.slots(LAST_RESORT), weights))
    process.backends[LAST_RESORT]["s0"] = slot("s0")
    process.obey(plan(process.slots(MAIN), process.slots(LAST_RESORT), weights))
    assert process.serving(MAIN).keys() == process.serving(LAST_RESORT).keys() == weights.keys()


def test_replica_that_is_known_to_be_down_gets_nothing_before_its_first_check() -> None:
    process = Process()
    weights = {OWN.address: OWN_WEIGHT, OTHER.address: OTHER_WEIGHT}
    process.obey(plan(process.slots(MAIN), process.slots(LAST_RESORT), weights, {OTHER.address}))
    assert {one.address for one in process.slots(MAIN) if one.is_up} == {OWN.address}
    assert {one.address for one in process.slots(LAST_RESORT) if one.is_up} == weights.keys()
    assert plan(process.slots(MAIN), process.slots(LAST_RESORT), weights, {OTHER.address}) == []


def test_servers_beyond_the_slots_are_left_out() -> None:
    process = Process()
    weights = {Address("127.0.0.1", port): OWN_WEIGHT for port in range(1, NUM_SLOTS + 3)}
    process.obey(plan(process.slots(MAIN), process.slots(LAST_RESORT), weights))
    assert len(process.serving(MAIN)) == NUM_SLOTS


def test_replicas_of_this_node_come_first() -> None:
    assert weigh([OWN, OTHER], {}) == {OWN.address: OWN_WEIGHT, OTHER.address: OTHER_WEIGHT}


def test_replicas_of_other_nodes_get_as_many_when_those_of_this_node_are_full() -> None:
    busy = {OWN.address: OWN_IS_FULL}
    assert weigh([OWN, OTHER], busy) == {OWN.address: OWN_WEIGHT, OTHER.address: OWN_WEIGHT}


def test_replicas_of_other_nodes_share_evenly_where_there_is_none_here() -> None:
    assert weigh([OTHER], {}) == {OTHER.address: OWN_WEIGHT}


def down(name: str, check: str, since_s: int, num_sessions: int = 1, says: str = "") -> Slot:
    return Slot(name, OTHER.address, "DOWN", OTHER_WEIGHT, num_sessions, check, says, since_s)


def test_streams_end_only_where_the_node_has_been_silent() -> None:
    slots = [
        down("cut", "L4TOUT", SILENT_S),
        down("cut_for_long", "L4CON", 60, says="No route to host"),
        down("just_now", "L4TOUT", SILENT_S - 1),
        down("slow", "L7TOUT", 60),
        down("dead", "L4CON", 60, says="Connection refused"),
        down("drains", "L7STS", 60),
        down("idle", "L4TOUT", 60, num_sessions=0),
        Slot("up", OWN.address, "UP", OWN_WEIGHT, 1, "L7OK", "", 60),
    ]
    assert [slot.name for slot in silent(slots, SILENT_S)] == ["cut", "cut_for_long", "idle"]
    assert end_streams(silent(slots, SILENT_S)) == [
        f"shutdown sessions server {MAIN}/{name}" for name in ("cut", "cut_for_long")
    ]


def test_replica_of_a_node_that_comes_back_is_spared_for_a_while_unless_there_is_no_other() -> None:
    silent_at = {OTHER.address: 100.0}
    assert without_returning([OWN, OTHER], silent_at, 100.0 + SPARE_S - 1, SPARE_S) == [OWN]
    assert without_returning([OWN, OTHER], silent_at, 100.0 + SPARE_S, SPARE_S) == [OWN, OTHER]
    assert without_returning([OTHER], silent_at, 100.0, SPARE_S) == [OTHER]
