"""`manta keys`: creates, lists, limits, rotates and revokes API keys.

Commands work on the database directly, without the service. A running service hears of every change within a second.
"""

import time
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import typer

from deployments.operations import Operation
from deployments.state.audit_log import command_line_actor
from deployments.state.identity.keys import ApiKey, KeyChange, NewKey
from deployments.state.identity.tiers import Tiers
from serve_app.cli.database import ConfigOption, DatabaseUrlOption, Place, StateDirOption, Stores, run
from serve_app.cli.output import Commands, JsonOption, parse_duration, print_json, print_table, render, render_time

app = typer.Typer(cls=Commands, help="Create, list, limit, rotate and revoke API keys.", no_args_is_help=True)


class RetentionName(StrEnum):
    """The retention policies."""

    strict = "strict"
    ephemeral = "ephemeral"
    stored = "stored"
    logged = "logged"


KeyId = Annotated[str, typer.Argument(help="The key's id, key_...", show_default=False)]
_TIER_HELP = (
    f"The tier of limits: {', '.join(Tiers().names)}, or a tier of --config. If the tier has no limits (enterprise), "
    "the key needs its own."
)
TierOption = Annotated[str | None, typer.Option(metavar="NAME", help=_TIER_HELP)]
NewTierOption = Annotated[str, typer.Option(metavar="NAME", help=_TIER_HELP)]
RequestsOption = Annotated[int | None, typer.Option(help="Requests in any 60 seconds, instead of the tier's.")]
TokensOption = Annotated[int | None, typer.Option(help="Tokens in any 60 seconds, instead of the tier's.")]
OperationOption = Annotated[
    list[str] | None, typer.Option("--operation", help=f"Allow only this one: {', '.join(Operation)}. Repeatable.")
]
ModelOption = Annotated[
    list[str] | None, typer.Option("--model", help="Allow only this model id or pattern, like 'acme/*'. Repeatable.")
]
RegionOption = Annotated[
    list[str] | None, typer.Option("--regions", help="Serve and store only in this region. Repeatable.")
]
ExpiryOption = Annotated[
    str | None,
    typer.Option(
        "--expires-in",
        help="Let the key expire after this long, such as 30d or 12h. A new key does not expire by itself.",
    ),
]
RetentionOption = Annotated[
    RetentionName | None, typer.Option(help="What may be stored for this key's requests. A new key has ephemeral.")
]


@app.command("create")
def create_key(
    context: typer.Context,
    name: Annotated[str, typer.Option(help="What the key is for.")] = "unnamed",
    account: Annotated[
        str, typer.Option(help="The account of the key; an account's keys share its files.")
    ] = "default",
    organization: Annotated[str, typer.Option(help="The account's public name; by default the account itself.")] = "",
    tier: NewTierOption = "free",
    requests_per_minute: RequestsOption = None,
    tokens_per_minute: TokensOption = None,
    operation: OperationOption = None,
    model: ModelOption = None,
    regions: RegionOption = None,
    expires_in: ExpiryOption = None,
    retention: RetentionOption = None,
    admin: Annotated[
        bool, typer.Option("--admin", help="An admin key: it sees all accounts, and manages keys over HTTP.")
    ] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    database_url: DatabaseUrlOption = None,
) -> None:
    """Create a key. Its secret is shown now and never again."""
    source = context.get_parameter_source("tier")
    is_default_tier = source is not None and source.name == "DEFAULT"
    values = _changes(tier, requests_per_minute, tokens_per_minute, operation, model, regions, expires_in, retention)

    async def work(stores: Stores) -> tuple[ApiKey, str]:
        new = NewKey(name=name, account=account, organization=organization, is_admin=admin, **values)
        return await stores.keys.create(new, by=command_line_actor())

    key, secret = run(Place(config, state_dir, database_url), work, may_create=True)
    _print_issued(key, secret, as_json=as_json)
    if is_default_tier and not as_json:
        typer.echo(f"\n{_tier_of(key)}")


@app.command("list")
def list_keys(
    account: Annotated[str | None, typer.Option(help="Only keys of this account.")] = None,
    revoked: Annotated[bool, typer.Option("--all", help="Revoked keys too.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    database_url: DatabaseUrlOption = None,
) -> None:
    """List keys, newest first."""
    keys = run(
        Place(config, state_dir, database_url), lambda stores: stores.keys.list_keys(account, include_revoked=revoked)
    )
    if as_json:
        print_json([_to_wire(key) for key in keys])
        return
    columns = ("id", "name", "account", "tier", "status", "requests/min", "tokens/min", "key", "expires", "created")
    now = time.time()
    rows = [
        (
            key.key_id,
            key.name,
            key.account,
            f"{key.tier}, admin" if key.is_admin else key.tier,
            key.status(now),
            key.requests_per_minute,
            key.tokens_per_minute,
            key.display,
            render_time(key.expires_at),
            render_time(key.created_at),
        )
        for key in keys
    ]
    which = "" if account is None else f" of the account {account!r}"
    print_table(
        columns,
        rows,
        numeric=("requests/min", "tokens/min"),
        optional=("account", "tier", *columns[5:]),
        empty=f"There are no keys{which}. Create one with: manta keys create",
    )


@app.command("show")
def show_key(
    key_id: KeyId,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    database_url: DatabaseUrlOption = None,
) -> None:
    """Show one key, without its secret, which is not stored."""
    _print_key(run(Place(config, state_dir, database_url), lambda stores: stores.keys.show(key_id)), as_json=as_json)


@app.command("limit")
def limit_key(
    key_id: KeyId,
    name: Annotated[str | None, typer.Option(help="What the key is for.")] = None,
    tier: TierOption = None,
    requests_per_minute: RequestsOption = None,
    tokens_per_minute: TokensOption = None,
    operation: OperationOption = None,
    model: ModelOption = None,
    regions: RegionOption = None,
    expires_in: ExpiryOption = None,
    retention: RetentionOption = None,
    tier_limits: Annotated[bool, typer.Option("--tier-limits", help="Go back to the limits of the tier.")] = False,
    all_operations: Annotated[bool, typer.Option("--all-operations", help="Allow every operation.")] = False,
    all_models: Annotated[bool, typer.Option("--all-models", help="Allow every model.")] = False,
    all_regions: Annotated[bool, typer.Option("--all-regions", help="Serve the key in every region.")] = False,
    no_expiry: Annotated[bool, typer.Option("--no-expiry", help="Let the key never expire.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    database_url: DatabaseUrlOption = None,
) -> None:
    """Change a key's limits, scopes, expiry or retention; the rest stays as it is."""
    values = _changes(tier, requests_per_minute, tokens_per_minute, operation, model, regions, expires_in, retention)
    if name is not None:
        values["name"] = name
    clears = {
        "requests_per_minute": tier_limits,
        "tokens_per_minute": tier_limits,
        "operations": all_operations,
        "models": all_models,
        "regions": all_regions,
        "expires_at": no_expiry,
    }
    for field, is_cleared in clears.items():
        if is_cleared and field in values:
            raise typer.BadParameter(f"{field} cannot be set and cleared at once.")
        if is_cleared:
            values[field] = None

    async def work(stores: Stores) -> ApiKey:
        return await stores.keys.limit(key_id, KeyChange(**values), by=command_line_actor())

    _print_key(run(Place(config, state_dir, database_url), work), as_json=as_json)


@app.command("rotate")
def rotate_key(
    key_id: KeyId,
    overlap: Annotated[
        str, typer.Option(help="Accept the old secret for this long too: 15m, 24h. 0s refuses it at once.")
    ] = "24h",
    as_json: JsonOption = False,
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    database_url: DatabaseUrlOption = None,
) -> None:
    """Give a key a new secret, which is shown only now; id, limits and usage stay."""
    overlap_s = parse_duration(overlap)
    place = Place(config, state_dir, database_url)
    _print_issued(
        *run(place, lambda stores: stores.keys.rotate(key_id, overlap_s, by=command_line_actor())), as_json=as_json
    )


@app.command("revoke")
def revoke_key(
    key_id: KeyId,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    database_url: DatabaseUrlOption = None,
) -> None:
    """Revoke a key for good. Every ingress replica refuses it within a second."""

    async def work(stores: Stores) -> tuple[ApiKey, ApiKey]:
        return await stores.keys.show(key_id), await stores.keys.revoke(key_id, by=command_line_actor())

    before, key = run(Place(config, state_dir, database_url), work)
    if as_json:
        print_json(_to_wire(key))
    elif before.revoked_at is not None:
        typer.echo(f"{key_id} ({key.name}) was revoked already, on {render_time(before.revoked_at)} UTC.")
    else:
        typer.echo(f"{key_id} ({key.name}) is revoked. Every ingress replica refuses it within a second.")


def _changes(
    tier: str | None,
    requests_per_minute: int | None,
    tokens_per_minute: int | None,
    operations: list[str] | None,
    models: list[str] | None,
    regions: list[str] | None,
    expires_in: str | None,
    retention: RetentionName | None,
) -> dict[str, Any]:
    given: dict[str, Any] = {
        "tier": tier,
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "operations": operations or None,
        "models": models or None,
        "regions": regions or None,
        "expires_at": None if expires_in is None else time.time() + parse_duration(expires_in),
        "retention": None if retention is None else retention.value,
    }
    return {name: value for name, value in given.items() if value is not None}


def _tier_of(key: ApiKey) -> str:
    """Return a sentence on the tier of a key that was created without one, and how to choose another."""
    limits = f"{render(key.requests_per_minute)} requests and {render(key.tokens_per_minute)} tokens a minute"
    return (
        f"Its tier is {key.tier}: {limits}. For another one: manta keys limit {key.key_id} --tier standard. "
        "For a new key: --tier standard."
    )


def _to_wire(key: ApiKey) -> dict[str, Any]:
    return {**asdict(key), "status": key.status(time.time())}


def _print_issued(key: ApiKey, secret: str, *, as_json: bool) -> None:
    if as_json:
        print_json({**_to_wire(key), "secret": secret})
        return
    _print_key(key, as_json=False)
    typer.echo(f"\nSecret, shown only now:\n{secret}")


def _print_key(key: ApiKey, *, as_json: bool) -> None:
    if as_json:
        print_json(_to_wire(key))
        return
    rows = [
        ("id", key.key_id),
        ("key", key.display),
        ("name", key.name),
        ("account", key.account if key.account == key.organization else f"{key.account} ({key.organization})"),
        ("tier", f"{key.tier}, admin" if key.is_admin else key.tier),
        ("requests/min", key.requests_per_minute),
        ("tokens/min", key.tokens_per_minute),
        ("operations", key.operations or "all"),
        ("models", key.models or "all"),
        ("retention", key.retention),
        ("status", key.status(time.time())),
        ("created", render_time(key.created_at)),
        ("rotated", render_time(key.rotated_at)),
        ("old secret until", render_time(key.previous_expires_at)),
        ("revoked", render_time(key.revoked_at)),
        ("expires", render_time(key.expires_at)),
    ]
    print_table(("field", "value"), rows)
