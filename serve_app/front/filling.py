"""From a table to the commands that bring one HAProxy process to it. Pure."""

from collections.abc import Collection, Mapping, Sequence

from serve_app.front.addresses import Address
from serve_app.front.rendering import LAST_RESORT, MAIN, OTHER_WEIGHT, OWN_WEIGHT
from serve_app.front.runtime import Slot
from serve_app.front.table import Server

OWN_IS_FULL = 64
"""So many open requests on each replica of this node, and those of other nodes get as many as they."""


def weigh(servers: Sequence[Server], open_requests: Mapping[Address, int]) -> dict[Address, int]:
    """Return the weight of each server: those of this node come first, until they have too much to do."""
    own = [server for server in servers if server.is_own]
    is_full = not own or sum(open_requests.get(server.address, 0) for server in own) >= OWN_IS_FULL * len(own)
    return {server.address: OWN_WEIGHT if server.is_own or is_full else OTHER_WEIGHT for server in servers}


def plan(
    main: Sequence[Slot], last_resort: Sequence[Slot], weights: Mapping[Address, int], down: Collection[Address] = ()
) -> list[str]:
    """Return the commands after which a process has exactly these servers.

    A slot that has one of them keeps it, since moving it would move its health with it. A new one counts as living
    until its first check, unless it is known to be `down`. Servers for which no slot is left are not taken in.
    """
    twins = {slot.name: slot for slot in last_resort}
    commands: list[str] = []
    held: set[Address] = set()
    free: list[str] = []
    for slot in main:
        wanted = weights.get(slot.address)
        twin = twins.get(slot.name)
        if not slot.is_empty and wanted is not None and slot.address not in held and _agrees(twin, slot):
            held.add(slot.address)
            if slot.weight != wanted:
                commands.append(f"set server {MAIN}/{slot.name} weight {wanted}")
            continue
        free.append(slot.name)
        if not slot.is_empty or (twin is not None and not twin.is_empty):
            commands += [f"set server {backend}/{slot.name} state maint" for backend in (MAIN, LAST_RESORT)]
    missing = [address for address in weights if address not in held]
    for name, address in zip(free, missing, strict=False):
        commands += _fill(name, address, weights[address])
        if address in down:
            commands.append(f"set server {MAIN}/{name} health down")
    return commands


def silent(slots: Sequence[Slot], silent_s: float) -> list[Slot]:
    """Return the slots of replicas whose node has not answered at all for a while, since two checks failed.

    What is only slow still takes connections, and a replica that has died refuses them.
    """
    return [slot for slot in slots if slot.is_unreachable and slot.since_s >= silent_s]


def end_streams(slots: Sequence[Slot]) -> list[str]:
    """Return the commands that end what is open at these replicas."""
    return [f"shutdown sessions server {MAIN}/{slot.name}" for slot in slots if slot.num_sessions]


def without_returning(
    servers: Sequence[Server], silent_at: Mapping[Address, float], now: float, spare_s: float
) -> list[Server]:
    """Return the servers without those whose node was cut off until just now, or still is; all, if that is all.

    `silent_at` says when a replica last was unreachable.
    """
    kept = [server for server in servers if now - silent_at.get(server.address, 0.0) >= spare_s]
    return kept or list(servers)


def _agrees(twin: Slot | None, slot: Slot) -> bool:
    return twin is not None and not twin.is_empty and twin.address == slot.address


def _fill(name: str, address: Address, weight: int) -> list[str]:
    """Return the commands that put a replica into an empty slot. Only the main backend has checks and weights."""
    place = f"addr {address.host} port {address.port}"
    return [
        f"set server {MAIN}/{name} {place}",
        f"set server {MAIN}/{name} weight {weight}",
        f"enable health {MAIN}/{name}",
        f"set server {MAIN}/{name} state ready",
        f"set server {LAST_RESORT}/{name} {place}",
        f"set server {LAST_RESORT}/{name} state ready",
    ]
