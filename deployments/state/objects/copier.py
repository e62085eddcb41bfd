"""Works off what one of two object stores lacks. The batch coordinator's process runs it, as a chore."""

from deployments.state.objects.owed import Owed, OwedCopies
from deployments.state.objects.pair import PairedStore, Side
from deployments.state.objects.store import ObjectMissing, StoreUnavailable

_AT_ONCE = 100
_PIECE_BYTES = 5 * 1024 * 1024


class Copier:
    """Copies objects to the store that lacks them, and deletes those that a store was to delete, oldest note first."""

    def __init__(self, pair: PairedStore, owed: OwedCopies) -> None:
        self._pair = pair
        self._owed = owed

    async def run(self) -> int:
        """Work off what can be worked off now; return how many objects.

        A store that fails is left for the next time. An object that the other store does not have either was deleted
        since.

        Raises:
            DBAPIError: the database is away.
        """
        near, far = self._pair.near, self._pair.far
        return await self._bring_up(near, source=far) + await self._bring_up(far, source=near)

    async def _bring_up(self, side: Side, source: Side) -> int:
        num_done = 0
        while notes := await self._owed.oldest(side.name, _AT_ONCE):
            for note in notes:
                try:
                    await self._work_off(note, side, source)
                except StoreUnavailable:
                    return num_done
                await self._owed.settle(note)
                num_done += 1
        return num_done

    async def _work_off(self, note: Owed, side: Side, source: Side) -> None:
        if note.is_deleted:
            await side.store.delete(note.object_key)
            return
        try:
            num_bytes = await source.store.size(note.object_key)
            async with side.store.create(note.object_key) as writer:
                for start in range(0, num_bytes, _PIECE_BYTES):
                    stop = min(start + _PIECE_BYTES, num_bytes)
                    await writer.write(await source.store.read(note.object_key, start, stop))
        except ObjectMissing:
            return
