"""Which account's request an engine takes next: accounts share it by the tokens that it reads and writes for them.

Each account has a counter of its served tokens, divided by its share. The account with the lowest counter is next. An
account that returns after a pause starts at the lowest counter of the active accounts, so that no account saves up for
later. This is the virtual token counter of "Fairness in Serving Large Language Models" (Sheng et al., OSDI 2024); a
prompt's and an answer's tokens count alike here.
"""

import heapq
import math
from collections.abc import Iterable, Iterator
from itertools import chain

from vllm.v1.core.sched.request_queue import PriorityRequestQueue, RequestQueue
from vllm.v1.request import Request

from deployments.models.contract.engine import payer_of

RECENT_S = 10.0
"""For about this long, served tokens count as recent."""
LIGHT = 1 / 8
"""An account that recently got less than this part of its share is light: its prompts are read before others continue.
So at most this part of all steps holds only prompts of light accounts."""


class Payer:
    """An account in an engine, with `num` interactive requests.

    `served` are its tokens divided by its share, `taken` those of the step that is being planned.
    """

    __slots__ = ("is_light", "name", "num", "recent", "served", "share", "taken")

    def __init__(self, name: str) -> None:
        self.name = name
        self.share = 1.0
        self.num = 0
        self.served = self.taken = self.recent = 0.0
        self.is_light = False


class Shares:
    """The accounts of an engine; `active` accounts have an interactive request."""

    def __init__(self, recent_s: float = RECENT_S) -> None:
        self.active: set[Payer] = set()
        self._recent_s = recent_s
        self._known: dict[str, Payer] = {}
        self._floor = 0.0
        self._weighed_at = 0.0

    def join(self, request: Request) -> None:
        """Count a new request, and set its `payer`."""
        name, share = payer_of(request.cache_salt)
        payer = self._known.get(name)
        if payer is None:
            payer = self._known[name] = Payer(name)
        request.payer = payer
        if is_background(request):
            return
        payer.share = share
        if not payer.num:
            floor = min((other.served for other in self.active), default=self._floor)
            payer.served = max(payer.served, floor)
            self.active.add(payer)
        payer.num += 1

    def leave(self, request: Request) -> None:
        """Stop counting a request that has ended."""
        payer: Payer = request.payer
        if is_background(request):
            return
        payer.num -= 1
        if not payer.num:
            payer.is_light = False
            self.active.discard(payer)
            self._floor = payer.served

    def charge(self, payer: Payer, num_tokens: int) -> None:
        """Count served tokens of an account."""
        payer.served += num_tokens / payer.share
        payer.recent += num_tokens

    def weigh(self, now: float) -> None:
        """Find the light accounts for a step, and forget accounts without recent tokens."""
        fading = math.exp((self._weighed_at - now) / self._recent_s)
        self._weighed_at = now
        for payer in list(self._known.values()):
            payer.recent *= fading
            if payer.recent < 1 and not payer.num:
                del self._known[payer.name]
        if not self.active:
            return
        fair = sum(payer.recent for payer in self._known.values()) / sum(payer.share for payer in self.active)
        for payer in self.active:
            payer.taken = 0.0
            payer.is_light = len(self.active) > 1 and payer.recent < LIGHT * fair * payer.share


class FairQueue(RequestQueue):  # type: ignore[misc]  # vLLM is not typed here.
    """Waiting requests: by priority, then by account, then by time of arrival; the background comes last."""

    def __init__(self) -> None:
        self._heaps: dict[Payer, list[Request]] = {}
        self._background = PriorityRequestQueue()

    def add_request(self, request: Request) -> None:
        """Add a request that has joined `Shares`."""
        if is_background(request):
            self._background.add_request(request)
        else:
            heapq.heappush(self._heaps.setdefault(request.payer, []), request)

    def peek_request(self) -> Request:
        """Return the next request, or raise IndexError."""
        return self._first()[0] if self._heaps else self._background.peek_request()

    def pop_request(self) -> Request:
        """Remove and return the next request, or raise IndexError."""
        if not self._heaps:
            return self._background.pop_request()
        heap = self._first()
        request = heapq.heappop(heap)
        if not heap:
            del self._heaps[request.payer]
        request.payer.taken += (request.num_tokens - request.num_computed_tokens) / request.payer.share
        return request

    def prepend_request(self, request: Request) -> None:
        """Add a request; its position depends on its time of arrival."""
        self.add_request(request)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        """Add the requests of another queue."""
        for request in requests:
            self.add_request(request)

    def remove_request(self, request: Request) -> None:
        """Remove a waiting request."""
        self.remove_requests([request])

    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Remove waiting requests; others are ignored."""
        gone = set(requests)
        self._background.remove_requests(gone)
        for payer in {request.payer for request in gone} & self._heaps.keys():
            left = [request for request in self._heaps.pop(payer) if request not in gone]
            if left:
                heapq.heapify(left)
                self._heaps[payer] = left

    def interactive(self) -> Iterator[Request]:
        """Return the interactive requests, in any order."""
        return chain.from_iterable(self._heaps.values())

    def _first(self) -> list[Request]:
        return min(self._heaps.values(), key=lambda heap: in_turn(heap[0]))

    def __bool__(self) -> bool:
        return bool(self._heaps) or bool(self._background)

    def __len__(self) -> int:
        return sum(map(len, self._heaps.values())) + len(self._background)

    def __iter__(self) -> Iterator[Request]:
        yield from self.interactive()
        yield from self._background


def is_background(request: Request) -> bool:
    """Return whether a request is a line of a batch, or of the service tier flex; shares ignore these."""
    return bool(request.priority > 0)


def in_turn(request: Request) -> tuple[object, ...]:
    """Return the key by which waiting requests are sorted; the smallest is next."""
    payer: Payer = request.payer
    if is_background(request):
        return (request.priority, False, 0.0, request.arrival_time)
    return (request.priority, not payer.is_light, payer.served + payer.taken, request.arrival_time)
