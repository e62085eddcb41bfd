"""The content of files on its way in, from multipart forms to storage, and out, in ranges.

No file is held whole. An upload that is refused, or whose client disconnects, is not stored.
"""

import re
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request

from deployments.state.config import FilesConfig
from deployments.state.files.content import FileWriter, NewFile
from deployments.state.files.store import FileStore, Hold, StoredFile
from deployments.state.identity.principal import Principal
from serve_app.errors.api import BadRequest, BodyTooLarge, RangeNotSatisfiable, invalid_value
from serve_app.errors.capacity import QuotaExceeded
from serve_app.http.body_limits import declared_bytes
from serve_app.http.forms import FormEvent, FormParser, FormRefused, PartBegin, PartData
from serve_app.routes.paging import parse_number
from serve_app.schemas.base import WireModel
from serve_app.services import Services
from serve_app.validation.body import validate_body

MIN_LIFETIME_S = 3600
MAX_LIFETIME_S = 2_592_000

UploadPurpose = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]
NO_ROOM = "Your files have reached their storage limit. Delete those you no longer need."

_MAX_FIELD_BYTES = 4096
_MAX_NAME_CHARS = 255


class FileExpiry(WireModel):
    """When an object expires, in seconds after its creation.

    Args:
        anchor: always `created_at`.
        seconds: how many seconds after its creation the object expires.
    """

    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=MIN_LIFETIME_S, le=MAX_LIFETIME_S)]


class FileForm(WireModel):
    """The fields of an upload besides the file.

    Args:
        purpose: what the file is for: `batch` for the input of a batch, `user_data` or `assistants` for other files.
    """

    purpose: UploadPurpose
    expires_after: FileExpiry | None = None


async def receive_file(request: Request, services: Services, principal: Principal) -> StoredFile:
    """Store the file that a request uploads; return it.

    Raises:
        BadRequest: the form or one of its fields is not valid.
        BodyTooLarge: the file is larger than its purpose allows; the rest of it is not read.
        QuotaExceeded: the account's files would exceed their limit together.
        TooManyObjects: the account has too many objects.
        StoreUnavailable: the object store fails or is full.
    """
    store, rules = services.files, services.file_rules_of(principal)
    room = _Room(services, principal, request)
    try:
        async with AsyncExitStack() as stack:
            upload = Upload(stack, store, rules, principal, room)
            await upload.receive(request)
            form, writer, filename = upload.result()
        # The content is stored; from now on the file counts.
        created_at = upload.now()
        asked_s = None if form.expires_after is None else form.expires_after.seconds
        expires_at = created_at + rules.lifetime_s(form.purpose, principal.retention, asked_s)
        row = writer.row(purpose=form.purpose, filename=filename, created_at=created_at, expires_at=expires_at)
        stored = await store.record(row, room.held)
        room.held = None
        return stored
    finally:
        if room.held is not None:
            await store.release(room.held)


class _Room:
    """The room that is held for an upload as soon as its file begins."""

    def __init__(self, services: Services, principal: Principal, request: Request) -> None:
        self._services = services
        self._principal = principal
        self._declared_bytes = declared_bytes(request.scope)
        self.held: Hold | None = None

    async def hold(self, new: NewFile) -> int:
        """Hold room for the largest form; return the free bytes. Raises TooManyObjects if the account has too many."""
        services, principal = self._services, self._principal
        bounds, rules = services.upload_bounds(), services.file_rules_of(principal)
        num_bytes = self._declared_bytes or bounds.max_bytes
        for_s = 2 * (bounds.grace_s + num_bytes / bounds.min_bytes_per_s)
        max_objects = services.tiers.of(principal.tier).stored_objects
        self.held = await services.files.hold(new, num_bytes, for_s, rules.max_account_bytes, max_objects)
        return self.held.num_bytes


async def form_events(request: Request) -> AsyncIterator[FormEvent]:
    """Yield the parts of a multipart form as they come. Raises BadRequest if the form is not valid."""
    try:
        parser = FormParser(request.headers.get("content-type", ""))
        async for piece in request.stream():
            for event in parser.feed(piece):
                yield event
        parser.finish()
    except FormRefused as refused:
        raise BadRequest(f"We could not parse the form in the body of your request. {refused}") from None


class Upload:
    """A form while it is read: its text fields so far, and the file that is being written."""

    def __init__(
        self, stack: AsyncExitStack, store: FileStore, rules: FilesConfig, principal: Principal, room: _Room
    ) -> None:
        self._stack = stack
        self._store = store
        self._rules = rules
        self._principal = principal
        self._room = room
        self._fields: dict[str, bytes] = {}
        self._field: str | None = None
        self._writer: FileWriter | None = None
        self._filename = ""
        self._room_bytes = 0

    def now(self) -> float:
        """Return the time of the store, in Unix seconds."""
        return self._store.clock()

    async def receive(self, request: Request) -> None:
        """Read the whole form."""
        async for event in form_events(request):
            if isinstance(event, PartBegin):
                await self._begin(event)
            elif isinstance(event, PartData):
                await self._add(event.data)

    def result(self) -> tuple[FileForm, FileWriter, str]:
        """Return the fields, the file and its name. Raises BadRequest if a field is missing or not valid."""
        form = self._check_fields()
        if self._writer is None:
            raise BadRequest("Missing required parameter: 'file'.", param="file", code="missing_required_parameter")
        self._check_size(self._writer, form.purpose)
        check_name(self._filename, form.purpose)
        return form, self._writer, self._filename

    async def _begin(self, part: PartBegin) -> None:
        if part.name == "file" and part.filename is None:
            raise invalid_value("Invalid 'file': its part of the form has no 'filename'.", "file")
        if part.name != "file" or part.filename is None:
            if part.name in self._fields:
                raise BadRequest(f"Duplicate parameter: '{part.name[:64]}'.", param=part.name[:64])
            self._field = part.name
            self._fields[part.name] = b""
            return
        if self._writer is not None:
            raise BadRequest("Only one 'file' can be uploaded at a time.", param="file")
        self._field = None
        self._filename = clean(part.filename)
        if "purpose" in self._fields:  # A wrong name is refused before the file is read.
            check_name(self._filename, self._check_fields().purpose)
        account = self._principal.account
        new = NewFile(account, self._principal.key_id, f"file-{secrets.token_hex(16)}")
        self._room_bytes = await self._room.hold(new)
        self._writer = await self._stack.enter_async_context(self._store.create(new))

    async def _add(self, data: bytes) -> None:
        if self._field is not None:
            value = self._fields[self._field] = self._fields[self._field] + data
            if len(value) > _MAX_FIELD_BYTES:
                name = self._field[:64]
                raise BadRequest(f"Invalid '{name}': too long.", param=name, code="string_above_max_length")
            return
        assert self._writer is not None
        await self._writer.write(data)
        self._check_size(self._writer, self._fields.get("purpose", b"").decode("utf-8", "replace"))

    def _check_size(self, writer: FileWriter, purpose: str) -> None:
        limit = self._rules.max_bytes(purpose)
        if writer.num_bytes > limit:
            raise BodyTooLarge(limit, param="file")
        if writer.num_bytes > self._room_bytes:
            raise QuotaExceeded(NO_ROOM)

    def _check_fields(self) -> FileForm:
        value: dict[str, Any] = {}
        for name, raw in self._fields.items():
            text = raw.decode("utf-8", "replace")
            if name.startswith("expires_after[") and name.endswith("]"):
                inner = name[len("expires_after[") : -1]
                value.setdefault("expires_after", {})[inner] = parse_number(text) if inner == "seconds" else text
            else:
                value[name] = text
        return validate_body(value, FileForm)


def check_name(filename: str, purpose: str, param: str = "file") -> None:
    """Raise BadRequest, which names `param`, unless the purpose allows a file of that name."""
    if purpose == "batch" and not filename.lower().endswith(".jsonl"):
        raise BadRequest("Invalid file format for Batch API. Must be .jsonl", param=param, code="invalid_file_format")


def clean(filename: str) -> str:
    """Return the last part of a client's file name, without characters that cannot be printed."""
    name = filename.replace("\\", "/").rpartition("/")[2]
    name = "".join(c for c in name if c.isprintable())
    return name[-_MAX_NAME_CHARS:] or "upload"


_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


async def begin_content(content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Return content after reading its first piece: a store that fails by then still sets the status."""
    first = await anext(content, b"")

    async def pieces() -> AsyncIterator[bytes]:
        yield first
        async for piece in content:
            yield piece

    return pieces()


def parse_range(header: str | None, num_bytes: int) -> tuple[int, int] | None:
    """Return start and end of a Range header's only range (RFC 9110), None where the whole file is wanted.

    Raises:
        RangeNotSatisfiable: the range begins beyond the end.
    """
    match = _RANGE.fullmatch(header.replace(" ", "")) if header else None
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        start, stop = max(0, num_bytes - int(match[2])), num_bytes
    else:
        start, stop = int(match[1]), min(num_bytes, int(match[2]) + 1 if match[2] else num_bytes)
        if match[2] and int(match[2]) < start:
            return None
    if start >= stop:
        raise RangeNotSatisfiable(num_bytes)
    return start, stop
