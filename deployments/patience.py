"""Timeouts: how long the parts of the service wait for each other before they do something else.

`app.build` creates one `Patience` and passes it to everything that waits. The reference page of timings is generated
from it. Not here: windows, leases and caches, which make limits exact, and the intervals of work that nobody waits for.
"""

from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Final, Self


@dataclass(frozen=True, slots=True)
class Wait:
    """What one timeout is for.

    `promised` is the page of the documentation that promises it. `fixed` says why a slow machine does not lengthen it.
    """

    meaning: str
    promised: str = ""
    fixed: str = ""


def wait(usual_s: float, meaning: str, promised: str = "", fixed: str = "") -> Any:
    """Return the field of a timeout: how long it is unless something else is given, and its `Wait`."""
    return field(default=usual_s, metadata={"wait": Wait(meaning, promised, fixed)})


@dataclass(frozen=True, slots=True)
class Patience:
    """The service's timeouts, in seconds."""

    # A request, and its client.
    stream_begins_s: float = wait(
        2.0,
        "The first piece of a stream. Then the headers are sent, and a later failure is an event in the stream.",
        promised="explain/streams.md",
        fixed="clients and load balancers soon give up on a silent connection",
    )
    response_begins_s: float = wait(
        0.25,
        "The model, to refuse a streamed response with a status. Then the stream begins with the created response, "
        "and a later failure is an event in it.",
        promised="explain/streams.md",
    )

    summary_s: float = wait(
        10.0,
        "The model, to write a part of the summary of its reasoning. Then the answer goes on without its rest.",
        promised="guides/responses.md",
    )

    # A request, and the gatekeeper.
    away_after_s: float = wait(
        0.3,
        "From the first failed try to reach the gatekeeper until a replica decides alone, within its share.",
        promised="operate/failures.md",
    )
    back_soon_s: float = wait(
        1.1,
        "After that, a key that has used more than half of its minute waits for the gatekeeper. A gatekeeper that "
        "was killed is back after about a second; one on a lost node takes longer.",
        promised="explain/limits.md",
    )
    sync_s: float = wait(
        0.7, "One sync with the gatekeeper. Without an answer it has failed.", promised="explain/limits.md"
    )
    identify_s: float = wait(
        0.5, "The gatekeeper, to look up a key. Then the database is asked.", promised="operate/failures.md"
    )
    stored_key_s: float = wait(2.0, "The database, to look up a key while the gatekeeper is away.")
    look_up_s: float = wait(5.0, "All tries to look up a key. Then the answer is a 503.")
    crossing_s: float = wait(0.4, "Room from another region. Then a request is refused.", promised="explain/limits.md")
    region_s: float = wait(
        1.0, "Another region, to accept a connection or to answer. Meanwhile this region stays within its share."
    )
    call_s: float = wait(2.0, "A call to the gatekeeper that no request waits for.")
    find_s: float = wait(
        0.3,
        "A call that asks where the gatekeeper listens. Then a second call is made.",
        fixed="the first may still be answered, unless its gatekeeper was killed",
    )
    retry_s: float = wait(
        0.05, "Between two tries when the gatekeeper fails at once.", fixed="it bounds how often it is tried"
    )
    trust_s: float = wait(
        0.6,
        "How long after a sync a cached key is trusted. A later request waits for the next sync.",
        promised="explain/security.md",
        fixed="a revoked key is refused within a second",
    )
    key_look_s: float = wait(
        0.25,
        "Between two checks of the keys of running answers.",
        promised="explain/security.md",
        fixed="with trust_s, it ends the answers of a revoked key within a second",
    )
    away_grace_s: float = wait(
        300.0,
        "How long a cached key is accepted while the gatekeeper is away.",
        promised="explain/limits.md",
        fixed="it bounds how long a revoked key may work",
    )

    # The gatekeeper.
    recovery_s: float = wait(
        1.0,
        "A gatekeeper that has just started, for its clients to report their grants. Longer than a sync may take, "
        "since a sync tells a client that the gatekeeper is back.",
        promised="explain/limits.md",
    )
    look_s: float = wait(1.0, "The database, to read new keys for the gatekeeper: one round trip, two at first.")
    look_again_s: float = wait(
        0.1, "Between two such reads for unknown keys.", fixed="it bounds what made-up keys cost the database"
    )
    look_pause_s: float = wait(
        2.0, "After a failed read, until the next.", fixed="calls of others have their turn meanwhile"
    )
    start_s: float = wait(
        10.0,
        "The starting gatekeeper, for its database. Then it takes calls and keeps trying.",
        fixed="the process that starts the gatekeeper waits for at most a minute",
    )
    notice_s: float = wait(
        0.6,
        "A gatekeeper that moves to another node gives notice for this long before it stops.",
        fixed="it covers two syncs of every client, and a draining node does not wait",
    )
    stop_s: float = wait(
        15.0,
        "A stopping gatekeeper or ingress replica, to hand over what is not yet in the database.",
        fixed="the process that stops the service does not wait longer",
    )
    hand_over_s: float = wait(
        20.0, "On a node without an ingress replica, to hand over the records left there. Later it is tried again."
    )

    # The side channel.
    connect_s: float = wait(
        1.5,
        "A connection within the cluster. The kernel answers for a busy process, and resends a lost packet after a "
        "second, so only a lost node takes longer.",
    )
    hello_s: float = wait(2.0, "A new connection within the cluster, for the handshake that proves who opened it.")
    unread_s: float = wait(
        30.0,
        "A client, to continue reading while more than a mebibyte of its answer waits. Then the answer ends.",
        fixed="it bounds how long such an answer is kept",
    )
    silent_s: float = wait(2.4, "A silent connection between nodes. Then it is closed.", promised="explain/streams.md")

    # Models.
    choose_s: float = wait(
        0.25,
        "Serve, to choose a replica. Then a replica with an open connection is taken, if there is one.",
        fixed="Serve keeps choosing meanwhile",
    )
    full_s: float = wait(
        0.25,
        "While every replica is full, until an answer that lost its replica asks again.",
        fixed="it bounds how often it asks",
    )
    avoid_s: float = wait(
        10.0,
        "How long after the loss of a replica others are asked first.",
        fixed="Serve knows the living ones by then",
    )
    starting_s: float = wait(1.0, "Between two checks of a starting model.", fixed="it bounds how often it is checked")
    usage_s: float = wait(2.0, "The usage of a cancelled answer.")

    # The database.
    database_connect_s: float = wait(5.0, "A connection to a database server.")
    database_answer_s: float = wait(
        10.0, "A statement, and a free connection of the pool. The service's own statements take milliseconds."
    )
    failover_s: float = wait(
        8.0,
        "With several servers, for a new primary after the loss of the old one. Then requests that need one fail "
        "at once.",
        promised="operate/regions.md",
    )

    def times(self, factor: float) -> Self:
        """Return these timeouts multiplied by a factor, except for those that are fixed."""
        longer = {name: getattr(self, name) * factor for name, wait in waits().items() if not wait.fixed}
        return replace(self, **longer)


USUAL: Final = Patience()


@cache
def waits(timings: type = Patience) -> dict[str, Wait]:
    """Return what each timeout of `Patience`, or of a similar class, is for, by its name."""
    return {one.name: one.metadata["wait"] for one in fields(timings)}
