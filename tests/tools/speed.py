"""How fast this machine is: a fixed piece of work, timed, so that a slow suite and a slow machine can be told apart.

`python3 tests/tools/speed.py` needs no packages. It prints how many times longer the work takes here than on the
machine for which the aims in docs/contribute/testing.md are stated.
"""

import hashlib
import json
import time

AIMED_S = 0.052
"""What it takes on that machine, whose two cores run the unit tests in 30 s: they took 71 s where it took 0.12 s."""


def work() -> int:
    """Do what tests do most: interpret Python, make objects, parse and hash."""
    total = 0
    for number in range(12_000):
        text = json.dumps({"index": number, "words": [str(number + offset) for offset in range(12)]})
        total += len(json.loads(text)["words"]) + hashlib.sha256(text.encode()).digest()[0]
    return total


def measure_s(rounds: int = 3) -> float:
    """Return the seconds that the work takes: the least of some rounds."""
    took = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun)
    return min(took)


if __name__ == "__main__":
    took_s = measure_s()
    print(f"machine {took_s / AIMED_S:.1f} (fixed work: {took_s:.2f} s)")
