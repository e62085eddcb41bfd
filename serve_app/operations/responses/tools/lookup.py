"""What is looked up while the model begins to read: nobody waits for it before there is something to say."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Lookup(Generic[T_co]):
    """Something that is being looked up. A failure is told to whoever asks for it; nobody may."""

    def __init__(self, looking: Coroutine[Any, Any, T_co]) -> None:
        self._task = asyncio.create_task(looking)
        self._task.add_done_callback(_retrieve)

    async def found(self) -> T_co:
        """Return what was found, as often as it is asked for.

        Raises:
            Exception: what looking it up has raised.
        """
        return await self._task

    def stop(self) -> None:
        """Look no further."""
        self._task.cancel()


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Take the failure out of a task, which would write it into the log where nobody has asked."""
    if not task.cancelled():
        task.exception()
