"""The files in containers: copies of the account's files, and those that code wrote.

If a container has ended meanwhile, that is noted, and the client gets an error about it.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from typing import cast

from deployments.state.containers import ContainerStore, StoredContainer
from deployments.state.files.store import FileNotFound, FileStore, StoredFile
from deployments.state.identity.principal import Principal
from deployments.state.objects.store import StoreUnavailable
from deployments.tools.code_interpreter.client import RemoteHosts
from deployments.tools.code_interpreter.messages import (
    ContainerFile,
    ContainerFileMissing,
    ContainerGone,
    ContainerRefused,
    InterpreterAway,
    InterpreterOff,
    Place,
)
from deployments.tools.config import CodeInterpreterConfig
from deployments.tools.sandbox.frames import is_safe_path
from deployments.tools.sandbox.root import WORK_FOLDER
from serve_app.errors.api import BodyTooLarge, NotFound, invalid_value, shorten
from serve_app.errors.capacity import STORED_FILES_AWAY, QuotaExceeded, StoresAway, ToolOff, Unavailable

EXPIRED = "container_expired"


@contextmanager
def translated(container_id: str, file_id: str = "") -> Iterator[None]:
    """Context manager that translates errors of containers into API errors.

    Raises:
        NotFound: the container has ended, or has no such file.
        BadRequest: its files do not allow the request.
        ToolOff: no sandbox can be built.
        Unavailable: the code interpreter cannot answer.
    """
    try:
        yield
    except ContainerGone:
        raise expired(container_id) from None
    except ContainerFileMissing:
        raise no_file(file_id) from None
    except ContainerRefused as refused:
        raise invalid_value(refused.message, "file") from None
    except InterpreterOff as off:
        raise ToolOff(off.message) from None
    except InterpreterAway as away:
        raise Unavailable(away.message, retry_after_s=5.0) from None


def expired(container_id: str, param: str | None = None) -> NotFound:
    """Return the error for a container that has expired."""
    return NotFound(
        f"Container with id '{shorten(container_id)}' has expired, and everything in it is gone. Create a new one.",
        param=param,
        code=EXPIRED,
    )


def no_file(file_id: str) -> NotFound:
    """Return the error for a file that does not exist."""
    return NotFound(f"No such container file: {shorten(file_id)}")


def too_many(limit: int) -> QuotaExceeded:
    """Return the error for an account with too many containers."""
    return QuotaExceeded(
        f"You have {limit} containers, which is the limit. Delete those you no longer need.", code="too_many_containers"
    )


_PIECE_BYTES = 1024 * 1024


class ContainerFiles:
    """The files in the containers of all accounts."""

    def __init__(
        self, store: ContainerStore, hosts: RemoteHosts, uploads: FileStore, config: CodeInterpreterConfig
    ) -> None:
        self._store = store
        self._hosts = hosts
        self._uploads = uploads
        self._work_mib = config.work_mib
        self._max_bytes = config.limits.file_bytes

    async def find_uploads(self, principal: Principal, file_ids: Sequence[str], param: str) -> list[StoredFile]:
        """Return uploaded files of an account. Raises NotFound if one is missing, BadRequest if it does not fit."""
        found = []
        for index, file_id in enumerate(file_ids):
            try:
                file = await self._uploads.find(principal.account, file_id)
            except FileNotFound:
                raise NotFound(f"No such File object: {shorten(file_id)}", param=f"{param}[{index}]") from None
            if file.num_bytes > self._max_bytes:
                raise invalid_value(
                    f"Invalid file: {shorten(file_id)} is larger than the {self._work_mib} MiB of a container.",
                    f"{param}[{index}]",
                )
            found.append(file)
        return found

    async def copy(self, container: StoredContainer, upload: StoredFile) -> ContainerFile:
        """Copy an uploaded file into a container.

        Raises:
            NotFound: the container has ended.
            BadRequest: it does not fit.
            StoresAway: it cannot be read.
        """
        copy = self.begin(container, upload.filename)
        try:
            async for piece in self._uploads.read(upload):
                await copy.write(piece)
        except (FileNotFound, StoreUnavailable):
            raise StoresAway(STORED_FILES_AWAY) from None
        return await copy.finish()

    async def add_missing(self, container: StoredContainer, uploads: Sequence[StoredFile]) -> None:
        """Copy the uploads whose names are not in a container yet. Raises ContainerError or ApiError if that fails."""
        there = {file.path for file in await self._hosts.list_files(place_of(container), container.container_id)}
        for upload in uploads:
            if self.begin(container, upload.filename).path not in there:
                await self.copy(container, upload)

    async def list_files(self, container: StoredContainer) -> list[ContainerFile]:
        """Return the files in a container, the oldest first. Raises NotFound if the container has ended."""
        async with self._using(container):
            files = await self._hosts.list_files(place_of(container), container.container_id)
        return sorted(files, key=lambda file: (file.created_at, file.file_id))

    async def find(self, container: StoredContainer, file_id: str) -> ContainerFile:
        """Return a file in a container. Raises NotFound if there is no such file, or the container has ended."""
        for file in await self.list_files(container):
            if file.file_id == file_id:
                return file
        raise no_file(file_id)

    async def read(self, container: StoredContainer, file_id: str) -> AsyncIterator[bytes]:
        """Yield a file's content. Raises NotFound if there is no such file, or the container has ended."""
        async with self._using(container, file_id):
            async for piece in self._hosts.read(place_of(container), container.container_id, file_id):
                yield piece

    def begin(self, container: StoredContainer, filename: str) -> "FileCopy":
        """Return a writer for a new file in a container."""
        name = filename.replace("\\", "/").rpartition("/")[2]
        path = name if is_safe_path(name) else f"file-{sha256(filename.encode('utf-8', 'replace')).hexdigest()[:16]}"
        return FileCopy(self, container, path, self._max_bytes)

    async def write(
        self, container: StoredContainer, path: str, offset: int, piece: bytes, *, is_last: bool
    ) -> ContainerFile | None:
        """Write a piece of a file; return the file when it was the last piece.

        Raises:
            NotFound: the container has ended.
            BadRequest: it does not fit.
        """
        async with self._using(container):
            place = place_of(container)
            return await self._hosts.write(place, container.container_id, path, offset, piece, is_last=is_last)

    async def delete(self, container: StoredContainer, file_id: str) -> None:
        """Delete a file in a container. Raises NotFound if there is no such file, or the container has ended."""
        async with self._using(container, file_id):
            await self._hosts.remove(place_of(container), container.container_id, file_id)

    @asynccontextmanager
    async def _using(self, container: StoredContainer, file_id: str = "") -> AsyncIterator[None]:
        """Context manager for a use of a container: notes the use or the end of the container, translates errors."""
        container_id = container.container_id
        if not container.is_running:
            raise expired(container_id)
        with translated(container_id, file_id):
            try:
                yield
            except ContainerGone:
                await self._store.note_end(container_id)
                raise
        await self._store.touch(container_id)


class FileCopy:
    """A file on its way into a container, in pieces of any size."""

    def __init__(self, files: ContainerFiles, container: StoredContainer, path: str, max_bytes: int) -> None:
        self.path = path
        self._files = files
        self._container = container
        self._max_bytes = max_bytes
        self._unwritten = bytearray()
        self._offset = 0

    async def write(self, piece: bytes) -> None:
        """Append to the file.

        Raises:
            NotFound: the container has ended.
            BodyTooLarge, BadRequest: it does not fit.
        """
        if self._offset + len(self._unwritten) + len(piece) > self._max_bytes:
            raise BodyTooLarge(self._max_bytes, param="file")
        self._unwritten += piece
        while len(self._unwritten) > _PIECE_BYTES:
            await self._flush(bytes(self._unwritten[:_PIECE_BYTES]), is_last=False)
            del self._unwritten[:_PIECE_BYTES]

    async def finish(self) -> ContainerFile:
        """Write the end; return the file. Raises as `write` does."""
        file = await self._flush(bytes(self._unwritten), is_last=True)
        assert file is not None
        return file

    async def _flush(self, piece: bytes, *, is_last: bool) -> ContainerFile | None:
        file = await self._files.write(self._container, self.path, self._offset, piece, is_last=is_last)
        self._offset += len(piece)
        return file


def path_in(file: ContainerFile) -> str:
    """Return the path of a file inside its container."""
    return f"{WORK_FOLDER}/{file.path}"


def place_of(container: StoredContainer) -> Place:
    """Return the address of the replica that holds a container."""
    return cast(Place, container.place)
