"""Validates the input of a batch in one streaming pass, which yields the index of its lines.

Pure: `batch.input` reads the file. Memory is 8 bytes for each line, and a digest of its custom_id while it validates.
"""

import hashlib
from array import array
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from batch.lines import (
    LineFault,
    LineSplitter,
    Place,
    RawLine,
    count_embedding_inputs,
    count_generated_tokens,
    parse_line,
)
from deployments.operations import MODEL_OPERATIONS, Operation

MAX_ERRORS = 100
MAX_EMBEDDING_INPUTS = 50_000
_BYTES_PER_TOKEN = 4
_EMBEDDINGS = MODEL_OPERATIONS[Operation.EMBEDDINGS].path


@dataclass
class LineIndex:
    """The place of every line in an input file, 8 bytes each."""

    offsets: "array[int]" = field(default_factory=lambda: array("I"))
    lengths: "array[int]" = field(default_factory=lambda: array("I"))

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, place: Place) -> None:
        """Add the next line."""
        self.offsets.append(place.offset)
        self.lengths.append(place.length)

    def place(self, line: int) -> Place:
        """Return the place of a line."""
        return Place(line, self.offsets[line], self.lengths[line])

    def places(self, lines: Sequence[int]) -> list[Place]:
        """Return the places of lines."""
        return [self.place(line) for line in lines]


@dataclass
class Validation:
    """The result of validating an input file: its index, its estimated tokens, its errors."""

    index: LineIndex = field(default_factory=LineIndex)
    estimated_tokens: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)


class Rules:
    """Limits of a batch, and its endpoint."""

    def __init__(self, endpoint: str, max_requests: int, max_line_bytes: int) -> None:
        self.endpoint = endpoint
        self.max_requests = max_requests
        self.max_line_bytes = max_line_bytes


async def validate(pieces: AsyncIterator[bytes], rules: Rules) -> Validation:
    """Validate an input file in one pass over its pieces, which ends at the MAX_ERRORS-th error."""
    checker = _Checker(rules)
    splitter = LineSplitter(rules.max_line_bytes)
    async for piece in pieces:
        for line in splitter.feed(piece):
            if not checker.check(line):
                return checker.found
    for line in splitter.finish():
        checker.check(line)
    if not checker.found.index and not checker.found.errors:
        checker.fault(None, LineFault("empty_file", "The input file has no requests in it."))
    return checker.found


async def index_lines(pieces: AsyncIterator[bytes], max_line_bytes: int) -> LineIndex:
    """Return the index of a file that has been validated."""
    index, splitter = LineIndex(), LineSplitter(max_line_bytes)
    async for piece in pieces:
        for line in splitter.feed(piece):
            index.add(line.place)
    for line in splitter.finish():
        index.add(line.place)
    return index


class _Checker:
    def __init__(self, rules: Rules) -> None:
        self.found = Validation()
        self._rules = rules
        self._num_inputs = 0
        self._seen: set[bytes] = set()

    def check(self, line: RawLine) -> bool:
        """Check the next line; return whether to go on."""
        found, rules = self.found, self._rules
        if len(found.index) >= rules.max_requests:
            message = f"The input file has more than the maximum of {rules.max_requests} requests."
            self.fault(None, LineFault("too_many_requests", message))
            return False
        found.index.add(line.place)
        try:
            self._check_line(line)
        except LineFault as fault:
            self.fault(line.number, fault)
        return len(found.errors) < MAX_ERRORS

    def _check_line(self, line: RawLine) -> None:
        if line.content is None:
            message = f"This line is larger than the limit of {self._rules.max_line_bytes} bytes."
            raise LineFault("line_too_large", message)
        request = parse_line(line.content, self._rules.endpoint)
        digest = hashlib.blake2b(request.custom_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in self._seen:
            message = "The custom_id for this request is a duplicate of another request. The custom_id parameter must "
            raise LineFault("duplicate_custom_id", message + "be unique for each request in a batch.", "custom_id")
        self._seen.add(digest)
        self.found.estimated_tokens += len(line.content) // _BYTES_PER_TOKEN + 1
        self.found.estimated_tokens += count_generated_tokens(self._rules.endpoint, request.body)
        if self._rules.endpoint == _EMBEDDINGS:
            self._num_inputs += count_embedding_inputs(request.body)
            if self._num_inputs > MAX_EMBEDDING_INPUTS:
                message = f"The batch has more than the maximum of {MAX_EMBEDDING_INPUTS} embedding inputs."
                raise LineFault("too_many_inputs", message, "body.input")

    def fault(self, number: int | None, fault: LineFault) -> None:
        """Add an error of a line, or of the file if `number` is None."""
        self.found.errors.append({"code": fault.code, "message": fault.message, "param": fault.param, "line": number})
