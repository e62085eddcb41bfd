"""Look-ups that run while the model begins to read, so that the client does not wait for both in turn."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Lookup(Generic[T_co]):
    """A lookup running in the background. Awaiting it raises its error; an error nobody awaits is dropped."""

    def __init__(self, lookup: Coroutine[Any, Any, T_co]) -> None:
        self._task = asyncio.create_task(lookup)
        self._task.add_done_callback(_retrieve_error)

    async def result(self) -> T_co:
        """Return the result, as often as it is asked for.

        Raises:
            Exception: the lookup has raised it.
        """
        return await self._task

    def cancel(self) -> None:
        """Stop the lookup."""
        self._task.cancel()


def _retrieve_error(task: asyncio.Task[Any]) -> None:
    """Retrieve the error of a task, which asyncio would otherwise log."""
    if not task.cancelled():
        task.exception()
