"""Timeouts: how long the parts of the service wait for each other before they do something else.

`app.build` creates one `Patience` and passes it to everything that waits. The reference page of timings is generated
from it. Not here: windows, leases and caches, which make limits exact, and the intervals of work that nobody waits for.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Final, Self, get_type_hints


@dataclass(frozen=True, slots=True)
class Wait:
    """What one timeout is for.

    `promised` is the page of the documentation that promises it. `fixed` says why a slow machine does not lengthen it.
    """

    meaning: str
    promised: str = ""
    fixed: str = ""


@dataclass(frozen=True, slots=True)
class Patience:
    """The service's timeouts, in seconds."""

    # A request, and its client.
    stream_begins_s: Annotated[
        float,
        Wait(
            "The first piece of a stream. Then the headers are sent, and a later failure is an event in the stream.",
            promised="explain/streams.md",
            fixed="clients and load balancers soon give up on a silent connection",
        ),
    ] = 2.0
    response_begins_s: Annotated[
        float,
        Wait(
            "The model, to refuse a streamed response with a status. Then the stream begins with the created response, "
            "and a later failure is an event in it.",
            promised="explain/streams.md",
        ),
    ] = 0.25

    summary_s: Annotated[
        float,
        Wait(
            "The model, to write a part of the summary of its reasoning. Then the answer goes on without its rest.",
            promised="guides/responses.md",
        ),
    ] = 10.0

    # A request, and the gatekeeper.
    away_after_s: Annotated[
        float,
        Wait(
            "From the first failed try to reach the gatekeeper until a replica decides alone, within its share.",
            promised="operate/failures.md",
        ),
    ] = 0.3
    back_soon_s: Annotated[
        float,
        Wait(
            "After that, a key that has used more than half of its minute waits for the gatekeeper. A gatekeeper that "
            "was killed is back after about a second; one on a lost node takes longer.",
            promised="explain/limits.md",
        ),
    ] = 1.1
    sync_s: Annotated[
        float, Wait("One sync with the gatekeeper. Without an answer it has failed.", promised="explain/limits.md")
    ] = 0.7
    identify_s: Annotated[
        float, Wait("The gatekeeper, to look up a key. Then the database is asked.", promised="operate/failures.md")
    ] = 0.5
    stored_key_s: Annotated[float, Wait("The database, to look up a key while the gatekeeper is away.")] = 2.0
    look_up_s: Annotated[float, Wait("All tries to look up a key. Then the answer is a 503.")] = 5.0
    crossing_s: Annotated[
        float, Wait("Room from another region. Then a request is refused.", promised="explain/limits.md")
    ] = 0.4
    region_s: Annotated[
        float,
        Wait("Another region, to accept a connection or to answer. Meanwhile this region stays within its share."),
    ] = 1.0
    call_s: Annotated[float, Wait("A call to the gatekeeper that no request waits for.")] = 2.0
    find_s: Annotated[
        float,
        Wait(
            "A call that asks where the gatekeeper listens. Then a second call is made.",
            fixed="the first may still be answered, unless its gatekeeper was killed",
        ),
    ] = 0.3
    retry_s: Annotated[
        float, Wait("Between two tries when the gatekeeper fails at once.", fixed="it bounds how often it is tried")
    ] = 0.05
    trust_s: Annotated[
        float,
        Wait(
            "How long after a sync a cached key is trusted. A later request waits for the next sync.",
            promised="explain/security.md",
            fixed="a revoked key is refused within a second",
        ),
    ] = 0.6
    key_look_s: Annotated[
        float,
        Wait(
            "Between two checks of the keys of running answers.",
            promised="explain/security.md",
            fixed="with trust_s, it ends the answers of a revoked key within a second",
        ),
    ] = 0.25
    away_grace_s: Annotated[
        float,
        Wait(
            "How long a cached key is accepted while the gatekeeper is away.",
            promised="explain/limits.md",
            fixed="it bounds how long a revoked key may work",
        ),
    ] = 300.0

    # The gatekeeper.
    recovery_s: Annotated[
        float,
        Wait(
            "A gatekeeper that has just started, for its clients to report their grants. Longer than a sync may take, "
            "since a sync tells a client that the gatekeeper is back.",
            promised="explain/limits.md",
        ),
    ] = 1.0
    look_s: Annotated[
        float, Wait("The database, to read new keys for the gatekeeper: one round trip, two at first.")
    ] = 1.0
    look_again_s: Annotated[
        float, Wait("Between two such reads for unknown keys.", fixed="it bounds what made-up keys cost the database")
    ] = 0.1
    look_pause_s: Annotated[
        float, Wait("After a failed read, until the next.", fixed="calls of others have their turn meanwhile")
    ] = 2.0
    start_s: Annotated[
        float,
        Wait(
            "The starting gatekeeper, for its database. Then it takes calls and keeps trying.",
            fixed="the process that starts the gatekeeper waits for at most a minute",
        ),
    ] = 10.0
    notice_s: Annotated[
        float,
        Wait(
            "A gatekeeper that moves to another node gives notice for this long before it stops.",
            fixed="it covers two syncs of every client, and a draining node does not wait",
        ),
    ] = 0.6
    stop_s: Annotated[
        float,
        Wait(
            "A stopping gatekeeper or ingress replica, to hand over what is not yet in the database.",
            fixed="the process that stops the service does not wait longer",
        ),
    ] = 15.0
    hand_over_s: Annotated[
        float,
        Wait("On a node without an ingress replica, to hand over the records left there. Later it is tried again."),
    ] = 20.0

    # The side channel.
    connect_s: Annotated[
        float,
        Wait(
            "A connection within the cluster. The kernel answers for a busy process, and resends a lost packet after a "
            "second, so only a lost node takes longer."
        ),
    ] = 1.5
    hello_s: Annotated[
        float, Wait("A new connection within the cluster, for the handshake that proves who opened it.")
    ] = 2.0
    unread_s: Annotated[
        float,
        Wait(
            "A client, to continue reading while more than a mebibyte of its answer waits. Then the answer ends.",
            fixed="it bounds how long such an answer is kept",
        ),
    ] = 30.0
    silent_s: Annotated[
        float, Wait("A silent connection between nodes. Then it is closed.", promised="explain/streams.md")
    ] = 2.4

    # Models.
    choose_s: Annotated[
        float,
        Wait(
            "Serve, to choose a replica. Then a replica with an open connection is taken, if there is one.",
            fixed="Serve keeps choosing meanwhile",
        ),
    ] = 0.25
    full_s: Annotated[
        float,
        Wait(
            "While every replica is full, until an answer that lost its replica asks again.",
            fixed="it bounds how often it asks",
        ),
    ] = 0.25
    avoid_s: Annotated[
        float,
        Wait(
            "How long after the loss of a replica others are asked first.", fixed="Serve knows the living ones by then"
        ),
    ] = 10.0
    starting_s: Annotated[
        float, Wait("Between two checks of a starting model.", fixed="it bounds how often it is checked")
    ] = 1.0
    usage_s: Annotated[float, Wait("The usage of a cancelled answer.")] = 2.0

    # The database.
    database_connect_s: Annotated[float, Wait("A connection to a database server.")] = 5.0
    database_answer_s: Annotated[
        float, Wait("A statement, and a free connection of the pool. The service's own statements take milliseconds.")
    ] = 10.0
    failover_s: Annotated[
        float,
        Wait(
            "With several servers, for a new primary after the loss of the old one. Then requests that need one fail "
            "at once.",
            promised="operate/regions.md",
        ),
    ] = 8.0

    def times(self, factor: float) -> Self:
        """Return these timeouts multiplied by a factor, except for those that are fixed."""
        longer = {name: getattr(self, name) * factor for name, wait in waits().items() if not wait.fixed}
        return replace(self, **longer)


USUAL: Final = Patience()


@cache
def waits(timings: type = Patience) -> dict[str, Wait]:
    """Return what each timeout of `Patience`, or of a similar class, is for, by its name."""
    hints = get_type_hints(timings, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}
