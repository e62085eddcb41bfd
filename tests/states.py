"""What becomes of every replica of a service under test: one thread looks about once a second and keeps each change.

A replica that comes or leaves between two looks of a test is not missed: the test asks for what has happened.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

EVERY_S, AT_LEAST_S = 1.0, 0.25
"""Seconds between two looks, and the fewest while a test waits for one: the controller lists everything each time."""
GONE = "GONE"
"""The state of a replica that Serve no longer names; Serve's own word for one that leaves is STOPPING."""

Deployments = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """A replica came into a state; `seen_at` is when that was first seen, by the monotonic clock."""

    deployment: str
    replica_id: str
    state: str
    seen_at: float


class States:
    """Looks at the deployments through `look`, from `start` to `stop`."""

    def __init__(self, look: Callable[[], Deployments]) -> None:
        self.changes: list[Change] = []
        self._look = look
        self._states: dict[str, dict[str, str]] = {}
        self._looked = threading.Condition()
        self._num_begun = self._num_ended = 0
        self._found: Deployments | Exception = {}
        self._is_wanted = self._is_over = False
        self._thread = threading.Thread(target=self._run, name="states", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._looked:
            self._is_over = True
            self._looked.notify_all()
        self._thread.join()

    def now(self) -> Deployments:
        """Return what a look finds that begins after this call; raises what it raises."""
        with self._looked:
            number = self._num_begun + 1
            self._is_wanted = True
            self._looked.notify_all()
            self._looked.wait_for(lambda: self._num_ended >= number or self._is_over)
            assert self._num_ended >= number, "the service has ended"
            if isinstance(self._found, Exception):
                raise self._found
            return self._found

    def seen(self, deployment: str, *states: str) -> set[str]:
        """Return the ids of a deployment's replicas that have ever been seen in one of these states."""
        return {one.replica_id for one in self.changes if one.deployment == deployment and one.state in states}

    def _run(self) -> None:
        while True:
            with self._looked:
                if self._is_over:
                    return
                self._num_begun += 1
                self._is_wanted = False
            found: Deployments | Exception
            try:
                found = self._look()
            except Exception as error:  # While there is no controller, for example. The waiting test gets it.
                found = error
            with self._looked:
                self._found, self._num_ended = found, self._num_begun
                if not isinstance(found, Exception):
                    self.changes += self._changes(found)
                self._looked.notify_all()
                if not self._looked.wait_for(lambda: self._is_over, AT_LEAST_S):
                    self._looked.wait_for(lambda: self._is_over or self._is_wanted, EVERY_S - AT_LEAST_S)

    def _changes(self, found: Deployments) -> Iterator[Change]:
        """Yield what differs from the look before. A deployment that is not named says nothing of its replicas."""
        now = time.monotonic()
        for name, deployment in found.items():
            if (replicas := (deployment or {}).get("replicas")) is None:
                continue
            states = {one["replica_id"]: one["state"] for one in replicas}
            before = self._states.get(name, {})
            gone = dict.fromkeys((one for one in before if one not in states and before[one] != GONE), GONE)
            for replica_id, state in {**states, **gone}.items():
                if before.get(replica_id) != state:
                    yield Change(name, replica_id, state, now)
            self._states[name] = {**before, **states, **gone}
