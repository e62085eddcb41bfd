"""The statuses of a batch, as its row has them."""

from typing import Literal

Status = Literal["validating", "in_progress", "finalizing", "cancelling", "completed", "failed", "expired", "cancelled"]
ENDED: tuple[Status, ...] = ("completed", "failed", "expired", "cancelled")
