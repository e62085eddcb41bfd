"""A limit that clients of both regions share: one key, asked for more than it may, and the most that any minute had."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from openai import APIConnectionError, APIStatusError, AsyncOpenAI

from tests.service import CHAT
from tests.tools.drills.regions.balancer import url_near

WINDOW_S = 60.0
SELDOM = 10
"""Where clients ask seldom, the factor by which they pause longer."""


@dataclass(frozen=True)
class Admitted:
    """A request that a limit let through: it was counted somewhere between `began` and `ended`, in seconds."""

    began: float
    ended: float
    near: str


def busiest_window(admitted: Sequence[Admitted], window_s: float = WINDOW_S) -> list[Admitted]:
    """Return the most requests that were surely counted within one window: they began and ended in it."""
    windows = (
        [one for one in admitted if first.began <= one.began and one.ended < first.began + window_s]
        for first in admitted
    )
    return max(windows, key=len, default=[])


class Hammer:
    """Clients near both regions that ask with one key, and repeat nothing: near the first twice as often as the limit
    lets them, near the second seldom until `press`.
    """

    def __init__(self, key: str, per_minute: int, sides: Sequence[str], clients: int = 2) -> None:
        self.per_minute = per_minute
        self.admitted: list[Admitted] = []
        self.refused = 0
        self._is_on = True
        self._often_s = clients * 60 / per_minute / 2
        self._pauses_s = dict.fromkeys(sides, SELDOM * self._often_s) | {sides[0]: self._often_s}
        self._clients = [asyncio.create_task(self._work(key, side)) for side in sides for _ in range(clients)]

    def press(self) -> None:
        """Ask near each region twice as often as the limit lets them."""
        self._pauses_s = dict.fromkeys(self._pauses_s, self._often_s)

    def describe(self) -> str:
        """Return the most that a minute had, by side, of what it may have."""
        busiest = busiest_window(self.admitted)
        sides = ", ".join(f"{side} {sum(one.near == side for one in busiest)}" for side in self._pauses_s)
        return f"{len(busiest)} of {self.per_minute} ({sides}), {self.refused} refused"

    async def finish(self) -> None:
        """Ask nothing more."""
        self._is_on = False
        await asyncio.wait(self._clients, timeout=30)
        for client in self._clients:
            client.cancel()

    async def _work(self, key: str, side: str) -> None:
        async with AsyncOpenAI(base_url=url_near(side), api_key=key, max_retries=0, timeout=20) as client:
            while self._is_on:
                began = time.monotonic()
                try:
                    await client.chat.completions.create(
                        model=CHAT, messages=[{"role": "user", "content": "one"}], max_tokens=1
                    )
                    self.admitted.append(Admitted(began, time.monotonic(), side))
                except APIStatusError as error:
                    self.refused += error.status_code == 429
                except APIConnectionError:
                    pass
                await asyncio.sleep(self._pauses_s[side])
