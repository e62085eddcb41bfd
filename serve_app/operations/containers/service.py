"""The containers of accounts: created within the account's limits, found by their owner, used to run code."""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from deployments.state.containers import ContainerStore, StoredContainer, TooManyContainers
from deployments.state.database.queries import Page
from deployments.state.files.store import FileStore
from deployments.state.identity.principal import Principal
from deployments.tools.code_interpreter.client import RemoteHosts
from deployments.tools.code_interpreter.messages import CodeRun, ContainerError, ContainerGone, InterpreterOff
from deployments.tools.config import MEMORY_BYTES, CodeInterpreterConfig
from serve_app.errors.api import BadRequest, NotFound, shorten
from serve_app.operations.containers.files import ContainerFiles, place_of, too_many, translated

_SPARED_S = 60.0
AUTO_NAME = "auto"


@dataclass(frozen=True, slots=True)
class NewContainer:
    """The options of a new container; None stands for the operator's default."""

    name: str = AUTO_NAME
    idle_minutes: int | None = None
    memory_limit: str | None = None
    file_ids: Sequence[str] = ()


def new_container_id() -> str:
    """Return the id of a new container: 128 random bits after the prefix."""
    return f"cntr_{secrets.token_hex(16)}"


class Containers:
    """The containers of all accounts."""

    def __init__(
        self, store: ContainerStore, hosts: RemoteHosts, uploads: FileStore, config: CodeInterpreterConfig
    ) -> None:
        self.config = config
        self.files = ContainerFiles(store, hosts, uploads, config)
        self.store = store
        self._hosts = hosts

    async def create(
        self, principal: Principal, new: NewContainer, container_id: str | None = None, param: str | None = None
    ) -> StoredContainer:
        """Create a container, with copies of files in it; errors name its options as fields of `param`.

        Raises:
            BadRequest, NotFound: one of the options is not valid.
            QuotaExceeded: the account has too many containers.
            Unavailable: no container is free.
        """
        self.check_memory(new.memory_limit, _within(param, "memory_limit"))
        uploads = await self.files.find_uploads(principal, new.file_ids, _within(param, "file_ids"))
        account, limit = principal.account, self.config.max_containers_per_account
        if await self.store.count_running(account) >= limit and not await self._make_room(account):
            raise too_many(limit)
        container_id = container_id or new_container_id()
        idle_s = 60.0 * (new.idle_minutes or self.config.idle_minutes)
        with translated(container_id):
            place = await self._hosts.create(container_id, idle_s)
        now = self.store.clock()
        memory_limit = new.memory_limit or self.config.memory_limit
        created = StoredContainer(
            container_id, account, new.name, memory_limit, now, now, idle_s, True, cast(dict[str, Any], place)
        )
        try:
            await self.store.add(created, limit)
            for upload in uploads:
                await self.files.copy(created, upload)
        except BaseException as error:
            with suppress(ContainerError):
                await self._hosts.end(place, container_id)
            await self.store.delete(account, container_id)
            if isinstance(error, TooManyContainers):
                raise too_many(limit) from None
            raise
        return created

    async def _make_room(self, account: str) -> bool:
        """End the account's automatic container that was idle longest, if it was for some time; return whether."""
        found, _ = await self.store.list_containers(account, Page(1000), AUTO_NAME)
        idle_before = self.store.clock() - _SPARED_S - self.config.call_timeout_s
        idle = [one for one in found if one.is_running and one.last_active_at < idle_before]
        if not idle:
            return False
        oldest = min(idle, key=lambda one: one.last_active_at)
        with suppress(ContainerError):
            await self._hosts.end(place_of(oldest), oldest.container_id)
        await self.store.note_end(oldest.container_id)
        return True

    async def check_able(self) -> None:
        """Raise Unavailable if no containers can be created, ToolOff if that stays so; both have the reason."""
        with translated(""):
            await self._hosts.check_able()

    async def find_problem(self) -> str | None:
        """Return why the code interpreter is off, for the operator; None if it is not.

        Raises:
            InterpreterAway: it does not answer.
        """
        try:
            await self._hosts.check_able()
        except InterpreterOff as off:
            return off.reason
        return None

    def check_memory(self, memory_limit: str | None, param: str) -> None:
        """Raise BadRequest if `memory_limit` is more than the operator allows."""
        ours = self.config.memory_limit
        if memory_limit is not None and MEMORY_BYTES[memory_limit] > MEMORY_BYTES[ours]:
            raise BadRequest(
                f"Unsupported value: '{memory_limit}'. Containers here have '{ours}' of memory; ask for that or less.",
                param=param,
                code="unsupported_value",
            )

    async def find(self, account: str, container_id: str) -> StoredContainer:
        """Return a container of an account, even if it has ended. Raises NotFound if there is none with this id."""
        found = await self.store.find(account, container_id)
        if found is None:
            raise NotFound(f"Container with id '{shorten(container_id)}' not found.")
        return found

    async def look(self, account: str, container_id: str) -> StoredContainer:
        """Return a container as it is now, which counts as a use. Raises NotFound as `find` does."""
        found = await self.find(account, container_id)
        if not found.is_running:
            return found
        try:
            await self._hosts.check(place_of(found), container_id)
        except ContainerGone:
            await self.store.note_end(container_id)
            return replace(found, is_running=False)
        except ContainerError:
            return found
        await self.store.touch(container_id)
        return replace(found, last_active_at=self.store.clock())

    async def delete(self, account: str, container_id: str) -> None:
        """Delete a container. Raises NotFound if the account has none with this id."""
        found = await self.find(account, container_id)
        with suppress(ContainerError):
            await self._hosts.end(place_of(found), container_id)
        await self.store.delete(account, container_id)

    async def run(self, container: StoredContainer, code: str) -> CodeRun:
        """Run code in a container. Raises ContainerError if it has ended, or cannot be reached."""
        try:
            result = await self._hosts.run(place_of(container), container.container_id, code)
        except ContainerGone:
            await self.store.note_end(container.container_id)
            raise
        if result.status == "died":
            await self.store.note_end(container.container_id)
        else:
            await self.store.touch(container.container_id)
        return result


def _within(param: str | None, name: str) -> str:
    return name if param is None else f"{param}.{name}"
