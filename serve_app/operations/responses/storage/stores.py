"""What the responses interface keeps, in one value, and for how long."""

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from deployments.state.database.connection import Database
from deployments.state.encryption.sealed_tokens import SealedTokens
from deployments.state.encryption.vault import Vault
from deployments.state.files.store import FileStore, StoredFile
from deployments.state.identity.principal import Principal
from deployments.state.responses.background import BackgroundStore
from deployments.state.responses.conversations import ConversationStore
from deployments.state.responses.protocol import BackgroundResponses, Conversations, Responses
from deployments.state.responses.store import ResponseStore

EPHEMERAL_S = 86_400.0
STORED_S = 30 * 86_400.0


class Files(Protocol):
    """The stored files of all accounts; kept by `deployments.state.files.store.FileStore`."""

    async def find(self, account: str, file_id: str) -> StoredFile:
        """Return one file of an account; raises FileNotFound."""
        ...

    def read(self, file: StoredFile) -> AsyncIterator[bytes]:
        """Yield the content of a file; raises FileNotFound and StoreUnavailable."""
        ...


class Tokens(Protocol):
    """Seals texts that the client keeps for the service, for one account."""

    def seal(self, text: str) -> str:
        """Return a token that holds the text."""
        ...

    def open(self, token: str) -> str | None:
        """Return the text of a token, None if it is not one of this account."""
        ...


class Sealer(Protocol):
    """Whose tokens are whose."""

    async def of(self, account: str) -> Tokens:
        """Return what seals and opens the tokens of an account."""
        ...


@dataclass(frozen=True, slots=True)
class Storage:
    """Where responses and conversations are kept, and the files that they refer to."""

    responses: Responses
    background: BackgroundResponses
    conversations: Conversations
    sealer: Sealer
    files: Files
    clock: Callable[[], float] = time.time

    def expires_at(self, principal: Principal) -> float | None:
        """Return when what is stored now for this key goes, None if nothing may be stored."""
        match principal.retention:
            case "strict":
                return None
            case "ephemeral":
                return self.clock() + EPHEMERAL_S
            case "stored":
                return self.clock() + STORED_S


def storage_in(database: Database, vault: Vault, files: FileStore) -> Storage:
    """Return what is kept in a database, and the files beside it."""
    return Storage(
        ResponseStore(database, vault),
        BackgroundStore(database, vault),
        ConversationStore(database, vault),
        SealedTokens(vault),
        files,
    )
