"""The rows of the search index: chunks as values, as an Arrow table, and as conditions of queries."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]


class ChunkKey(NamedTuple):
    """A chunk of a file, written by a run."""

    run_id: str
    file_id: str
    number: int


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """A new chunk: its sealed text, the codes of its words, and a vector for each passage."""

    key: ChunkKey
    sealed_text: bytes
    terms: str
    vectors: Vectors


def files_condition(files: Collection[tuple[str, str]]) -> str:
    """Return the condition for the rows of some files, given as pairs of run id and file id."""
    by_run: dict[str, list[str]] = defaultdict(list)
    for run_id, file_id in files:
        by_run[run_id].append(file_id)
    return " OR ".join(
        f"(run_id = '{run_id}' AND file_id IN ({quoted(file_ids)}))" for run_id, file_ids in by_run.items()
    )


def chunks_condition(keys: Collection[ChunkKey]) -> str:
    """Return the condition for the rows of some chunks."""
    return " OR ".join(
        f"(run_id = '{key.run_id}' AND file_id = '{key.file_id}' AND chunk = {key.number})" for key in keys
    )


def searched_condition(file_ids: Collection[str] | None, without_runs: Collection[str]) -> str | None:
    """Return the condition for rows of some files (None: all) that other runs have written; None for all rows."""
    of_files = [] if file_ids is None else [f"file_id IN ({quoted(file_ids)})"]
    of_others = [f"run_id NOT IN ({quoted(without_runs)})"] if without_runs else []
    return " AND ".join(of_files + of_others) or None


def quoted(names: Collection[str]) -> str:
    """Return ids for a condition; the service's own ids hold no quotes."""
    return ", ".join(f"'{name}'" for name in names if "'" not in name)


def key_of(row: dict[str, Any]) -> ChunkKey:
    """Return the chunk that a row belongs to."""
    return ChunkKey(row["run_id"], row["file_id"], row["chunk"])


def to_arrow(chunks: Sequence[ChunkRows]) -> Any:
    """Return chunks as an Arrow table: a row for each passage, with the text and the terms in the first."""
    import pyarrow as pa

    passages = [(chunk, number) for chunk in chunks for number in range(len(chunk.vectors))]
    vectors = np.concatenate([chunk.vectors for chunk in chunks]).astype(np.float32, copy=False)
    return pa.table(
        {
            "run_id": pa.array([chunk.key.run_id for chunk, _ in passages], pa.string()),
            "file_id": pa.array([chunk.key.file_id for chunk, _ in passages], pa.string()),
            "chunk": pa.array([chunk.key.number for chunk, _ in passages], pa.int32()),
            "passage": pa.array([number for _, number in passages], pa.int32()),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1]),
            "terms": pa.array(["" if number else chunk.terms for chunk, number in passages], pa.string()),
            "sealed_text": pa.array([None if number else chunk.sealed_text for chunk, number in passages], pa.binary()),
        }
    )
