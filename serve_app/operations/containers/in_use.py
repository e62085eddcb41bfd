"""The container that a tool of a response uses: found or created at its first call, and cited from.

Containers that were created for a key that stores nothing, or for a line of a batch, end with the response.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from deployments.state.containers import StoredContainer
from deployments.state.files.store import StoredFile
from deployments.tools.code_interpreter.messages import CodeRun, ContainerGone
from serve_app.errors.api import NotFound
from serve_app.errors.capacity import QuotaExceeded, Unavailable
from serve_app.operations.containers.citations import WrittenFiles
from serve_app.operations.containers.files import expired
from serve_app.operations.containers.service import Containers, NewContainer, new_container_id
from serve_app.operations.responses.events.writer import Item
from serve_app.operations.responses.tools.contract import CheckedTool, CitingTool, ToolContext
from serve_app.schemas.responses.code_interpreter import NewContainerOptions

_ROOM_EVERY_S = 0.5
_ANEW = "[The container had expired, and its variables and files are gone. This ran in a new one.]"
_GONE = "The container has expired, and everything in it is gone."


class ContainerInUse(CheckedTool, CitingTool):
    """The container of a tool within one response.

    Without `auto`, `container_id` is the container that the request names. With it, it is the one that the conversation
    used last, if any; if that has ended, the first call creates another. `field` is the field of the tool that has it.
    """

    field = "container"

    def __init__(
        self,
        containers: Containers,
        context: ToolContext,
        auto: NewContainerOptions | None,
        container_id: str | None,
        files: Sequence[StoredFile],
    ) -> None:
        self._containers = containers
        self._context = context
        self._auto = auto
        self._container_id = container_id
        self._container: StoredContainer | None = None
        self._next_id = new_container_id()
        self._files = files
        self._has_files = False
        self._created: list[str] = []
        self._written = WrittenFiles()

    async def check(self) -> None:
        """Find the container to continue with. Raises NotFound if the request names one that is gone."""
        if self._container_id is None:
            return
        find_container = self._find_named if self._auto is None else self._find_last
        self._container = await find_container(self._context.principal.account, self._container_id)
        if self._container is not None:
            self._next_id = self._container.container_id

    async def _find_named(self, account: str, container_id: str) -> StoredContainer:
        param = f"{self._context.param}.{self.field}"
        try:
            container = await self._containers.look(account, container_id)
        except NotFound as missing:
            raise NotFound(missing.message, param=param) from None
        if not container.is_running:
            raise expired(container_id, param)
        return container

    async def _find_last(self, account: str, container_id: str) -> StoredContainer | None:
        with suppress(NotFound):
            container = await self._containers.find(account, container_id)
            return container if container.is_running else None
        return None

    def recall(self, cites: Any) -> None:
        """Restore the files that were written, and those not cited yet."""
        if cites is not None:
            self._written.recall(cites)

    async def _run(self, code: str, shown_id: str) -> tuple[CodeRun, str, str]:
        """Run code in the container, or in a new one if that has expired.

        `shown_id` is the container that the client has seen. Returns the result, a note if the container had expired,
        and the id of the one that ran the code.
        """
        if self._container is None and self._auto is not None:
            self._next_id = shown_id
        result, note = await self._run_somewhere(code)
        container_id = self._next_id
        self._written.add(container_id, result.files)
        if result.status == "died":
            self._forget()
        return result, note, container_id

    async def _run_somewhere(self, code: str) -> tuple[CodeRun, str]:
        note = ""
        if self._container is not None:
            try:
                if self._files and not self._has_files:  # This request may name others than the one before.
                    await self._containers.files.add_missing(self._container, self._files)
                    self._has_files = True
                return await self._containers.run(self._container, code), note
            except ContainerGone:
                self._forget()
                note = _ANEW
        if self._auto is None:
            raise ContainerGone(_GONE)
        new = NewContainer(memory_limit=self._auto.memory_limit, file_ids=[file.file_id for file in self._files])
        self._container = await self._create(new)
        self._has_files = True
        self._created.append(self._container.container_id)
        return await self._containers.run(self._container, code), note

    async def _create(self, new: NewContainer) -> StoredContainer:
        """Create a container; a line of a batch waits until there is room."""
        while True:
            try:
                return await self._containers.create(self._context.principal, new, self._next_id)
            except (QuotaExceeded, Unavailable):
                if not self._context.is_batch:
                    raise
            await asyncio.sleep(_ROOM_EVERY_S)

    def _forget(self) -> None:
        """Forget the container: the next call creates another, where it may."""
        self._container, self._has_files = None, False
        self._written.clear()
        if self._auto is not None:
            self._next_id = new_container_id()

    def cite(self, text: str) -> list[Item]:
        """Return citations of the files that code wrote."""
        # Nothing can be fetched from a container that ends with the response.
        return self._written.cite(text) if self._outlives else []

    @property
    def _outlives(self) -> bool:
        """Whether a container that this response creates stays after it."""
        return self._context.principal.retention != "strict" and not self._context.is_batch

    async def close(self) -> None:
        """End the containers that must not stay."""
        if not self._outlives:
            for container_id in self._created:
                with suppress(NotFound):
                    await self._containers.delete(self._context.principal.account, container_id)
