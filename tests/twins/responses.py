"""Responses and conversations in this process's memory; they keep the contracts of `state.responses.protocol`."""

import copy
import secrets
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from deployments.state.database.lease_watch import LeaseWatch
from deployments.state.responses.protocol import (
    Claimed,
    Conversation,
    ConversationMissing,
    Followed,
    LeaseLost,
    Page,
    PastTurn,
    StoredTurn,
    TurnMissing,
    TurnUnfinished,
)


@dataclass
class _Kept:
    account: str
    turn: StoredTurn
    expires_at: float


@dataclass
class _Job:
    job: Any
    epoch: int
    lease_until: float
    journal: list[bytes] = field(default_factory=list)
    is_cancelled: bool = False


@dataclass
class _Talk:
    account: str
    conversation: Conversation
    expires_at: float
    items: list[Any] = field(default_factory=list)


class MemoryState:
    """What the twins share, as tables of one database would be."""

    def __init__(self, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.watch = LeaseWatch(monotonic)
        self.kept: dict[str, _Kept] = {}
        self.jobs: dict[str, _Job] = {}
        self.events: dict[str, list[bytes]] = {}
        self.talks: dict[str, _Talk] = {}

    def living(self, account: str, response_id: str) -> _Kept | None:
        found = self.kept.get(response_id)
        if found is None or found.account != account or found.expires_at <= self.clock():
            return None
        return found

    def talk(self, account: str, conversation_id: str) -> _Talk:
        found = self.talks.get(conversation_id)
        if found is None or found.account != account or found.expires_at <= self.clock():
            raise ConversationMissing
        return found

    def append(self, talk: _Talk, items, expires_at: float):
        taken = {item["id"] for item in talk.items}
        kept = []
        for item in copy.deepcopy(list(items)):
            if item["id"] in taken:
                item["id"] = f"{item['id'].partition('_')[0]}_{secrets.token_hex(16)}"
            taken.add(item["id"])
            kept.append(item)
        talk.items += kept
        talk.expires_at = max(talk.expires_at, expires_at)
        return kept


class MemoryResponses:
    """Keeps `Responses`."""

    def __init__(self, state: MemoryState) -> None:
        self.state = state

    async def save(self, account, turn, *, expires_at, conversation_id=None):
        self.state.kept[turn.id] = _Kept(account, copy.deepcopy(turn), expires_at)
        if conversation_id in self.state.talks:
            self.state.append(self.state.talks[conversation_id], turn.items, expires_at)

    async def load(self, account, response_id):
        found = self.state.living(account, response_id)
        return None if found is None else copy.deepcopy(found.turn)

    async def chain(self, account, response_id):
        found = self.state.living(account, response_id)
        if found is None:
            raise TurnMissing(response_id)
        if response_id in self.state.jobs:
            raise TurnUnfinished
        turns = []
        while found is not None:
            turns.append(PastTurn(copy.deepcopy(found.turn.items), found.turn.runs))
            before = found.turn.response["previous_response_id"]
            if before is None:
                return turns[::-1]
            found = self.state.kept.get(before)
        raise TurnMissing(before)

    async def delete(self, account, response_id):
        found = self.state.living(account, response_id) is not None
        if found:
            for table in (self.state.kept, self.state.jobs, self.state.events):
                table.pop(response_id, None)
        return found

    async def find_items(self, account, item_ids):
        now = self.state.clock()
        turns = [k.turn.items for k in self.state.kept.values() if k.account == account and k.expires_at > now]
        talks = [t.items for t in self.state.talks.values() if t.account == account and t.expires_at > now]
        items = [item for some in (*turns, *talks) for item in some]
        return {item["id"]: copy.deepcopy(item) for item in items if item["id"] in set(item_ids)}

    async def find_runs(self, account, item_ids):
        now = self.state.clock()
        turns = [k.turn for k in self.state.kept.values() if k.account == account and k.expires_at > now]
        return {item_id: list(run) for turn in turns for item_id, run in turn.runs.items() if item_id in item_ids}

    async def sweep(self):
        total = 0
        while True:
            continued = {kept.turn.response["previous_response_id"] for kept in self.state.kept.values()}
            expired = [
                response_id
                for response_id, kept in self.state.kept.items()
                if kept.expires_at <= self.state.clock() and response_id not in continued
            ]
            for response_id in expired:
                for table in (self.state.kept, self.state.jobs, self.state.events):
                    table.pop(response_id, None)
            total += len(expired)
            if not expired:
                return total


class MemoryBackground:
    """Keeps `BackgroundResponses`."""

    def __init__(self, state: MemoryState) -> None:
        self.state = state

    async def start(self, account, turn, job, *, events, expires_at, lease_s):
        self.state.kept[turn.id] = _Kept(account, copy.deepcopy(turn), expires_at)
        until = self.state.clock() + lease_s
        self.state.jobs[turn.id] = _Job(copy.deepcopy(job), 1, until)
        self.state.events[turn.id] = list(events)
        return 1

    def _job(self, response_id, epoch):
        job = self.state.jobs.get(response_id)
        if job is None or job.epoch != epoch:
            raise LeaseLost
        return job

    async def append(self, account, response_id, epoch, events, *, journal=(), status, lease_s):
        job = self._job(response_id, epoch)
        job.lease_until = self.state.clock() + lease_s
        self.state.events[response_id] += events
        job.journal += journal
        if events:
            self.state.kept[response_id].turn.response["status"] = status
        return job.is_cancelled

    async def finish(self, account, turn, epoch, events, *, conversation_id=None):
        self._job(turn.id, epoch)
        self.state.events[turn.id] += events
        del self.state.jobs[turn.id]
        kept = self.state.kept[turn.id]
        kept.turn = copy.deepcopy(turn)
        if conversation_id in self.state.talks:
            self.state.append(self.state.talks[conversation_id], turn.items, kept.expires_at)

    async def follow(self, account, response_id, after):
        if self.state.living(account, response_id) is None:
            return None
        events = self.state.events.get(response_id, [])[after + 1 :]
        return Followed(events, is_running=response_id in self.state.jobs)

    async def cancel(self, account, response_id):
        job = self.state.jobs.get(response_id)
        if job is None or self.state.kept[response_id].account != account:
            return False
        job.is_cancelled = True
        return True

    async def release(self, response_id, epoch):
        job = self.state.jobs.get(response_id)
        if job is not None and job.epoch == epoch:
            job.lease_until = 0.0

    async def claim(self, lease_s):
        now = self.state.clock()
        for response_id, job in self.state.jobs.items():
            value = (job.epoch, job.lease_until)
            if job.lease_until > now and not (
                job.lease_until > now + lease_s and self.state.watch.is_abandoned(response_id, value, lease_s)
            ):
                continue
            job.epoch += 1
            job.lease_until = now + lease_s
            kept, events = self.state.kept[response_id], list(self.state.events[response_id])
            turn = copy.deepcopy(kept.turn)
            return Claimed(kept.account, turn, job.job, job.epoch, events, list(job.journal), job.is_cancelled)
        return None


class MemoryConversations:
    """Keeps `Conversations`."""

    def __init__(self, state: MemoryState) -> None:
        self.state = state

    async def create(self, account, metadata, items, *, expires_at):
        conversation = Conversation(f"conv_{secrets.token_hex(16)}", int(self.state.clock()), dict(metadata))
        talk = self.state.talks[conversation.id] = _Talk(account, conversation, expires_at)
        self.state.append(talk, items, expires_at)
        return conversation

    async def load(self, account, conversation_id):
        try:
            return self.state.talk(account, conversation_id).conversation
        except ConversationMissing:
            return None

    async def update(self, account, conversation_id, metadata):
        conversation = await self.load(account, conversation_id)
        if conversation is None:
            return None
        talk = self.state.talks[conversation_id]
        talk.conversation = Conversation(conversation.id, conversation.created_at, dict(metadata))
        return talk.conversation

    async def delete(self, account, conversation_id):
        found = await self.load(account, conversation_id) is not None
        if found:
            del self.state.talks[conversation_id]
        return found

    async def add_items(self, account, conversation_id, items, *, expires_at):
        return self.state.append(self.state.talk(account, conversation_id), items, expires_at)

    async def all_items(self, account, conversation_id):
        return copy.deepcopy(self.state.talk(account, conversation_id).items)

    async def list_items(self, account, conversation_id, *, limit, is_ascending, after):
        items = await self.all_items(account, conversation_id)
        if not is_ascending:
            items.reverse()
        if after is not None:
            places = [index for index, item in enumerate(items) if item["id"] == after]
            if not places:
                raise KeyError(after)
            items = items[places[0] + 1 :]
        return Page(items[:limit], has_more=len(items) > limit)

    async def load_item(self, account, conversation_id, item_id):
        items = await self.all_items(account, conversation_id)
        return next((item for item in items if item["id"] == item_id), None)

    async def delete_item(self, account, conversation_id, item_id):
        talk = self.state.talk(account, conversation_id)
        before = len(talk.items)
        talk.items = [item for item in talk.items if item["id"] != item_id]
        return len(talk.items) < before

    async def sweep(self):
        gone = [key for key, talk in self.state.talks.items() if talk.expires_at <= self.state.clock()]
        for key in gone:
            del self.state.talks[key]
        return len(gone)


class MemorySealer:
    """Keeps `Sealer`: tokens that say whose they are, and hide their text only from a search."""

    async def of(self, account):
        return _MemoryTokens(account)


class _MemoryTokens:
    def __init__(self, account: str) -> None:
        self.account = account

    def seal(self, text: str) -> str:
        return b64encode(f"{self.account}\0{text}".encode()).decode()

    def open(self, token: str) -> str | None:
        try:
            account, _, text = b64decode(token, validate=True).decode().partition("\0")
        except ValueError:
            return None
        return text if account == self.account else None
