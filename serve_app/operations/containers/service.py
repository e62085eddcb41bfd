"""Containers as accounts have them: who owns them, the files copied into them, and the errors once they have ended."""

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, cast

from deployments.state.containers.store import ContainerPage, ContainerStore, StoredContainer, TooManyContainers
from deployments.state.files.store import FileNotFound, FileStore, StoredFile
from deployments.state.identity.principal import Principal
from deployments.state.objects.store import StoreUnavailable
from deployments.tools.code_interpreter.client import ContainerHosts
from deployments.tools.code_interpreter.messages import (
    CodeRun,
    ContainerError,
    ContainerFile,
    ContainerGone,
    Place,
)
from deployments.tools.config import MEMORY_BYTES, CodeInterpreterConfig
from deployments.tools.sandbox.root import WORK_FOLDER
from deployments.tools.sandbox.text import is_safe_path
from serve_app.errors.api import STORED_FILES_AWAY, BadRequest, BodyTooLarge, NotFound, StoresAway
from serve_app.errors.text import shorten
from serve_app.operations.containers.refusals import expired, no_file, too_many, translated

_PIECE_BYTES = 1024 * 1024
_SPARED_S = 60.0
AUTO_NAME = "auto"


@dataclass(frozen=True, slots=True)
class NewContainer:
    """A container to be made; what is None is as the operator has it."""

    name: str = AUTO_NAME
    idle_minutes: int | None = None
    memory_limit: str | None = None
    file_ids: Sequence[str] = ()


def new_container_id() -> str:
    """Return the id of a container that is yet to be made: 128 random bits after the prefix."""
    return f"cntr_{secrets.token_hex(16)}"


class Containers:
    """The containers of all accounts, over those who hold them."""

    def __init__(
        self, store: ContainerStore, hosts: ContainerHosts, files: FileStore, config: CodeInterpreterConfig
    ) -> None:
        self.config = config
        self._store = store
        self._hosts = hosts
        self._files = files

    async def create(
        self, principal: Principal, new: NewContainer, container_id: str | None = None, param: str | None = None
    ) -> StoredContainer:
        """Make a container, with copies of files in it; `param` is where a request says what it is to be.

        Raises:
            BadRequest, NotFound: it cannot be as it is wanted.
            QuotaExceeded: the account has as many as it may.
            Unavailable: none can be had.
        """
        self.check_memory(new.memory_limit, _within(param, "memory_limit"))
        files = await self.find_files(principal, new.file_ids, _within(param, "file_ids"))
        account, most = principal.account, self.config.max_containers_per_account
        if await self._store.count_running(account) >= most and not await self._make_room(account):
            raise too_many(most)
        container_id = container_id or new_container_id()
        idle_s = 60.0 * (new.idle_minutes or self.config.idle_minutes)
        with translated(container_id):
            place = await self._hosts.create(container_id, idle_s)
        now = self._store.clock()
        memory_limit = new.memory_limit or self.config.memory_limit
        made = StoredContainer(
            container_id, account, new.name, memory_limit, now, now, idle_s, True, cast(dict[str, Any], place)
        )
        try:
            await self._store.add(made, most)
            for file in files:
                await self._copy(made, file)
        except BaseException as error:
            with suppress(ContainerError):
                await self._hosts.end(place, container_id)
            await self._store.delete(account, container_id)
            if isinstance(error, TooManyContainers):
                raise too_many(most) from None
            raise
        return made

    async def _make_room(self, account: str) -> bool:
        """End the automatic container of an account that was used longest ago, if that is some time; say if so."""
        found, _ = await self._store.list_containers(account, ContainerPage(limit=1000, name=AUTO_NAME))
        idle_before = self._store.clock() - _SPARED_S - self.config.call_timeout_s
        idle = [one for one in found if one.is_running and one.last_active_at < idle_before]
        if not idle:
            return False
        oldest = min(idle, key=lambda one: one.last_active_at)
        with suppress(ContainerError):
            await self._hosts.end(_place_of(oldest), oldest.container_id)
        await self._store.note_end(oldest.container_id)
        return True

    async def check_able(self) -> None:
        """Check that the code interpreter can make containers.

        Raises:
            Unavailable: none can; says why.
        """
        with translated(""):
            await self._hosts.check_able()

    def check_memory(self, memory_limit: str | None, param: str) -> None:
        """Check that a container may have so much memory.

        Raises:
            BadRequest: it is more than the operator gives.
        """
        ours = self.config.memory_limit
        if memory_limit is not None and MEMORY_BYTES[memory_limit] > MEMORY_BYTES[ours]:
            raise BadRequest(
                f"Unsupported value: '{memory_limit}'. Containers here have '{ours}' of memory; ask for that or less.",
                param=param,
                code="unsupported_value",
            )

    async def find_files(self, principal: Principal, file_ids: Sequence[str], param: str) -> list[StoredFile]:
        """Return the files of an account that are to be copied into a container.

        Raises:
            NotFound: it has no such file.
            BadRequest: one does not fit.
        """
        found = []
        for index, file_id in enumerate(file_ids):
            try:
                file = await self._files.find(principal.account, file_id)
            except FileNotFound:
                raise NotFound(f"No such File object: {shorten(file_id)}", param=f"{param}[{index}]") from None
            if file.num_bytes > self.config.limits.file_bytes:
                raise BadRequest(
                    f"Invalid file: {shorten(file_id)} is larger than the {self.config.work_mib} MiB of a container.",
                    param=f"{param}[{index}]",
                    code="invalid_value",
                )
            found.append(file)
        return found

    async def _copy(self, container: StoredContainer, file: StoredFile) -> ContainerFile:
        upload = self.begin_file(container, file.filename)
        try:
            async for piece in self._files.read(file):
                await upload.write(piece)
        except (FileNotFound, StoreUnavailable):
            raise StoresAway(STORED_FILES_AWAY) from None
        return await upload.finish()

    async def add_missing(self, container: StoredContainer, files: Sequence[StoredFile]) -> None:
        """Copy those files into a container of whose names there is none in it yet.

        Raises:
            ContainerError, ApiError: it has ended, or one does not fit.
        """
        there = {file.path for file in await self._hosts.list_files(_place_of(container), container.container_id)}
        for file in files:
            if self.begin_file(container, file.filename).path not in there:
                await self._copy(container, file)

    async def copy(self, principal: Principal, container_id: str, file_id: str, param: str) -> ContainerFile:
        """Copy a file of the account into a container.

        Raises:
            NotFound: there is no such container or file.
            BadRequest: it does not fit.
        """
        container = await self.find(principal.account, container_id)
        (file,) = await self.find_files(principal, [file_id], param)
        return await self._copy(container, file)

    async def find(self, account: str, container_id: str) -> StoredContainer:
        """Return a container of an account, also one that has ended.

        Raises:
            NotFound: it has none with this id.
        """
        found = await self._store.find(account, container_id)
        if found is None:
            raise NotFound(f"Container with id '{shorten(container_id)}' not found.")
        return found

    async def look(self, account: str, container_id: str) -> StoredContainer:
        """Return a container as it is now; counts as a use of it.

        Raises:
            NotFound: the account has none with this id.
        """
        found = await self.find(account, container_id)
        if not found.is_running:
            return found
        try:
            await self._hosts.check(_place_of(found), container_id)
        except ContainerGone:
            await self._store.note_end(container_id)
            return replace(found, is_running=False)
        except ContainerError:
            return found
        await self._store.touch(container_id)
        return replace(found, last_active_at=self._store.clock())

    async def list_containers(self, account: str, page: ContainerPage) -> tuple[list[StoredContainer], bool]:
        """Return a page of an account's containers, and whether there are more.

        Raises:
            KeyError: `page.after` is none of them.
        """
        return await self._store.list_containers(account, page)

    async def delete(self, account: str, container_id: str) -> None:
        """End a container and forget it.

        Raises:
            NotFound: the account has none with this id.
        """
        found = await self.find(account, container_id)
        with suppress(ContainerError):
            await self._hosts.end(_place_of(found), container_id)
        await self._store.delete(account, container_id)

    async def run(self, container: StoredContainer, code: str) -> CodeRun:
        """Run code in a container.

        Raises:
            ContainerError: it has ended, or cannot be reached.
        """
        try:
            result = await self._hosts.run(_place_of(container), container.container_id, code)
        except ContainerGone:
            await self._store.note_end(container.container_id)
            raise
        if result.status == "died":
            await self._store.note_end(container.container_id)
        else:
            await self._store.touch(container.container_id)
        return result

    async def list_files(self, account: str, container_id: str) -> list[ContainerFile]:
        """Return the files in a container, the oldest first.

        Raises:
            NotFound: there is no such container, or it has ended.
        """
        container = await self.find(account, container_id)
        async with self._using(container):
            files = await self._hosts.list_files(_place_of(container), container_id)
        return sorted(files, key=lambda file: (file.created_at, file.file_id))

    async def find_file(self, account: str, container_id: str, file_id: str) -> ContainerFile:
        """Return a file in a container.

        Raises:
            NotFound: there is no such container or file, or the container has ended.
        """
        for file in await self.list_files(account, container_id):
            if file.file_id == file_id:
                return file
        raise no_file(file_id)

    async def read(self, account: str, container_id: str, file_id: str) -> AsyncIterator[bytes]:
        """Yield a file's content.

        Raises:
            NotFound: there is no such container or file, or the container has ended.
        """
        container = await self.find(account, container_id)
        async with self._using(container, file_id):
            async for piece in self._hosts.read(_place_of(container), container_id, file_id):
                yield piece

    def begin_file(self, container: StoredContainer, filename: str) -> "FileCopy":
        """Return what writes a file into a container."""
        name = filename.replace("\\", "/").rpartition("/")[2]
        path = name if is_safe_path(name) else f"file-{sha256(filename.encode('utf-8', 'replace')).hexdigest()[:16]}"
        return FileCopy(self, container, path)

    async def write(
        self, container: StoredContainer, path: str, offset: int, piece: bytes, *, is_last: bool
    ) -> ContainerFile | None:
        """Write a piece of a file; return the file when it was the last piece.

        Raises:
            NotFound: the container has ended.
            BadRequest: it does not fit.
        """
        async with self._using(container):
            place = _place_of(container)
            return await self._hosts.write(place, container.container_id, path, offset, piece, is_last=is_last)

    async def delete_file(self, account: str, container_id: str, file_id: str) -> None:
        """Delete a file in a container.

        Raises:
            NotFound: there is no such container or file, or the container has ended.
        """
        container = await self.find(account, container_id)
        async with self._using(container, file_id):
            await self._hosts.remove(_place_of(container), container_id, file_id)

    def _using(self, container: StoredContainer, file_id: str = "") -> "_Using":
        return _Using(self._store, container, file_id)


class FileCopy:
    """A file on its way into a container, in pieces of any size."""

    def __init__(self, containers: Containers, container: StoredContainer, path: str) -> None:
        self.path = path
        self._containers = containers
        self._container = container
        self._kept = bytearray()
        self._offset = 0

    async def write(self, piece: bytes) -> None:
        """Add to the file.

        Raises:
            NotFound: the container has ended.
            BodyTooLarge, BadRequest: it does not fit.
        """
        most = self._containers.config.limits.file_bytes
        if self._offset + len(self._kept) + len(piece) > most:
            raise BodyTooLarge(most, param="file")
        self._kept += piece
        while len(self._kept) > _PIECE_BYTES:
            await self._flush(bytes(self._kept[:_PIECE_BYTES]), is_last=False)
            del self._kept[:_PIECE_BYTES]

    async def finish(self) -> ContainerFile:
        """Write the end; return the file.

        Raises:
            NotFound: the container has ended.
            BadRequest: it does not fit.
        """
        file = await self._flush(bytes(self._kept), is_last=True)
        assert file is not None
        return file

    async def _flush(self, piece: bytes, *, is_last: bool) -> ContainerFile | None:
        file = await self._containers.write(self._container, self.path, self._offset, piece, is_last=is_last)
        self._offset += len(piece)
        return file


class _Using:
    """A block that uses a container: what goes wrong becomes an answer, and its end is noted."""

    def __init__(self, store: ContainerStore, container: StoredContainer, file_id: str) -> None:
        self._store = store
        self._container = container
        self._file_id = file_id

    async def __aenter__(self) -> None:
        if not self._container.is_running:
            raise expired(self._container.container_id)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        container_id = self._container.container_id
        if error is None:
            await self._store.touch(container_id)
        elif isinstance(error, ContainerGone):
            await self._store.note_end(container_id)
        if isinstance(error, ContainerError):
            with translated(container_id, self._file_id):
                raise error


def path_in(file: ContainerFile) -> str:
    """Return where code in the container finds a file."""
    return f"{WORK_FOLDER}/{file.path}"


def _place_of(container: StoredContainer) -> Place:
    return cast(Place, container.place)


def _within(param: str | None, name: str) -> str:
    return name if param is None else f"{param}.{name}"
