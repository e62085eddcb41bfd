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

    def lifetime_s(self, purpose: str, retention: Retention, asked_s: float | None) -> float:
        """Return the lifetime of an uploaded file in seconds: `asked_s`, for inputs of batches at most the policy's."""
        usual_s = self.lifetime_days * DAY_S
        if purpose == "batch" and (kept_s := input_kept_s(retention)) is not None:
            usual_s = min(usual_s, kept_s)
            return usual_s if asked_s is None else min(usual_s, asked_s)
        return usual_s if asked_s is None else asked_s

    def output_lifetime_s(self, retention: Retention, asked_s: float | None) -> float:
        """Return the lifetime of a batch's output in seconds: `asked_s`, at most what the retention policy allows."""
        days = self.stored_output_days if retention == "stored" else self.ephemeral_output_days
        return min(days * DAY_S, DAY_S * days if asked_s is None else asked_s)


def input_kept_s(retention: Retention) -> float | None:
    """Return how long the input of a batch is kept after its end; None where its own expiry alone counts."""
    return None if retention == "stored" else DAY_S
