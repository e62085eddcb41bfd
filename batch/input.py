"""The input of a claimed batch: its validation, the index of its lines, and the retries of its reads.

`BatchRun` owns one. Reads are retried while the object store is away; an input that stays lost raises ContentLost.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from batch.config import BatchConfig
from batch.stores import Stores, retried, retry_outages
from batch.worker import must_stop
from deployments.state.batches.ledger import BatchState
from deployments.state.batches.rows import Batch
from deployments.state.batches.work import TooManyTokens
from deployments.state.files.store import FileNotFound, StoredFile
from deployments.state.identity.tiers import Tiers
from deployments.state.objects.store import ContentLost
from serve_app.validation.batch_lines import LineIndex, Place, Rules, Validation, index_lines, validate

INPUT_LOST: dict[str, Any] = {
    "code": "input_file_lost",
    "message": "The input file can no longer be read from storage. The output file has the lines that ran before.",
    "param": "input_file_id",
    "line": None,
}
_MAX_VALIDATIONS = 10
_READING = "Reading a batch's input"
_LOST_AFTER_CANCEL_S = 30.0
"""A cancelled batch waits less for a lost input, since it only needs the `custom_id` of each line."""


class BatchInput:
    """The input of one batch; `load_state` returns the batch's current state."""

    def __init__(
        self,
        stores: Stores,
        config: BatchConfig,
        tiers: Tiers,
        batch: Batch,
        load_state: Callable[[], Awaitable[BatchState]],
    ) -> None:
        self._files = retried(stores.files)
        self._work = retried(stores.work)
        self._config = config
        self._tiers = tiers
        self._batch = batch
        self._load_state = load_state

    async def index(self) -> LineIndex | None:
        """Return the index of the lines, which are validated first if need be; None if they are not valid.

        Raises:
            ContentLost: the content has been unreadable for too long.
            FileNotFound: the file is gone.
        """
        state = self._batch.state
        if state.status == "cancelling" and not state.num_total:
            return LineIndex()
        if state.num_total:
            return await retry_outages(_READING, self._read_index, lost_after_s=self.lost_after_s)
        found = await self._validate()
        if not found.errors:
            try:
                await self._begin(found)
                return found.index
            except TooManyTokens:
                found = self._too_many_tokens()
        state = await self._work.fail(self._batch.batch_id, state.epoch, found.errors)
        return LineIndex() if state.status == "cancelling" else None

    async def file(self) -> StoredFile:
        """Return the input file, expired or not.

        Raises:
            FileNotFound: the file is gone.
        """
        return await self._files.find(self._batch.account, self._batch.input_file_id, even_expired=True)

    async def read(self, file: StoredFile, places: Sequence[Place]) -> bytes:
        """Read these lines and return the last, to know that a worker's failure is not that of the object store.

        Raises:
            ContentLost: the content has been unreadable for too long, or at once if the batch must stop.
            FileNotFound: the file is gone.
        """

        async def read() -> bytes:
            reader = await self._files.open(file)
            content = b""
            for place in places:
                content = await reader.read(place.offset, place.offset + place.length)
            return content

        async def lost_after_s() -> float | None:
            return 0.0 if must_stop(await self._load_state()) else None

        return await retry_outages(_READING, read, lost_after_s=lost_after_s)

    async def lost_after_s(self) -> float | None:
        """Return after how many seconds an unreadable input counts as lost; None for the default."""
        return _LOST_AFTER_CANCEL_S if (await self._load_state()).status == "cancelling" else None

    async def _read_index(self) -> LineIndex:
        return await index_lines(self._files.read(await self.file()), self._config.max_line_bytes)

    async def _validate(self) -> Validation:
        batch = self._batch
        if batch.state.epoch > _MAX_VALIDATIONS:  # Every coordinator before died while validating it.
            return _invalid("internal_error", "The input file could not be validated. Please contact the operator.")
        try:
            found = await retry_outages(_READING, self._validate_file, lost_after_s=self.lost_after_s)
        except FileNotFound:
            return _invalid(
                "invalid_request",
                f"Cannot find file {batch.input_file_id}, or organization {batch.principal.organization} does not have "
                "access to it.",
                "file_id",
            )
        except ContentLost:
            return Validation(errors=[INPUT_LOST])
        return found

    async def _validate_file(self) -> Validation:
        batch, config, file = self._batch, self._config, await self.file()
        if file.expires_at <= batch.state.created_at:
            raise FileNotFound
        if file.purpose != "batch":
            message = f"File {file.file_id} was not uploaded with the purpose 'batch', but '{file.purpose}'."
            return _invalid("invalid_request", message, "file_id")
        rules = Rules(batch.endpoint, config.max_requests, config.max_line_bytes)
        return await validate(self._files.read(file), rules)

    async def _begin(self, found: Validation) -> None:
        """Note that the batch is valid.

        Raises:
            TooManyTokens: the account's unfinished batches would hold more than its tier allows.
        """
        counts = (len(found.index), found.estimated_tokens, self._tiers.of(self._batch.principal.tier).enqueued_tokens)
        await self._work.begin(self._batch, self._batch.state.epoch, *counts)

    def _too_many_tokens(self) -> Validation:
        principal = self._batch.principal
        max_tokens = self._tiers.of(principal.tier).enqueued_tokens
        return _invalid(
            "token_limit_exceeded",
            f"Enqueued token limit reached in organization {principal.organization}. Limit: {max_tokens} enqueued "
            "tokens. Please try again once some in_progress batches have been completed.",
        )


def _invalid(code: str, message: str, param: str | None = None) -> Validation:
    return Validation(errors=[{"code": code, "message": message, "param": param, "line": None}])
