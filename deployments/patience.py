"""How long the parts of the service wait for each other before they take another way.

One `Patience` is made where the service is put together, and handed to whatever waits. The reference page of timings is
generated from it. Not here: windows, leases and caches, by which limits are exact, and the rhythm of work for which
nobody waits.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Final, Self, get_type_hints


@dataclass(frozen=True, slots=True)
class Wait:
    """What one time is for.

    `promised` is the page of the documentation that promises it, `fixed` why it stays as it is on a slow machine.
    """

    meaning: str
    promised: str = ""
    fixed: str = ""


@dataclass(frozen=True, slots=True)
class Patience:
    """The service's times, in seconds."""

    # A request, and its client.
    stream_begins_s: Annotated[
        float,
        Wait(
            "The first piece of a stream. Then its head is sent, and what fails after that is an event in it.",
            promised="explain/streams.md",
            fixed="clients and load balancers give up soon where nothing comes",
        ),
    ] = 2.0
    response_begins_s: Annotated[
        float,
        Wait(
            "The model, to refuse a streamed response with a status. Then the stream says that the response was "
            "created, and what fails after that is an event in it.",
            promised="explain/streams.md",
        ),
    ] = 0.25

    # A request, and the gatekeeper.
    away_after_s: Annotated[
        float,
        Wait(
            "From the first try of the gatekeeper that failed until a replica decides alone, within its share.",
            promised="operate/failures.md",
        ),
    ] = 0.3
    back_soon_s: Annotated[
        float,
        Wait(
            "After that, the gatekeeper may be back in a moment, and is waited for where a key had used more than half "
            "of its minute. One that was killed is back after about a second, one whose node was lost is not.",
            promised="explain/limits.md",
        ),
    ] = 1.1
    sync_s: Annotated[
        float,
        Wait("One sync with the gatekeeper: where nothing answers, it has failed then.", promised="explain/limits.md"),
    ] = 0.7
    identify_s: Annotated[
        float,
        Wait("The gatekeeper, to say who holds a key. Then the database is asked.", promised="operate/failures.md"),
    ] = 0.5
    stored_key_s: Annotated[float, Wait("The database, to say who holds a key while the gatekeeper does not.")] = 2.0
    look_up_s: Annotated[float, Wait("All tries to find out who holds a key. Then the answer is a 503.")] = 5.0
    crossing_s: Annotated[
        float, Wait("Room from another region. Then a request is refused.", promised="explain/limits.md")
    ] = 0.4
    region_s: Annotated[
        float, Wait("Another region, to accept a connection or to answer. Meanwhile this one keeps to its share.")
    ] = 1.0
    call_s: Annotated[float, Wait("A call to the gatekeeper for which no request waits.")] = 2.0
    find_s: Annotated[
        float,
        Wait(
            "A call that asks where the gatekeeper listens. Then another is made beside it.",
            fixed="the first may still be answered, and one to a gatekeeper that was killed never is",
        ),
    ] = 0.3
    retry_s: Annotated[
        float, Wait("Between two tries of a gatekeeper that fails at once.", fixed="it bounds how often one tries")
    ] = 0.05
    trust_s: Annotated[
        float,
        Wait(
            "After a sync, a cached key is trusted. A later request waits for the next sync.",
            promised="explain/security.md",
            fixed="a revoked key is refused within a second",
        ),
    ] = 0.6
    key_look_s: Annotated[
        float,
        Wait(
            "Between two looks at the keys of answers that are being made.",
            promised="explain/security.md",
            fixed="with trust_s, it ends the answers of a revoked key within a second",
        ),
    ] = 0.25
    away_grace_s: Annotated[
        float,
        Wait(
            "While the gatekeeper is away, a cached key is accepted.",
            promised="explain/limits.md",
            fixed="it bounds how long a revoked key may work",
        ),
    ] = 300.0

    # The gatekeeper.
    recovery_s: Annotated[
        float,
        Wait(
            "A gatekeeper that has just started, for what its clients were granted, or have granted alone. Longer than "
            "a sync may take, for a client learns by one that the gatekeeper is back.",
            promised="explain/limits.md",
        ),
    ] = 1.0
    look_s: Annotated[float, Wait("The database, to tell the gatekeeper of new keys: a trip, two at first.")] = 1.0
    look_again_s: Annotated[
        float,
        Wait("Between two such looks for unknown keys.", fixed="it bounds what made-up keys cost the database"),
    ] = 0.1
    look_pause_s: Annotated[
        float, Wait("After a look that failed, until the next.", fixed="calls of others have their turn meanwhile")
    ] = 2.0
    start_s: Annotated[
        float,
        Wait(
            "The gatekeeper's start, for its database. Then it goes on trying beside its calls.",
            fixed="whatever starts the gatekeeper waits for a minute at most",
        ),
    ] = 10.0
    notice_s: Annotated[
        float,
        Wait(
            "A gatekeeper that moves to another node says so, before it stops.",
            fixed="it is two rounds of its clients' syncs, and a node that drains does not wait",
        ),
    ] = 0.6
    stop_s: Annotated[
        float,
        Wait(
            "A gatekeeper or an ingress replica that ends, to hand over what is not in the database.",
            fixed="whatever stops the service does not wait for longer",
        ),
    ] = 15.0
    hand_over_s: Annotated[
        float, Wait("On a node without an ingress replica, to hand over the records left there; else later again.")
    ] = 20.0

    # The side channel.
    connect_s: Annotated[
        float,
        Wait(
            "A connection within the cluster. The system answers for a busy process, and repeats a lost packet after a "
            "second: only a lost node takes longer.",
        ),
    ] = 1.5
    hello_s: Annotated[float, Wait("Who connects to a process within the cluster, to show its secret.")] = 2.0
    unread_s: Annotated[
        float,
        Wait(
            "A client, to read on where more than a mebibyte of its answer waits. Then the answer ends.",
            fixed="it bounds how long such an answer is kept",
        ),
    ] = 30.0
    silent_s: Annotated[
        float,
        Wait(
            "A connection between nodes over which nothing comes. Then it is given up.", promised="explain/streams.md"
        ),
    ] = 2.4

    # Models.
    choose_s: Annotated[
        float,
        Wait(
            "Serve, to choose a replica. Then another with an open connection is taken, if there is one.",
            fixed="the choice goes on meanwhile",
        ),
    ] = 0.25
    full_s: Annotated[
        float,
        Wait(
            "Where every replica is full, until an answer that lost its own asks again.",
            fixed="it bounds how often one asks",
        ),
    ] = 0.25
    avoid_s: Annotated[
        float,
        Wait("After a replica was lost, others are asked first.", fixed="Serve knows by then which ones are there"),
    ] = 10.0
    starting_s: Annotated[
        float, Wait("Between two looks at a model that starts.", fixed="it bounds how often one looks")
    ] = 1.0
    usage_s: Annotated[float, Wait("The usage of an answer that was cancelled.")] = 2.0

    # The database.
    database_connect_s: Annotated[float, Wait("A connection to a database server.")] = 5.0
    database_answer_s: Annotated[
        float,
        Wait("A statement, and a free connection of the pool. The service's own statements take milliseconds."),
    ] = 10.0
    failover_s: Annotated[
        float,
        Wait(
            "With several servers, since the one that takes writes was lost, for another to take them. Then what needs "
            "one fails at once.",
            promised="operate/regions.md",
        ),
    ] = 8.0

    def times(self, factor: float) -> Self:
        """Return the same times multiplied by the factor, but for those that are fixed."""
        longer = {name: getattr(self, name) * factor for name, wait in waits().items() if not wait.fixed}
        return replace(self, **longer)


USUAL: Final = Patience()


@cache
def waits(timings: type = Patience) -> dict[str, Wait]:
    """Return what each time of `Patience`, or of another class like it, is for, by its name."""
    hints = get_type_hints(timings, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}
