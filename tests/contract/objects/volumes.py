"""A small file system of our own, which may be filled, and made read-only."""

import subprocess
import time
from pathlib import Path

import pytest

from tests import needs

_PIECE = b"\0" * 65_536


class Volume:
    """A mounted file system of a few MiB."""

    def __init__(self, place: Path, num_mib: int = 8) -> None:
        self.place = place
        self._filler = place / "filler"
        place.mkdir()
        self._mount("-t", "tmpfs", "-o", f"size={num_mib}m", "tmpfs", str(place))

    def fill(self) -> None:
        """Leave no room."""
        with self._filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            while True:
                file.write(_PIECE)

    def free(self) -> None:
        """Give the room back."""
        self._filler.unlink()

    def forbid_writing(self) -> None:
        """Make it read-only, as a kernel does with a disk that fails."""
        deadline = time.monotonic() + 60
        while True:
            try:
                self._mount("-o", "remount,ro", str(self.place))
                return
            except subprocess.CalledProcessError:  # A file is just being written.
                assert time.monotonic() < deadline

    def allow_writing(self) -> None:
        """Make it writable again."""
        self._mount("-o", "remount,rw", str(self.place))

    def remove(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", "--lazy", str(self.place)], check=True)

    @staticmethod
    def _mount(*arguments: str) -> None:
        subprocess.run(["mount", *arguments], check=True, capture_output=True)


def mounted(place: Path) -> Volume:
    """Return a volume, or skip the test where none can be mounted."""
    try:
        return Volume(place)
    except subprocess.CalledProcessError:
        needs.missing("no file system can be mounted here, which only root may do")
