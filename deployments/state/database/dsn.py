"""Turns addresses of PostgreSQL as libpq writes them into the form that SQLAlchemy reads. Pure.

Several servers are HOST:PORT,HOST:PORT in the authority, or `host=HOST:PORT` and `port=PORT` in the query. Their
settings for TLS and sessions are libpq's too; see https://www.postgresql.org/docs/current/libpq-connect.html.
"""

from urllib.parse import parse_qsl, quote, urlencode

from sqlalchemy import URL

from deployments.config import ConfigError

DEFAULT_PORT = 5432
ATTRIBUTES = ("any", "primary", "standby", "read-write", "read-only")
"""The values of `target_session_attrs`. A service that writes needs `read-write` or `primary`."""

# asyncpg reads these from an address only, and SQLAlchemy would pass them as arguments.
_OF_ADDRESS = (
    "application_name",
    "gsslib",
    "krbsrvname",
    "options",
    "passfile",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslcert",
    "sslcrl",
    "sslkey",
    "sslmode",
    "sslnegotiation",
    "sslpassword",
    "sslrootcert",
)


def one_form(rest: str) -> str:
    """Return the part after `postgresql://` with several hosts as `host=H1,H2&port=P1,P2`, and with one host unchanged.

    Raises:
        ConfigError: the hosts and ports cannot be read, or a setting is unknown.
    """
    address, _, query_text = rest.partition("?")
    authority, slash, name = address.partition("/")
    user, at, places = authority.rpartition("@")
    query = parse_qsl(query_text, keep_blank_values=True)
    for key, value in query:
        if key == "target_session_attrs" and value not in ATTRIBUTES:
            known = ", ".join(ATTRIBUTES)
            raise ConfigError(f"database_url: target_session_attrs is none of {known}.")
    hosts = [one for key, value in query if key == "host" for one in value.split(",")]
    ports = [one for key, value in query if key == "port" for one in value.split(",")]
    given = hosts or places.split(",")
    if len(given) < 2:
        return rest
    if hosts and places:
        raise ConfigError("database_url has hosts before the database's name and in the query: give them once.")
    if ports and len(ports) not in (1, len(given)):
        raise ConfigError(f"database_url has {len(given)} hosts and {len(ports)} ports.")
    named = (ports if len(ports) == len(given) else ports * len(given)) or [""] * len(given)
    servers = [_split(host, port) for host, port in zip(given, named, strict=True)]
    others = [(key, value) for key, value in query if key not in ("host", "port")]
    if not any(key == "target_session_attrs" for key, _ in others):
        others.append(("target_session_attrs", "read-write"))
    joined = [("host", ",".join(host for host, _ in servers)), ("port", ",".join(str(port) for _, port in servers))]
    return f"{user}{at}{slash or '/'}{name}?{urlencode(joined + others, safe=',:/', quote_via=quote)}"


def has_password(rest: str) -> bool:
    """Return whether the part after `postgresql://` has a password, also in its query."""
    address, _, query = rest.partition("?")
    user, _, _ = address.partition("/")[0].rpartition("@")
    return ":" in user or any(key in ("password", "sslpassword") for key, _ in parse_qsl(query))


def with_address(url: URL) -> tuple[URL, dict[str, str]]:
    """Return a URL without the settings that asyncpg reads from an address only, and the argument with that address."""
    of_address = {key: value for key, value in url.query.items() if key in _OF_ADDRESS}
    if not of_address:
        return url, {}
    plain = [(key, value if isinstance(value, str) else value[-1]) for key, value in of_address.items()]
    return url.difference_update_query([*of_address]), {"dsn": f"postgresql:///?{urlencode(plain, quote_via=quote)}"}


def _split(text: str, port: str) -> tuple[str, int]:
    """Return the host and the port of HOST, HOST:PORT or [HOST]:PORT."""
    host, colon, own_port = text.rpartition(":") if text.count(":") == 1 or "]:" in text else (text, "", "")
    host = host.removeprefix("[").removesuffix("]")
    if colon and port:
        raise ConfigError("database_url gives the port of a host twice.")
    number = own_port if colon else port or str(DEFAULT_PORT)
    if not host or not number.isdecimal() or not 0 < int(number) < 65536:
        raise ConfigError("database_url: several hosts are written as HOST:PORT,HOST:PORT.")
    return host, int(number)
