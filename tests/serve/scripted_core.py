"""The process in which a scripted engine generates: a clock, as vLLM's EngineCore is to the replica.

Reads lines `[request, num_tokens, priority]` from standard input; no tokens take a request out. After each step it
writes the requests that got a token. At most `max_running` get one in the same step, the lowest priority first. Ends
with its standard input.

    python scripted_core.py EngineCore STEP_S MAX_RUNNING
"""

import heapq
import json
import os
import select
import sys
import time


class Steps:
    """What runs, with the tokens that are left to each, and what waits."""

    def __init__(self, max_running: int) -> None:
        self.left: dict[int, int] = {}
        self._waiting: list[tuple[int, int, int]] = []
        self._max_running = max_running

    def take(self, request: int, num_tokens: int, priority: int) -> None:
        if num_tokens:
            heapq.heappush(self._waiting, (priority, request, num_tokens))
        elif self.left.pop(request, None) is None:
            self._waiting = [one for one in self._waiting if one[1] != request]
            heapq.heapify(self._waiting)

    def step(self) -> list[int]:
        while self._waiting and len(self.left) < self._max_running:
            _, request, num_tokens = heapq.heappop(self._waiting)
            self.left[request] = num_tokens
        made = list(self.left)
        self.left = {request: left - 1 for request, left in self.left.items() if left > 1}
        return made

    @property
    def is_idle(self) -> bool:
        return not self.left and not self._waiting


def main(step_s: float, max_running: int) -> None:
    steps, unread, next_at = Steps(max_running), b"", 0.0
    while True:
        wait_s = None if steps.is_idle else max(0.0, next_at - time.monotonic())
        if select.select([0], [], [], wait_s)[0]:
            if not (data := os.read(0, 1 << 20)):
                return
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                steps.take(*json.loads(line))
        now = time.monotonic()
        if not steps.is_idle and now >= next_at:
            sys.stdout.write(json.dumps(steps.step()) + "\n")
            sys.stdout.flush()
            next_at = max(next_at, now - step_s) + step_s


if __name__ == "__main__":
    main(float(sys.argv[2]), int(sys.argv[3]))
