"""The stores of responses, conversations and chats, the lifetimes of objects, and the stored form of items."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.state.database.connection import Database
from deployments.state.encryption.vault import SealedTokens
from deployments.state.files.store import FileStore
from deployments.state.identity.principal import Principal
from deployments.state.quotas import ItemQuota
from deployments.state.responses.background import BackgroundStore
from deployments.state.responses.chats import ChatStore
from deployments.state.responses.conversations import ConversationStore
from deployments.state.responses.store import ResponseStore
from serve_app.operations.responses.events.items import CALLS
from serve_app.operations.responses.events.writer import Item, new_id
from serve_app.schemas.responses.client_calls import CALL_OUTPUTS
from serve_app.schemas.responses.items import AGENT_MESSAGE, COMPACTION_TRIGGER, EXTERNAL_ITEMS
from serve_app.schemas.responses.tools import BUILT_IN_ITEMS
from serve_app.schemas.responses.updates import ADDITIONAL_TOOLS, CONFIGURATION_UPDATE

EPHEMERAL_S = 86_400.0
STORED_S = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class Storage:
    """The stores of responses, conversations and chats, and of the files that they refer to."""

    responses: ResponseStore
    background: BackgroundStore
    conversations: ConversationStore
    chats: ChatStore
    sealer: SealedTokens
    files: FileStore
    item_quota: ItemQuota
    clock: Callable[[], float] = time.time

    def expires_at(self, principal: Principal) -> float | None:
        """Return when an object that this key stores now is deleted, None if the key stores nothing."""
        match principal.retention:
            case "strict":
                return None
            case "ephemeral":
                return self.clock() + EPHEMERAL_S
            case "stored" | "logged":
                return self.clock() + STORED_S


def storage_in(database: Database, files: FileStore, item_quota: ItemQuota | None = None, region: str = "") -> Storage:
    """Return the stores of a region in a database."""
    vault = files.vault
    return Storage(
        ResponseStore(database, vault),
        BackgroundStore(database, vault, region=region),
        ConversationStore(database, vault),
        ChatStore(database, vault),
        SealedTokens(vault),
        files,
        item_quota or ItemQuota(database),
    )


_PREFIXES = {
    "message": "msg",
    AGENT_MESSAGE: "amsg",
    **{kind: prefix for kind, (prefix, *_) in CALLS.items()},
    "function_call_output": "fco",
    "custom_tool_call_output": "ctco",
    **{kind: item.id_prefix for kind, item in BUILT_IN_ITEMS.items()},
    "reasoning": "rs",
    "compaction": "cmp",
    ADDITIONAL_TOOLS: "at",
    CONFIGURATION_UPDATE: "cfg",
    **EXTERNAL_ITEMS,
}
_KEPT = {
    "message": ("role", "content", "phase"),
    AGENT_MESSAGE: ("author", "recipient", "content"),
    **{kind: ("call_id", "name", field, "namespace") for kind, (*_, field) in CALLS.items()},
    **dict.fromkeys(CALL_OUTPUTS, ("call_id", "output")),
    **{
        kind: tuple(name for name in item.model_fields if name not in ("id", "type", "status"))
        for kind, item in BUILT_IN_ITEMS.items()
    },
    "reasoning": ("summary", "content", "encrypted_content"),
    "compaction": ("encrypted_content",),
    ADDITIONAL_TOOLS: ("role", "tools"),
    CONFIGURATION_UPDATE: ("reasoning", "text"),
}
_WITHOUT_STATUS = {AGENT_MESSAGE, "reasoning", "compaction", ADDITIONAL_TOOLS, CONFIGURATION_UPDATE} | {
    kind for kind, item in BUILT_IN_ITEMS.items() if "status" not in item.model_fields
}
_PART_FIELDS = {
    "input_text": ("text",),
    "input_image": ("image_url", "file_id", "detail"),
    "input_file": ("file_data", "file_id", "filename"),
    "output_text": ("text", "annotations", "logprobs"),
    "refusal": ("refusal",),
}


def items_of(given: str | Iterable[Item] | None, make_id: Callable[[str], str] = new_id) -> list[Item]:
    """Return a validated `input` as items to store, each with an id, a status and parts; references stay."""
    if given is None:
        return []
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    return [_item_of(item, make_id) for item in given]


def without_opened_text(items: Sequence[Item]) -> list[Item]:
    """Return items in stored form: without the text of compactions, which is opened only for the model."""
    return [
        {name: value for name, value in item.items() if name != "text"} if item["type"] == "compaction" else item
        for item in items
    ]


def _item_of(item: Item, make_id: Callable[[str], str]) -> Item:
    kind = item.get("type") or ("message" if "role" in item else "item_reference")
    if kind == COMPACTION_TRIGGER:
        return {"type": kind}
    if kind == "item_reference":
        return {"type": kind, "id": item["id"]}
    kept: Item = {"id": item.get("id") or make_id(_PREFIXES[kind]), "type": kind}
    if kind not in _WITHOUT_STATUS:
        kept["status"] = item.get("status") or "completed"
    if kind in EXTERNAL_ITEMS:
        return {**item, **kept}
    kept |= {name: item[name] for name in _KEPT[kind] if item.get(name) is not None}
    if kind == "message":
        kept["content"] = _parts_of(item["role"], item["content"])
    elif kind in CALL_OUTPUTS and isinstance(item["output"], list):
        kept["output"] = [_part_of(part) for part in item["output"]]
    return kept


def _parts_of(role: str, content: str | list[Item]) -> list[Item]:
    if isinstance(content, str):
        kind = "output_text" if role == "assistant" else "input_text"
        content = [{"type": kind, "text": content}]
    return [_part_of(part) for part in content]


def _part_of(part: Item) -> Item:
    kept: dict[str, Any] = {"type": part["type"]}
    kept |= {name: part[name] for name in _PART_FIELDS[part["type"]] if part.get(name) is not None}
    if part["type"] == "output_text":
        kept.setdefault("annotations", [])
        kept.setdefault("logprobs", [])
    elif part["type"] == "input_image":
        kept.setdefault("detail", "auto")
    return kept
