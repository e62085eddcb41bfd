"""Batches as values, and as rows of the database."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from deployments.state.batches.ledger import BatchState, Outcome, Tokens
from deployments.state.database.queries import columns_for
from deployments.state.identity.principal import Principal
from deployments.state.usage.record import RequestRecord

_ENTRY = struct.Struct("<IIIB")
_TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch to be created, for a principal."""

    principal: Principal
    input_file_id: str
    endpoint: str
    completion_window: str
    window_s: float
    metadata: dict[str, str] | None = None
    output_expires_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch: its request, its state and its files. `errors` are the errors of its validation."""

    batch_id: str
    principal: Principal
    input_file_id: str
    endpoint: str
    completion_window: str
    output_expires_after_s: int | None
    metadata: dict[str, str] | None
    state: BatchState
    errors: list[dict[str, Any]] | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None

    @property
    def account(self) -> str:
        """The account that the batch belongs to."""
        return self.principal.account


class Entry(NamedTuple):
    """The place of a line's outcome in a segment, in plaintext bytes."""

    line: int
    offset: int
    length: int
    is_failed: bool


class Segment(NamedTuple):
    """Outcomes of lines that were written to an object.

    `entries`, `outcomes` and `records` (for the request log) belong to the same lines, in the same order.
    """

    segment_id: str
    object_key: str
    num_bytes: int
    wrapped_key: bytes
    entries: Sequence[Entry]
    outcomes: Sequence[Outcome]
    records: Sequence[RequestRecord]


class StoredSegment(NamedTuple):
    """A segment with its accepted entries."""

    segment_id: str
    object_key: str
    num_bytes: int
    wrapped_key: bytes
    entries: list[Entry]


def pack_entries(entries: Iterable[Entry]) -> bytes:
    """Return entries as bytes, 13 for each."""
    return b"".join(_ENTRY.pack(*entry) for entry in entries)


def unpack_entries(packed: bytes) -> list[Entry]:
    """Return the entries that `pack_entries` packed."""
    return [Entry(line, offset, length, bool(failed)) for line, offset, length, failed in _ENTRY.iter_unpack(packed)]


def state_of(row: Mapping[str, Any]) -> BatchState:
    """Return the state in a row."""
    read = {
        "elapsed_s": row["elapsed_s"] or 0.0,
        "tokens": Tokens(*(row[name] for name in _TOKENS)),
        "done": int.from_bytes(row["done"], "little"),
    }
    return BatchState(**columns_for(BatchState, row) | read)


def values_of(state: BatchState) -> dict[str, Any]:
    """Return a state as columns."""
    values = {field.name: getattr(state, field.name) for field in fields(state) if field.name != "tokens"}
    values["done"] = state.done.to_bytes(-(-state.done.bit_length() // 8), "little")
    return values | dict(zip(_TOKENS, state.tokens, strict=True))
