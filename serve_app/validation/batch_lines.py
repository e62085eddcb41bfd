"""The input file of a batch: splits it into lines, parses their requests, and validates all of them in one pass.

Pure: callers read the file. Lines are counted from 0 among those that are not blank; errors count from 1 among all, as
an editor does. Memory is 8 bytes for each line, and a digest of its custom_id while the file is validated.
"""

import hashlib
from array import array
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from deployments.operations import MODEL_OPERATIONS, Operation
from serve_app.errors.api import shorten
from serve_app.validation.body import JsonRefused, parse_json
from serve_app.validation.violations import missing_parameter

MAX_CUSTOM_ID_CHARS = 512
MAX_ERRORS = 100
MAX_EMBEDDING_INPUTS = 50_000
_BYTES_PER_TOKEN = 4
_BOM = b"\xef\xbb\xbf"
_PROMPTS = {operation.path: operation.prompt or "model" for operation in MODEL_OPERATIONS.values()}
_CHAT = MODEL_OPERATIONS[Operation.CHAT].path
_EMBEDDINGS = MODEL_OPERATIONS[Operation.EMBEDDINGS].path
_UNKNOWN_TOKENS = 1024
TOKEN_BOUNDS = {
    _CHAT: (("max_completion_tokens", "max_tokens"), _UNKNOWN_TOKENS),
    MODEL_OPERATIONS[Operation.COMPLETIONS].path: (("max_tokens",), 16),
    MODEL_OPERATIONS[Operation.RESPONSES].path: (("max_output_tokens",), _UNKNOWN_TOKENS),
}
"""The fields that bound an answer, and what it is reckoned with where they are missing."""
_MOST_TOKENS, _MOST_CHOICES = 1_000_000, 128


class Place(NamedTuple):
    """Where a line is in its input file, in bytes, without the line's end."""

    line: int
    offset: int
    length: int


class RawLine(NamedTuple):
    """A line that is not blank; `number` is its number in an editor, `content` None if it is too long."""

    place: Place
    number: int
    content: bytes | None


class LineFault(Exception):
    """A line is not valid, so its batch cannot run: `code`, `message` and `param` say why."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """The request of a line."""

    custom_id: str
    body: dict[str, Any]


class LineSplitter:
    """Splits a file, fed in pieces of any size, into lines.

    A carriage return before the end of a line is left out, as is a byte order mark before the first line.
    """

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._kept = bytearray()
        self._kept_bytes = 0
        self._offset = 0
        self._num_lines = 0
        self._number = 0

    def feed(self, piece: bytes) -> Iterator[RawLine]:
        """Yield the lines that end in the next piece."""
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            self._keep(piece, start, end)
            start = end + 1
            yield from self._take(1)
        self._keep(piece, start, len(piece))

    def finish(self) -> Iterator[RawLine]:
        """Yield the last line if it has no line end."""
        yield from self._take(0)

    def _keep(self, piece: bytes, start: int, end: int) -> None:
        self._kept_bytes += end - start
        if self._kept_bytes <= self._max_line_bytes + 1:  # One byte more: it may be a carriage return.
            self._kept += piece[start:end]

    def _take(self, num_end_bytes: int) -> Iterator[RawLine]:
        content: bytes | None = bytes(self._kept) if len(self._kept) == self._kept_bytes else None
        offset, length = self._offset, self._kept_bytes
        self._offset += self._kept_bytes + num_end_bytes
        self._kept_bytes = 0
        self._kept.clear()
        self._number += 1
        if content is not None:
            if self._number == 1 and content.startswith(_BOM):
                content, offset = content[len(_BOM) :], offset + len(_BOM)
            content = content.removesuffix(b"\r")
            if not content.strip():
                return
            length = len(content)
            content = content if length <= self._max_line_bytes else None
        yield RawLine(Place(self._num_lines, offset, length), self._number, content)
        self._num_lines += 1


def parse_line(content: bytes, endpoint: str) -> BatchRequest:
    """Return the request of a line of a batch for `endpoint`. Its body is validated when it runs.

    Raises:
        LineFault: the line is not JSON, or a field beside the body is missing or wrong.
    """
    try:
        value = parse_json(content)
    except JsonRefused:
        value = None
    if not isinstance(value, dict):
        raise LineFault("invalid_json_line", "This line is not parseable as valid JSON.")
    _check_required(("custom_id", "method", "url", "body"), value)
    custom_id = value["custom_id"]
    if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= MAX_CUSTOM_ID_CHARS:
        raise LineFault(
            "invalid_request", f"The custom_id must be a string of 1 to {MAX_CUSTOM_ID_CHARS} characters.", "custom_id"
        )
    if value["method"] != "POST":
        raise LineFault("invalid_method", "The method of this request is not supported. Use 'POST'.", "method")
    if value["url"] != endpoint:
        raise LineFault("invalid_url", _other_url(value["url"], endpoint), "url")
    body = value["body"]
    if not isinstance(body, dict):
        raise LineFault("invalid_request", "The body must be an object.", "body")
    _check_body(body, endpoint)
    return BatchRequest(custom_id, body)


def _other_url(url: Any, endpoint: str) -> str:
    given = f"'{shorten(url)}'" if isinstance(url, str) else "not a string"
    return (
        f"The URL provided for this request does not match the batch endpoint. It is {given}; the endpoint is "
        f"'{endpoint}'."
    )


def _check_body(body: dict[str, Any], endpoint: str) -> None:
    if body.get("stream"):
        kind = "Chat Completions: " if endpoint == _CHAT else ""
        raise LineFault("streaming_unsupported", f"{kind}Streaming is not supported in the Batch API.", "body.stream")
    _check_required(("model", _PROMPTS.get(endpoint, "model")), body, "body.")


def _check_required(names: Sequence[str], holder: dict[str, Any], within: str = "") -> None:
    for name in names:
        if holder.get(name) is None:
            fault = missing_parameter(name, holder)
            is_misspelt = fault.param != name
            raise LineFault(
                "unknown_parameter" if is_misspelt else "missing_required_parameter",
                fault.message,
                f"{within}{fault.param}",
            )


def count_embedding_inputs(body: dict[str, Any]) -> int:
    """Return how many texts the body of an embedding request holds."""
    texts = body.get("input")
    return len(texts) if isinstance(texts, list) and texts and not isinstance(texts[0], int) else 1


def count_generated_tokens(endpoint: str, body: dict[str, Any]) -> int:
    """Return how many tokens a request may generate: as its bounds say, or a guess where it has none."""
    if endpoint not in TOKEN_BOUNDS:
        return 0
    names, default = TOKEN_BOUNDS[endpoint]
    bound = next((body[name] for name in names if isinstance(body.get(name), int)), default)
    prompts = body.get("prompt")
    num_prompts = len(prompts) if isinstance(prompts, list) and prompts and not isinstance(prompts[0], int) else 1
    num_choices = body["n"] if isinstance(body.get("n"), int) else 1
    # Numbers that no model takes are refused as the line runs.
    return num_prompts * min(max(0, bound), _MOST_TOKENS) * min(max(1, num_choices), _MOST_CHOICES)


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
