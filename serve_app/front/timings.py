"""The front's times: how often it looks, and how long it waits.

They are saved with a front's settings, so that all of its processes have the same. The timeouts of clients and replicas
are in `rendering`, those that the operator sets in `FrontSettings`.
"""

from dataclasses import dataclass
from typing import Annotated

from deployments.patience import Wait

_PAGE = "operate/front.md"


@dataclass(frozen=True, slots=True)
class FrontTimings:
    """The times of one front, in seconds."""

    # The supervisor.
    poll_s: Annotated[
        float,
        Wait(
            "Between two looks of the supervisor for processes that have ended. The agent rests at least as long.",
            _PAGE,
        ),
    ] = 0.05
    watch_s: Annotated[
        float,
        Wait(
            "Between two questions to a HAProxy process whether it answers, and between two starts of a process that "
            "keeps ending. A new ingress replica looks as often for its own port."
        ),
    ] = 1.0
    runtime_s: Annotated[float, Wait("A HAProxy process, to answer on its runtime socket.")] = 1.0

    # The agent.
    round_s: Annotated[
        float,
        Wait("From the beginning of a round of the agent to that of the next. A new certificate waits for it.", _PAGE),
    ] = 0.5
    hear_s: Annotated[
        float,
        Wait(
            "A round, for the answers to its questions. What is slower is heard in a later one: a silent node must not "
            "hold up what is done about it."
        ),
    ] = 0.25
    ask_s: Annotated[float, Wait("Between two handshakes with an ingress replica.")] = 2.0
    ask_others_s: Annotated[
        float,
        Wait(
            "Between two questions to an address that has not proved to be an ingress replica of the service, and "
            "between two look-ups of another region's address."
        ),
    ] = 10.0
    answer_s: Annotated[float, Wait("A replica, another front or Ray's dashboard, to answer a question.")] = 2.0
    lists_s: Annotated[
        float, Wait("Between two questions to Ray's dashboard and other fronts, which replicas there are.")
    ] = 3.0
    save_s: Annotated[
        float,
        Wait(
            "Until unchanged state is saved again: the table, the state of the region, and a replica's entry in the "
            "register."
        ),
    ] = 5.0
    fresh_s: Annotated[
        float,
        Wait(
            "A saved table is used at a restart for this long; the addresses of an older one are only asked. An "
            "address on a list is asked for as long.",
            _PAGE,
        ),
    ] = 60.0
    forget_s: Annotated[
        float, Wait("Until a replica without a proof, a passing check or a place on a list leaves the table.", _PAGE)
    ] = 30.0
    silent_s: Annotated[
        float,
        Wait(
            "Until the streams of a replica end after two checks that its node did not answer: about 4.5 seconds in "
            "all. Longer than the keepalive of its connections: by then HAProxy has repeated the requests without an "
            "answer at another replica, and this would end them.",
            _PAGE,
        ),
    ] = 3.0
    spare_s: Annotated[
        float,
        Wait(
            "A replica whose node was cut off gets no requests for this long. Ray may have given the node up "
            "meanwhile, and ends the replica then.",
            _PAGE,
        ),
    ] = 10.0

    # HAProxy.
    check_s: Annotated[float, Wait("Between two health checks of a replica.", _PAGE)] = 0.5
    check_region_s: Annotated[float, Wait("Between two health checks of another region's front.")] = 1.0
    patience_s: Annotated[
        float,
        Wait(
            "Since the last replica was there, requests wait for the next one: longer than a node takes to start its "
            "Ray and its replicas anew, and less than the minute after which load balancers commonly give up.",
            _PAGE,
        ),
    ] = 50.0

    # The region.
    leave_after_s: Annotated[float, Wait("Without a ready replica, until the region is drained.", _PAGE)] = 5.0
    return_after_s: Annotated[
        float, Wait("With a ready replica all the time, until a drained region serves again.", _PAGE)
    ] = 15.0

    # An ingress replica.
    renew_s: Annotated[
        float, Wait("Between two looks of an ingress replica at the files of its certificate.", _PAGE)
    ] = 2.0


USUAL = FrontTimings()
