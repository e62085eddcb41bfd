"""The indexes of two object stores, such as the buckets of two regions.

A region indexes files in its near object store; tidying copies the entries to the far one. Until then a search reads
them where they are.
"""

from collections.abc import Collection
from dataclasses import dataclass

from deployments.tools.search_index.index import SearchIndex

_FILES_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class IndexPair:
    """The index in the near object store, and the index in the far one if there is one, with the stores' names."""

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
        """Return the name of the other object store; None if there is only one."""
        return self.near_name if self.far is not None and name == self.far_name else self.far_name

    def with_entries(self, lacking: str | None) -> SearchIndex:
        """Return the nearest index with the entries of a file; the index of `lacking` does not have them."""
        return self.far if self.far is not None and lacking == self.near_name else self.near

    async def copy(self, store_id: str, files: Collection[tuple[str, str]], lacking: str) -> None:
        """Copy the entries of files, given as pairs of run id and file id, to the index of `lacking`."""
        if self.far is None or not files:
            return
        source, target = (self.near, self.far) if lacking == self.far_name else (self.far, self.near)
        missing = sorted(set(files) - await target.written(store_id))
        for start in range(0, len(missing), _FILES_AT_ONCE):
            await source.copy_files(store_id, missing[start : start + _FILES_AT_ONCE], target)
