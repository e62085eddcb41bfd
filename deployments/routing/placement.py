"""Decides which replica of a model runs a request: the replica that holds its prefix, unless it is far busier.

Rendezvous hashing assigns a replica to every prefix without shared state, and moves as few prefixes as possible when
replicas come and go (Thaler and Ravishankar, 1998). The bound on a replica's load is that of consistent hashing with
bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2018).
"""

import hashlib
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

LOAD_BOUND: Final = 1.25
FREE_LOAD: Final = 8


@dataclass(frozen=True, slots=True)
class Choice:
    """The parameters of the placement of one request.

    `affinity` names its prefix, if it has one. `excluded` replicas have been tried.
    `num_open` returns how many requests of this process run on a replica.
    """

    affinity: str | None
    excluded: frozenset[str]
    num_open: Callable[[str], int]


def place(choice: Choice, replica_ids: list[str]) -> str:
    """Return the replica of `replica_ids` to run the request; an excluded one only if there is no other."""
    candidates = [replica_id for replica_id in replica_ids if replica_id not in choice.excluded] or replica_ids
    if len(candidates) == 1:
        return candidates[0]
    if choice.affinity is None:
        return min(random.sample(candidates, 2), key=choice.num_open)
    loads = {replica_id: choice.num_open(replica_id) for replica_id in candidates}
    most = max(FREE_LOAD, math.ceil(LOAD_BOUND * (sum(loads.values()) + 1) / len(candidates)))
    affinity = choice.affinity.encode()
    ranked = sorted(candidates, key=lambda replica_id: _rank(affinity, replica_id))
    return next((replica_id for replica_id in ranked if loads[replica_id] < most), ranked[0])


def _rank(affinity: bytes, replica_id: str) -> bytes:
    return hashlib.blake2b(affinity + replica_id.encode(), digest_size=8).digest()
