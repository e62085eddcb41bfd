"""A limit that clients of both regions share: one key, asked for more than it may, and the most that any minute had."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from openai import APIConnectionError, APIStatusError, AsyncOpenAI

from tests.drills.regions.balancer import url_near
from tests.service import CHAT

WINDOW_S = 60.0


@dataclass(frozen=True)
class Admitted:
    """A request that a limit let through: it was counted somewhere between `began` and `ended`, in seconds."""

    began: float
    ended: float
    near: str


def most_in_window(admitted: Sequence[Admitted], window_s: float = WINDOW_S) -> int:
    """Return the most requests that were surely counted within one window: they began and ended in it."""
    return max(
        (
            sum(first.began <= one.began and one.ended < first.began + window_s for one in admitted)
            for first in admitted
        ),
        default=0,
    )


class Hammer:
    """Clients near both regions that ask with one key as fast as they may, and more; none of them repeats anything."""

    def __init__(self, key: str, per_minute: int, sides: Sequence[str] = ("us", "asia"), clients: int = 2) -> None:
        self.per_minute = per_minute
        self.admitted: list[Admitted] = []
        self.refused = 0
        self._is_on = True
        self._pause_s = clients * len(sides) * 60 / per_minute / 2  # Twice what the limit lets through.
        self._clients = [asyncio.create_task(self._work(key, side)) for side in sides for _ in range(clients)]

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
                await asyncio.sleep(self._pause_s)
