"""Limits of size and lifetime for stored files: the operator's settings, applied by a key's retention policy."""

from typing import Annotated

from pydantic import Field

from deployments.config import Section
from deployments.state.identity.principal import Retention

MIB = 1024 * 1024
DAY_S = 86_400.0

_Days = Annotated[float, Field(gt=0, le=3650)]


class FilesConfig(Section):
    """Storage limits and lifetimes of files. Everything expires.

    Args:
        max_file_bytes: the largest file.
        max_batch_file_bytes: the largest file with the purpose `batch`.
        max_upload_bytes: the largest file that is uploaded in parts.
        max_account_bytes: how much the files of one account may hold together.
        lifetime_days: how long a file without an expiry of its own lives.
        ephemeral_output_days: how long the output of a batch lives under the retention policy `ephemeral`.
        stored_output_days: the same under `stored`.
    """

    max_file_bytes: Annotated[int, Field(ge=1024)] = 512 * MIB
    max_batch_file_bytes: Annotated[int, Field(ge=1024)] = 200 * MIB
    max_upload_bytes: Annotated[int, Field(ge=1024)] = 8 * 1024 * MIB
    max_account_bytes: Annotated[int, Field(ge=1024)] = 100 * 1024 * MIB
    lifetime_days: _Days = 30
    ephemeral_output_days: _Days = 7
    stored_output_days: _Days = 30

    def max_bytes(self, purpose: str | None) -> int:
        """Return the size limit of a file; None stands for a purpose that is not known yet."""
        return self.max_batch_file_bytes if purpose == "batch" else self.max_file_bytes

    def max_total_bytes(self, purpose: str) -> int:
        """Return the size limit of a file that is uploaded in parts."""
        return self.max_batch_file_bytes if purpose == "batch" else self.max_upload_bytes

    def output_lifetime_s(self, retention: Retention, asked_s: float | None) -> float:
        """Return the lifetime of a batch's output in seconds: `asked_s`, at most what the retention policy allows."""
        days = self.stored_output_days if retention == "stored" else self.ephemeral_output_days
        return min(days * DAY_S, DAY_S * days if asked_s is None else asked_s)


def keeps_input(retention: Retention) -> bool:
    """Return whether the input of a batch is kept after the batch has ended."""
    return retention == "stored"
