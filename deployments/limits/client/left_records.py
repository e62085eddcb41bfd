"""Hands over the request records of ingress replicas that died on this node. An ingress replica has one.

Each is written down once, whoever hands it over and however often: the database knows each request by its id.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from deployments.limits.client.record_journal import LeftFile, take_left_files
from deployments.limits.client.request_log import ShippedRequestLog
from deployments.limits.messages import Transport
from deployments.waiting import Watch

logger = logging.getLogger(__name__)

MAX_AGE_S = 86_400.0
"""Older records are left out: the database keeps the ids of requests for a day at least, and knows no older ones."""
_INTERVAL_S = 3.0


class LeftRecords(Watch):
    """Looks for such records in `directory` every few seconds; what is not handed over at its end stays for others."""

    def __init__(self, directory: Path, transport: Transport, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._transport = transport
        self._clock = clock

    async def hand_over(self) -> int:
        """Hand over what is there now; return how many records that were.

        Raises:
            OSError: the directory cannot be read.
        """
        found = await asyncio.to_thread(lambda: list(take_left_files(self._directory)))
        try:
            return sum([await self._hand_over(file) for file in found])
        finally:
            for file in found:
                file.close()

    async def _hand_over(self, file: LeftFile) -> int:
        log = ShippedRequestLog(self._transport, background=False)
        records = [one for one in file.records if one.at > self._clock() - MAX_AGE_S]
        for record in records:
            log.record(record)
        await log.until_kept()
        file.delete()
        return len(records)

    async def _keep(self) -> None:
        while True:
            try:
                if num_records := await self.hand_over():
                    logger.info("%d request records of a replica that has died were handed over.", num_records)
            except OSError as error:
                logger.warning("Records of replicas that have died cannot be read: %s", error.strerror)
            await asyncio.sleep(_INTERVAL_S)
