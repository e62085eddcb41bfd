"""The files in a prompt, as text and images for one turn.

A stored turn has only references: a file that was deleted since cannot be read.
"""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Sequence

from deployments.operations import Operation
from deployments.state.files.store import FileNotFound, FileStore, StoredFile
from deployments.state.identity.principal import Principal
from deployments.state.objects.store import StoreUnavailable
from serve_app.errors.api import BadRequest, NotFound, RetentionForbids, invalid_value, shorten
from serve_app.errors.capacity import STORED_FILES_AWAY, StoresAway
from serve_app.operations.responses.events.writer import Item
from serve_app.operations.scopes import check_operation
from serve_app.schemas.responses.client_calls import CALL_OUTPUTS
from serve_app.schemas.responses.items import EXTERNAL_ITEMS
from serve_app.schemas.responses.parts import READABLE_FILES

MAX_BYTES = 32 * 1024 * 1024
"""The limit of the stored files in one prompt; a file counts each time that it is named."""
MAX_FILES = 100

_IMAGES = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF87a", "gif"), (b"GIF89a", "gif"))


class Attachments:
    """Reads the files of one prompt, within its limits."""

    def __init__(self, files: FileStore, principal: Principal) -> None:
        self._files = files
        self._principal = principal
        self._num_bytes = 0
        self._read: dict[str, tuple[StoredFile, bytes]] = {}

    async def show(self, items: Sequence[Item], own_from: int, before: str) -> list[Item]:
        """Return items with their files as text and as images in data URLs; others are the same objects.

        Items from `own_from` on are the request's `input`; `before` is the parameter of those before.

        Raises:
            ApiError: a file is missing, not allowed, too large, or of an unsupported type.
        """
        shown = []
        for index, item in enumerate(items):
            if item["type"] in EXTERNAL_ITEMS:
                shown.append(item)
                continue
            field = "output" if item["type"] in CALL_OUTPUTS else "content"
            parts = item.get(field)
            if isinstance(parts, list) and any(part["type"] in _SHOWN for part in parts):
                at = f"input[{index - own_from}].{field}" if index >= own_from else None
                read = [
                    await self._show(part, before if at is None else f"{at}[{place}]", is_own=at is not None)
                    for place, part in enumerate(parts)
                ]
                item = {**item, field: read}
            shown.append(item)
        return shown

    async def _show(self, part: Item, at: str, *, is_own: bool) -> Item:
        by_id = part.get("file_id") is not None
        field = ".file_id" if by_id else ".file_data"
        param = at + field if is_own else at
        if part["type"] == "input_image" and by_id:
            _, content = await self._content(part["file_id"], param)
            return {**part, "image_url": _image_url(content, param)}
        if part["type"] != "input_file":
            return part
        name = part.get("filename")
        if by_id:
            file, content = await self._content(part["file_id"], param)
            name = name or file.filename
        else:
            content = _decode(part["file_data"], param)
        text = _text(content, param)
        return {"type": "input_text", "text": f"{name}:\n{text}" if name else text}

    async def _content(self, file_id: str, param: str) -> tuple[StoredFile, bytes]:
        if self._principal.retention == "strict":
            raise RetentionForbids("reading stored files", param)
        check_operation(self._principal, Operation.FILES)
        try:
            if file_id not in self._read:
                if len(self._read) == MAX_FILES:
                    raise invalid_value(f"Too many files: no more than {MAX_FILES} can be read at once.", param)
                file = await self._files.find(self._principal.account, file_id)
                self._count(file, param)
                self._read[file_id] = file, b"".join([piece async for piece in self._files.read(file)])
            else:
                self._count(self._read[file_id][0], param)
        except FileNotFound:
            raise NotFound(f"No such File object: {shorten(file_id)}", param=param) from None
        except StoreUnavailable:
            raise StoresAway(STORED_FILES_AWAY) from None
        return self._read[file_id]

    def _count(self, file: StoredFile, param: str) -> None:
        self._num_bytes += file.num_bytes
        if self._num_bytes > MAX_BYTES:
            raise BadRequest(
                f"The files of this request hold more than {MAX_BYTES} bytes together. Send fewer or smaller ones.",
                param=param,
                code="file_too_large",
            )


_SHOWN = ("input_file", "input_image")


def _decode(data_url: str, param: str) -> bytes:
    try:
        return b64decode(data_url.partition(",")[2], validate=True)
    except binascii.Error:
        raise invalid_value(f"Invalid '{param}': what follows 'base64,' is not base64.", param) from None


def _text(content: bytes, param: str) -> str:
    """Return the text of a file, which must be UTF-8, not a PDF, without zero bytes."""
    try:
        if b"\0" not in content and not content.startswith(b"%PDF-"):
            return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    raise BadRequest(READABLE_FILES.replace("{param}", param), param=param, code="unsupported_value")


def _image_url(content: bytes, param: str) -> str:
    kind = next((name for start, name in _IMAGES if content.startswith(start)), None)
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        kind = "webp"
    if kind is None:
        raise BadRequest(
            f"Unsupported value: '{param}' names a file that is no PNG, JPEG, WebP or GIF image. Send text as "
            "'input_file'.",
            param=param,
            code="unsupported_value",
        )
    return f"data:image/{kind};base64,{b64encode(content).decode()}"
