"""The vector stores of accounts: created, updated, filled and emptied. Files are indexed after requests."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from deployments.state.files.store import FileStore
from deployments.state.identity.principal import Principal
from deployments.state.vector_stores.files import StoredStoreBatch, VectorStoreFiles
from deployments.state.vector_stores.rows import (
    Attributes,
    NewStore,
    NewStoreFile,
    StoreBatchMissing,
    StoredStore,
    StoredStoreFile,
    StoreFileMissing,
    StoreFull,
    StoreHasExpired,
    StoreMissing,
)
from deployments.state.vector_stores.store import StoreChange, VectorStores
from deployments.tools.config import FileSearchConfig
from serve_app.errors.api import BadRequest, NotFound, RetentionForbids, shorten
from serve_app.errors.capacity import QuotaExceeded
from serve_app.schemas.vector_stores import StoreCreateRequest, StoreFileRequest, StoreUpdateRequest, chunking_to_wire

EXPIRED = "vector_store_expired"


@contextmanager
def translated(store_id: str, other_id: str = "", most: int = 0, param: str | None = None) -> Iterator[None]:
    """Context manager that translates errors of vector stores into API errors.

    `other_id` is the id of a file or a batch in the store, `most` how many files it may hold.

    Raises:
        NotFound: there is no such store, file or batch.
        BadRequest: the store has expired.
        QuotaExceeded: the store would have too many files.
    """
    try:
        yield
    except StoreMissing:
        raise no_store(store_id, param) from None
    except StoreFileMissing:
        raise NotFound(f"No file found with id '{shorten(other_id)}' in this vector store.") from None
    except StoreBatchMissing:
        raise NotFound(f"No file batch found with id '{shorten(other_id)}' in this vector store.") from None
    except StoreHasExpired:
        raise expired(store_id, param) from None
    except StoreFull:
        raise QuotaExceeded(
            f"A vector store holds at most {most} files. Remove some, or use another store.",
            code="too_many_vector_store_files",
        ) from None


def no_store(store_id: str, param: str | None = None) -> NotFound:
    """Return the error for a store that does not exist."""
    return NotFound(f"Vector store with id '{shorten(store_id)}' not found.", param=param)


def expired(store_id: str, param: str | None = None) -> BadRequest:
    """Return the error for a store that has expired."""
    return BadRequest(
        f"Vector store with id '{shorten(store_id)}' has expired, and its content is gone. Create a new one.",
        param=param,
        code=EXPIRED,
    )


def too_many_stores(limit: int) -> QuotaExceeded:
    """Return the error for an account with too many vector stores."""
    return QuotaExceeded(
        f"You have {limit} vector stores, which is the limit. Delete those you no longer need.",
        code="too_many_vector_stores",
    )


WHAT = "vector stores, whose files are stored"


class VectorStoreService:
    """The vector stores of all accounts. Methods raise NotFound if the account has no such store.

    `wake` makes the indexer look for work; the indexer sets it.
    """

    def __init__(self, stores: VectorStores, uploads: FileStore, config: FileSearchConfig) -> None:
        self.stores = stores
        self.files = VectorStoreFiles(stores)
        self.config = config
        self.uploads = uploads
        self.wake: Callable[[], None] = lambda: None

    async def create(
        self, principal: Principal, body: StoreCreateRequest, max_objects: int | None = None
    ) -> StoredStore:
        """Create a store, and put files into it.

        Raises:
            RetentionForbids: the key stores nothing.
            NotFound: there is no such file.
            QuotaExceeded, TooManyObjects: the account has too many stores or objects.
        """
        if principal.retention == "strict":
            raise RetentionForbids(WHAT)
        wanted = [
            StoreFileRequest(file_id=file_id, chunking_strategy=body.chunking_strategy)
            for file_id in body.file_ids or ()
        ]
        new_files = await self._new_files(principal, wanted, "file_ids[{index}]")
        new = NewStore(
            store_id=f"vs_{secrets.token_hex(16)}",
            account=principal.account,
            embedding_model=self.config.embedding_model,
            name=body.name or "",
            description=body.description,
            metadata=body.metadata or {},
            expires_after_days=body.expires_after.days if body.expires_after is not None else None,
        )
        try:
            await self.stores.create(new, self.config.max_stores_per_account, max_objects)
        except StoreFull:
            raise too_many_stores(self.config.max_stores_per_account) from None
        if new_files:
            await self._attach(principal, new.store_id, new_files)
        return await self.find(principal.account, new.store_id)

    async def find(self, account: str, store_id: str) -> StoredStore:
        """Return a store, even if it has expired."""
        with translated(store_id):
            return await self.stores.find(account, store_id)

    async def update(self, account: str, store_id: str, body: StoreUpdateRequest) -> StoredStore:
        """Change the fields that the body sets; return the store. Raises BadRequest if the store has expired."""
        change = StoreChange(
            name=body.name,
            metadata=body.metadata or {} if "metadata" in body.model_fields_set else None,
            sets_expiry="expires_after" in body.model_fields_set,
            expires_after_days=body.expires_after.days if body.expires_after is not None else None,
        )
        with translated(store_id):
            return await self.stores.update(account, store_id, change)

    async def delete(self, account: str, store_id: str) -> None:
        """Delete a store and its content; the files themselves stay."""
        with translated(store_id):
            await self.stores.delete(account, store_id)
        self.wake()

    async def attach(
        self, principal: Principal, store_id: str, wanted: Sequence[StoreFileRequest], param: str, batch: bool = False
    ) -> str:
        """Put files into a store; return the id of their batch, "" without one.

        `param` names each file in errors, with "{index}" for its number.

        Raises:
            RetentionForbids: the key stores nothing.
            NotFound: there is no such file.
            BadRequest, QuotaExceeded: the store has expired, or is full.
        """
        if principal.retention == "strict":
            raise RetentionForbids(WHAT)
        if not await self.stores.find_all(principal.account, [store_id]):
            raise no_store(store_id)
        batch_id = f"vsfb_{secrets.token_hex(16)}" if batch else ""
        await self._attach(principal, store_id, await self._new_files(principal, wanted, param), batch_id)
        return batch_id

    async def _attach(
        self, principal: Principal, store_id: str, new: Sequence[NewStoreFile], batch_id: str = ""
    ) -> None:
        most = self.config.max_files_per_store
        with translated(store_id, most=most):
            await self.files.attach(principal, store_id, new, most, batch_id or None)
        self.wake()

    async def _new_files(
        self, principal: Principal, wanted: Sequence[StoreFileRequest], param: str
    ) -> list[NewStoreFile]:
        found = await self.uploads.find_all(principal.account, [one.file_id for one in wanted])
        new = []
        for index, one in enumerate(wanted):
            file = found.get(one.file_id)
            if file is None:
                at = param.format(index=index)
                raise NotFound(f"No such File object: {shorten(one.file_id)}", param=at)
            chunking = chunking_to_wire(one.chunking_strategy)
            new.append(NewStoreFile(file.file_id, file.filename, file.expires_at, chunking, one.attributes or {}))
        return new

    async def find_file(self, account: str, store_id: str, file_id: str) -> StoredStoreFile:
        """Return a file in a store."""
        with translated(store_id, file_id):
            return await self.files.find(account, store_id, file_id)

    async def set_attributes(
        self, account: str, store_id: str, file_id: str, attributes: Attributes | None
    ) -> StoredStoreFile:
        """Replace the attributes of a file in a store; return it."""
        with translated(store_id, file_id):
            return await self.files.set_attributes(account, store_id, file_id, attributes or {})

    async def detach(self, account: str, store_id: str, file_id: str) -> None:
        """Take a file out of a store; the file itself stays."""
        with translated(store_id, file_id):
            await self.files.detach(account, store_id, file_id)
        self.wake()

    async def find_batch(self, account: str, store_id: str, batch_id: str) -> StoredStoreBatch:
        """Return a batch of files."""
        with translated(store_id, batch_id):
            return await self.files.find_batch(account, store_id, batch_id)

    async def cancel_batch(self, account: str, store_id: str, batch_id: str) -> StoredStoreBatch:
        """Cancel the files of a batch that are not indexed yet; return the batch."""
        with translated(store_id, batch_id):
            return await self.files.cancel_batch(account, store_id, batch_id)
