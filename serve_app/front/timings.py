"""The front's times: how often it looks, and how long it waits.

They are saved with a front's settings, so that all of its processes have the same. The timeouts of clients and replicas
are in `rendering`, those that the operator sets in `FrontSettings`.
"""

from dataclasses import dataclass

from deployments.patience import wait

_PAGE = "operate/front.md"


@dataclass(frozen=True, slots=True)
class FrontTimings:
    """The times of one front, in seconds."""

    # The supervisor.
    poll_s: float = wait(
        0.05,
        "Between two looks of the supervisor for processes that have ended. The agent rests at least as long.",
        _PAGE,
    )
    watch_s: float = wait(
        1.0,
        "Between two questions to a HAProxy process whether it answers, and between two starts of a process that "
        "keeps ending. A new ingress replica looks as often for its own port.",
    )
    runtime_s: float = wait(1.0, "A HAProxy process, to answer on its runtime socket.")

    # The agent.
    round_s: float = wait(
        0.5, "From the beginning of a round of the agent to that of the next. A new certificate waits for it.", _PAGE
    )
    hear_s: float = wait(
        0.25,
        "A round, for the answers to its questions. What is slower is heard in a later one: a silent node must not "
        "hold up what is done about it.",
    )
    ask_s: float = wait(2.0, "Between two handshakes with an ingress replica.")
    ask_others_s: float = wait(
        10.0,
        "Between two questions to an address that has not proved to be an ingress replica of the service, and "
        "between two look-ups of another region's address.",
    )
    answer_s: float = wait(2.0, "A replica, another front or Ray's dashboard, to answer a question.")
    lists_s: float = wait(3.0, "Between two questions to Ray's dashboard and other fronts, which replicas there are.")
    save_s: float = wait(
        5.0,
        "Until unchanged state is saved again: the table, the state of the region, and a replica's entry in the "
        "register.",
    )
    fresh_s: float = wait(
        60.0,
        "A saved table is used at a restart for this long; the addresses of an older one are only asked. An "
        "address on a list is asked for as long.",
        _PAGE,
    )
    forget_s: float = wait(
        30.0, "Until a replica without a proof, a passing check or a place on a list leaves the table.", _PAGE
    )
    silent_s: float = wait(
        3.0,
        "Until the streams of a replica end after two checks that its node did not answer: about 4.5 seconds in "
        "all. Longer than the keepalive of its connections: by then HAProxy has repeated the requests without an "
        "answer at another replica, and this would end them.",
        _PAGE,
    )
    spare_s: float = wait(
        10.0,
        "A replica whose node was cut off gets no requests for this long. Ray may have given the node up "
        "meanwhile, and ends the replica then.",
        _PAGE,
    )

    # HAProxy.
    check_s: float = wait(0.5, "Between two health checks of a replica.", _PAGE)
    check_region_s: float = wait(1.0, "Between two health checks of another region's front.")
    patience_s: float = wait(
        50.0,
        "Since the last replica was there, requests wait for the next one: longer than a node takes to start its "
        "Ray and its replicas anew, and less than the minute after which load balancers commonly give up.",
        _PAGE,
    )

    # The region.
    leave_after_s: float = wait(5.0, "Without a ready replica, until the region is drained.", _PAGE)
    return_after_s: float = wait(15.0, "With a ready replica all the time, until a drained region serves again.", _PAGE)

    # An ingress replica.
    renew_s: float = wait(2.0, "Between two looks of an ingress replica at the files of its certificate.", _PAGE)


USUAL = FrontTimings()
