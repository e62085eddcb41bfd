"""The indexes of two object stores, such as the buckets of two regions.

A region indexes files in its near object store; the entries are copied to the far one when the store is tidied. Until
then a search reads them where they are.
"""

from collections.abc import Collection
from dataclasses import dataclass

from deployments.tools.search_index.index import SearchIndex

_FILES_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class IndexPair:
    """The index in the near object store, and the far one where there is one; each with its object store's name."""

    near: SearchIndex
    far: SearchIndex | None = None
    near_name: str = ""
    far_name: str | None = None

    @property
    def all(self) -> list[SearchIndex]:
        """Return each index, the near one first."""
        return [self.near] if self.far is None else [self.near, self.far]

    def named(self, name: str) -> SearchIndex:
        """Return the index in the object store of this name."""
        return self.far if self.far is not None and name == self.far_name else self.near

    def beside(self, name: str) -> str | None:
        """Return the name of the other object store; None where there is one."""
        return self.near_name if self.far is not None and name == self.far_name else self.far_name

    def with_entries(self, lacking: str | None) -> SearchIndex:
        """Return the nearest index that has the entries of a file, which the index of `lacking` lacks."""
        return self.far if self.far is not None and lacking == self.near_name else self.near

    async def copy(self, store_id: str, files: Collection[tuple[str, str]], lacking: str) -> None:
        """Copy the entries of files, given as pairs of run id and file id, to the index of `lacking`.

        Raises:
            IndexUnavailable: one of the indexes cannot be read or written.
        """
        if self.far is None or not files:
            return
        source, target = (self.near, self.far) if lacking == self.far_name else (self.far, self.near)
        missing = sorted(set(files) - await target.written(store_id))
        for start in range(0, len(missing), _FILES_AT_ONCE):
            await source.copy_files(store_id, missing[start : start + _FILES_AT_ONCE], target)
