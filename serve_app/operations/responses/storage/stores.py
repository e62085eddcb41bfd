"""The stores of the responses interface, in one value, and the lifetimes of what they hold."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from deployments.state.database.connection import Database
from deployments.state.encryption.vault import SealedTokens
from deployments.state.files.store import FileStore
from deployments.state.identity.principal import Principal
from deployments.state.item_quota import ItemQuota
from deployments.state.responses.background import BackgroundStore
from deployments.state.responses.conversations import ConversationStore
from deployments.state.responses.store import ResponseStore

EPHEMERAL_S = 86_400.0
STORED_S = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class Storage:
    """The stores of responses and conversations, and of the files that they refer to."""

    responses: ResponseStore
    background: BackgroundStore
    conversations: ConversationStore
    sealer: SealedTokens
    files: FileStore
    item_quota: ItemQuota
    clock: Callable[[], float] = time.time

    def expires_at(self, principal: Principal) -> float | None:
        """Return when an object stored now for this key is deleted, None if nothing may be stored."""
        match principal.retention:
            case "strict":
                return None
            case "ephemeral":
                return self.clock() + EPHEMERAL_S
            case "stored":
                return self.clock() + STORED_S


def storage_in(database: Database, files: FileStore, item_quota: ItemQuota | None = None, region: str = "") -> Storage:
    """Return the stores in a database, with the files beside it, as a region has them."""
    vault = files.vault
    return Storage(
        ResponseStore(database, vault),
        BackgroundStore(database, vault, region=region),
        ConversationStore(database, vault),
        SealedTokens(vault),
        files,
        item_quota or ItemQuota(database),
    )
