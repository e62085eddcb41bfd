"""The statuses of a batch, as its row bears them."""

from typing import Literal, get_args

Status = Literal["validating", "in_progress", "finalizing", "cancelling", "completed", "failed", "expired", "cancelled"]
STATUSES: tuple[str, ...] = get_args(Status)
ENDED: tuple[Status, ...] = ("completed", "failed", "expired", "cancelled")
