"""The part of every limit that one region owns. Pure.

The gatekeeper of a region admits no more than its part, so that regions never exceed a limit together, whatever they
know of each other.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Share:
    """The part of the `index`th of `count` regions; the default is that of the only one."""

    index: int = 0
    count: int = 1

    @classmethod
    def of_region(cls, name: str, names: Iterable[str]) -> Self:
        """Return the part of the region `name` among all `names`, which every region must list alike.

        Raises:
            ValueError: `name` is not among them.
        """
        ordered = sorted(set(names))
        return cls(ordered.index(name), len(ordered))

    def of(self, limit: int) -> int:
        """Return this region's part of a limit; the parts of all regions add up to it."""
        return limit // self.count + (self.index < limit % self.count)


WHOLE = Share()
