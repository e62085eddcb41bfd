"""The standing of a region: whether fronts leave it, with a delay in each direction, saved over restarts.

Pure but for loading and saving. Times are Unix seconds.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from serve_app.front.addresses import Address, parse_address
from serve_app.front.files import write_private
from serve_app.front.timings import FrontTimings


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether the region is left, and where the fronts of each other region listen."""

    is_left: bool = True
    addresses: Mapping[str, tuple[Address, ...]] = field(default_factory=dict)


class Hysteresis:
    """Decides whether a region is left, from one look after another.

    A region that is drained is left at once. A region that answers now and then stays what it was: each good look
    starts the time anew after which it is left, and each bad one that after which it is taken up again.
    """

    def __init__(self, timings: FrontTimings, now: float, *, is_left: bool) -> None:
        self.is_left = is_left
        self._timings = timings
        self._good_at = now
        self._bad_at = now

    def note(self, now: float, *, is_ready: bool, is_drained: bool) -> bool:
        """Take in one look; return whether `is_left` has changed."""
        if is_ready and not is_drained:
            self._good_at = now
        else:
            self._bad_at = now
        before = self.is_left
        if self.is_left:
            self.is_left = now - self._bad_at < self._timings.return_after_s
        else:
            self.is_left = is_drained or now - self._good_at >= self._timings.leave_after_s
        return self.is_left != before


def save_standing(path: Path, standing: Standing, now: float) -> None:
    """Write down how the region stands.

    Raises:
        OSError: the file cannot be written.
    """
    addresses = {name: [str(one) for one in known] for name, known in standing.addresses.items()}
    write_private(path, json.dumps({"saved_at": now, "is_left": standing.is_left, "addresses": addresses}))


def load_standing(path: Path, now: float, fresh_s: float) -> Standing:
    """Return what was saved within `fresh_s` seconds; a region that is left, with others nowhere, if nothing was."""
    try:
        saved = json.loads(path.read_text())
        addresses = {name: tuple(map(parse_address, known)) for name, known in saved["addresses"].items()}
        if 0 <= now - float(saved["saved_at"]) <= fresh_s:
            return Standing(bool(saved["is_left"]), addresses)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return Standing()
