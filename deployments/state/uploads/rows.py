"""Uploads and their parts as values, and what refuses a change of them. Times are Unix seconds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import orjson

from deployments.state.database.queries import columns_for
from deployments.state.encryption.sealing import DataKey

LIFETIME_S = 3600.0
"""How long parts may be added, and the upload be completed."""
MAX_PART_BYTES = 64 * 1024 * 1024
MAX_PARTS = 10_000
MAX_PENDING = 100
"""Uploads that one account may have pending."""

UploadStatus = Literal["pending", "completed", "cancelled", "expired"]

_RECORD = b"upload"


class NewUpload(NamedTuple):
    """An upload to be created. Its file lives `file_lifetime_s` seconds once it is complete."""

    account: str
    key_id: str
    purpose: str
    filename: str
    mime_type: str
    num_bytes: int
    file_lifetime_s: float


@dataclass(frozen=True, slots=True)
class StoredUpload:
    """An upload; `num_bytes` is the size that its file is meant to have."""

    upload_id: str
    account: str
    key_id: str
    purpose: str
    filename: str
    status: UploadStatus
    num_bytes: int
    file_lifetime_s: float
    file_id: str | None
    created_at: float
    expires_at: float


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part of an upload."""

    part_id: str
    upload_id: str
    num_bytes: int
    created_at: float


class UploadNotFound(LookupError):
    """The account has no such upload."""


class UploadRefused(Exception):
    """An upload cannot be changed as it was asked for."""


class UploadEnded(UploadRefused):
    """The upload is not pending any more; `status` says what it is."""

    def __init__(self, status: UploadStatus) -> None:
        super().__init__(f"The upload is {status}.")
        self.status = status


class UnknownPart(UploadRefused):
    """The upload has no part `part_id`."""

    def __init__(self, part_id: str) -> None:
        super().__init__("The upload has no such part.")
        self.part_id = part_id


class WrongSize(UploadRefused):
    """The parts hold `num_bytes` together, which is not the size that the upload was created with."""

    def __init__(self, num_bytes: int) -> None:
        super().__init__(f"The parts hold {num_bytes} bytes.")
        self.num_bytes = num_bytes


class WrongChecksum(UploadRefused):
    """The content of the parts has another MD5 checksum."""


class TooManyUploads(UploadRefused):
    """The account has as many pending uploads as it may."""


class TooManyParts(UploadRefused):
    """The upload has as many parts as it may, or they hold as much as they may together."""


class NoRoom(UploadRefused):
    """The account's files would hold more than they may together."""


def seal_record(new: NewUpload, key: DataKey) -> bytes:
    """Return the sealed part of an upload's row."""
    return key.seal(orjson.dumps({"filename": new.filename, "mime_type": new.mime_type}), _RECORD)


def upload_of(row: Mapping[str, Any], key: DataKey, now: float) -> StoredUpload:
    """Return the upload in a row, expired if it is past its time.

    Raises:
        SealBroken: the key is another upload's.
    """
    record = orjson.loads(key.open(row["sealed_record"], _RECORD))
    values = columns_for(StoredUpload, row) | {"filename": record["filename"], "status": status_of(row, now)}
    return StoredUpload(**values)


def status_of(row: Mapping[str, Any], now: float) -> UploadStatus:
    """Return the status of an upload, which expires without a change of its row."""
    status: UploadStatus = row["status"]
    return "expired" if status == "pending" and row["expires_at"] <= now else status
