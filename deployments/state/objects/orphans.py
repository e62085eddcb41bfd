"""Deletes objects that no row names: their writer was killed before it wrote the row, or their row is gone."""

from collections.abc import Awaitable, Callable, Collection, Sequence

from deployments.state.database.ids import id_groups
from deployments.state.objects.store import ObjectStore


async def delete_orphans(
    objects: ObjectStore, folder: str, before: float, known: Callable[[Sequence[str]], Awaitable[Collection[str]]]
) -> int:
    """Delete the objects of a folder that were written before `before` (Unix seconds) and have no row; return how many.

    `known` returns the keys among those that it is given that have a row.

    Raises:
        StoreUnavailable: the object store fails.
    """
    old = [one.key async for one in objects.list_objects(folder) if one.modified_at < before]
    num_deleted = 0
    for keys in id_groups(old):
        for key in set(keys) - set(await known(keys)):
            await objects.delete(key)
            num_deleted += 1
    return num_deleted
