"""The messages between the gatekeepers of two regions, and their form as bytes.

A request carries everything that one has for the other: asks for loans, room of earlier loans that was not used, and
how much of its keys' minutes it has used. The lender charges a loan in its own share, under a moment of its own clock
that lies after the loan's last one. Clocks are never compared: a loan's validity is a duration.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import orjson

from deployments.limits.messages import Posting, Standing

MAX_BYTES = 1024 * 1024
"""No message is longer: one has at most `MAX_ASKS` asks, and as many of everything else."""
MAX_ASKS = 2_000


class LoanAsk(NamedTuple):
    """An ask for up to so much room of a key."""

    key_id: str
    requests: int
    tokens: int


class LoanRequest(NamedTuple):
    """One region's part of an exchange.

    `regions` are the names of all regions, as the borrower knows them. `borrower` is its name and a random word for
    its process; `lender` the random word of the lender's process, as in its last reply. A request counts once for each
    `serial`, even if it comes again. Loans may be used for `valid_s` seconds after the request is sent. `refunds` name
    the `at` of loans. `replay_after` asks which loans were received with a later `at`, because the lender of those,
    who sends this, has lost its account.
    """

    regions: list[str]
    region: str
    borrower: str
    lender: str
    serial: int
    valid_s: float
    asks: list[LoanAsk]
    refunds: list[Posting]
    standings: dict[str, Standing]
    replay_after: float | None = None


class Lent(NamedTuple):
    """The answer to an ask: what was lent, charged at `at` on the lender's clock, perhaps nothing.

    If it is less than what was asked for, `wait_..._s` is when the rest would fit if nothing else is charged; else 0.
    """

    key_id: str
    at: float
    requests: int
    tokens: int
    wait_requests_s: float
    wait_tokens_s: float


class LoanReply(NamedTuple):
    """The lender's part of an exchange.

    `returned` is room that the lender of this reply had borrowed of the asking region and gives back. `replayed` are
    the loans that `replay_after` asked for, less what was refunded. If `is_stale` is true the request named another
    process of the lender, and nothing of it was applied. `problem` says why the two cannot exchange at all.
    """

    lender: str
    lent: list[Lent]
    returned: list[Posting]
    replayed: list[Posting]
    is_stale: bool = False
    problem: str | None = None


def render(message: LoanRequest | LoanReply) -> bytes:
    """Return a message as bytes."""
    return orjson.dumps(message, default=list)


def parse_request(rendered: bytes) -> LoanRequest:
    """Return the request that was rendered.

    Raises:
        ValueError: it is no request.
    """
    with _refusing("request for loans"):
        values = LoanRequest(*_list(rendered))
        return values._replace(
            asks=[LoanAsk(*ask) for ask in values.asks],
            refunds=[Posting(*posting) for posting in values.refunds],
            standings={key_id: Standing(*standing) for key_id, standing in values.standings.items()},
        )


def parse_reply(rendered: bytes) -> LoanReply:
    """Return the reply that was rendered.

    Raises:
        ValueError: it is no reply.
    """
    with _refusing("reply about loans"):
        values = LoanReply(*_list(rendered))
        return values._replace(
            lent=[Lent(*one) for one in values.lent],
            returned=[Posting(*posting) for posting in values.returned],
            replayed=[Posting(*posting) for posting in values.replayed],
        )


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Raise ValueError where values are not of the shape that the message has."""
    try:
        yield
    except (TypeError, AttributeError) as error:
        raise ValueError(f"This is no {what}: {type(error).__name__}.") from None


def _list(rendered: bytes) -> list[Any]:
    values: list[Any] = orjson.loads(rendered)
    return values
