"""Accounts: the list with the usage of the last 30 days, and one account with its keys, batches and limits."""

import time
from typing import Any

from starlette.responses import Response

from deployments.limits.window import WINDOW_S
from deployments.state.usage.reading import UsageFilter
from deployments.state.usage.rollups import WIDTH_S, start_of
from serve_app.console.pages.figures import add_up, cost_of, has_prices
from serve_app.console.pages.keys import DEFAULT_OVERLAP, OVERLAPS
from serve_app.console.session import sessions_of
from serve_app.console.visit import Visit
from serve_app.errors.api import NotFound

DAYS = 30
_PAGE_SIZE = 50
_KEYS_SHOWN = 20
_BATCHES_SHOWN = 5


async def list_accounts(visit: Visit) -> Response:
    """Show the accounts by name, each with its keys and its usage."""
    named = visit.query("named").strip()
    accounts, has_more = await visit.services.keys.list_accounts(_PAGE_SIZE, named=named, after=visit.query("after"))
    names = tuple(one.name for one in accounts)
    start, end = days_until_now()
    where = UsageFilter(accounts=names, has_run=True)
    used = await visit.services.usage.totals("1d", start, end, group_by=("account",), where=where) if names else []
    return visit.page(
        "operator/accounts.html",
        accounts=accounts,
        used={one.account: one for one in used},
        costs={one.account: cost_of(one) for one in used},
        last_used=await visit.services.request_log.last_used("account", names),
        named=named,
        more=names[-1] if has_more else "",
    )


async def show_account(visit: Visit) -> Response:
    """Show one account: its usage, keys, batches and limits."""
    account, services = visit.request.path_params["account"], visit.services
    keys = await services.keys.list_keys(account, include_revoked=True)
    if not keys:
        raise NotFound("There is no such account.")
    living = [key for key in keys if key.revoked_at is None]
    batches, _ = await services.batches.list_batches(account, _BATCHES_SHOWN)
    shown = living[:_KEYS_SHOWN]
    ids = [key.key_id for key in shown]
    now = time.time()
    refused = await services.request_log.num_refused(now - WINDOW_S, account)
    return visit.page(
        "operator/account.html",
        account=account,
        keys=shown,
        num_keys=len(living),
        num_revoked=len(keys) - len(living),
        batches=batches,
        tiers={name: services.tiers.of(name) for name in sorted({key.tier for key in living})},
        minute=await services.used_in_minute(ids, now),
        num_refused=sum(refused.values()),
        last_used=await services.request_log.last_used("key_id", ids),
        now=sessions_of(services).clock(),
        overlaps=OVERLAPS,
        default_overlap=DEFAULT_OVERLAP,
        usage=await month_of(visit, UsageFilter(accounts=(account,))),
    )


def days_until_now() -> tuple[int, int]:
    """Return the start and the end (Unix seconds) of the last 30 days, today included."""
    end = start_of(time.time(), "1d") + WIDTH_S["1d"]
    return end - DAYS * WIDTH_S["1d"], end


async def month_of(visit: Visit, where: UsageFilter) -> dict[str, Any]:
    """Return the usage of the last 30 days in all and by model, as pages show it."""
    start, end = days_until_now()
    sums = await visit.services.usage.totals("1d", start, end, group_by=("model",), where=where)
    figures = add_up(sums)
    models = sorted((one for one in sums if one.model), key=lambda one: -one.num_requests)
    return {
        "figures": figures,
        "models": [(one, cost_of(one)) for one in models],
        "has_prices": has_prices(visit, figures),
    }
