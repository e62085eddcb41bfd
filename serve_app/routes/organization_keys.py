"""/v1/organization/admin_api_keys and /v1/organization/projects: keys under OpenAI's names. Admin keys only.

A project is an account. Tiers, limits, scopes and rotation, which OpenAI's API lacks, are at
`/v1/organization/admin/keys`.
"""

import time
from contextlib import suppress
from typing import Annotated, Any, ClassVar

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from deployments.state.identity.key_store import KeyNotFound
from deployments.state.identity.keys import ApiKey, NewKey
from serve_app.errors.api import NotFound, shorten
from serve_app.operations.scopes import within
from serve_app.routes.endpoint import (
    Deleted,
    actor_of,
    admin_caller,
    answers,
    deleted_response,
    json_response,
    services_of,
)
from serve_app.routes.paging import Page, cut_page, list_to_wire, parse_query
from serve_app.schemas.base import PageQuery, WireModel
from serve_app.validation.body import parse_body

_TYPES = "openai.types.admin.organization."


class NewAdminKey(WireModel):
    """An admin key to be issued.

    Args:
        name: a name for the key.
        expires_in_seconds: when the key expires, in seconds from now. Left out, never.
    """

    example: ClassVar[dict[str, Any]] = {"name": "poller"}

    name: Annotated[str, Field(min_length=1, max_length=100)]
    expires_in_seconds: Annotated[int, Field(ge=1, le=10**9)] | None = None


@answers(_TYPES + "AdminAPIKeyCreateResponse", body=NewAdminKey)
async def create_admin_key(request: Request) -> Response:
    """Create an admin key.

    It has the tier and the limits of the key that creates it. Only this answer contains the secret.
    """
    principal = await admin_caller(request)
    body = await parse_body(await request.body(), NewAdminKey)
    asked = body.expires_in_seconds
    new = NewKey(
        name=body.name,
        account=principal.account,
        organization=principal.organization,
        tier=principal.tier,
        requests_per_minute=principal.requests_per_minute,
        tokens_per_minute=principal.tokens_per_minute,
        is_admin=True,
        **({} if asked is None else {"expires_at": time.time() + asked}),
    )
    key, secret = await services_of(request).keys.create(within(principal, new), by=actor_of(principal))
    return json_response({**_admin_key(key), "value": secret})


@answers(Page, of=_TYPES + "AdminAPIKey", query=PageQuery)
async def list_admin_keys(request: Request) -> Response:
    """List admin keys."""
    await admin_caller(request)
    query = parse_query(request, PageQuery)
    keys = [key for key in await services_of(request).keys.list_keys() if key.is_admin]
    page, has_more = cut_page(keys[::-1], query, lambda key: key.key_id)
    return json_response(list_to_wire([_admin_key(key) for key in page], has_more=has_more))


@answers(_TYPES + "AdminAPIKey")
async def show_admin_key(request: Request) -> Response:
    """Retrieve an admin key."""
    await admin_caller(request)
    return json_response(_admin_key(await _living(request, is_admin=True)))


@answers(Deleted)
async def revoke_admin_key(request: Request) -> Response:
    """Revoke an admin key.

    This cannot be undone.
    """
    principal = await admin_caller(request)
    key = await _living(request, is_admin=True)
    await services_of(request).keys.revoke(key.key_id, by=actor_of(principal))
    return deleted_response(key.key_id, "organization.admin_api_key.deleted")


@answers(Page, of=_TYPES + "Project", query=PageQuery)
async def list_projects(request: Request) -> Response:
    """List accounts as projects."""
    await admin_caller(request)
    query = parse_query(request, PageQuery)
    accounts: dict[str, ApiKey] = {}
    for key in reversed(await services_of(request).keys.list_keys(include_revoked=True)):
        accounts.setdefault(key.account, key)
    page, has_more = cut_page(list(accounts.values()), query, lambda key: key.account)
    return json_response(list_to_wire([_project(key) for key in page], has_more=has_more))


@answers(_TYPES + "Project")
async def show_project(request: Request) -> Response:
    """Retrieve an account as a project."""
    await admin_caller(request)
    project_id: str = request.path_params["project_id"]
    keys = await services_of(request).keys.list_keys(project_id, include_revoked=True)
    if not keys:
        raise NotFound(f"No project found with id '{shorten(project_id)}'.", param="project_id")
    return json_response(_project(keys[-1]))


@answers(Page, of=_TYPES + "projects.ProjectAPIKey", query=PageQuery)
async def list_project_keys(request: Request) -> Response:
    """List the keys of an account."""
    await admin_caller(request)
    query = parse_query(request, PageQuery)
    keys = await services_of(request).keys.list_keys(request.path_params["project_id"])
    page, has_more = cut_page(keys[::-1], query, lambda key: key.key_id)
    return json_response(list_to_wire([_project_key(key) for key in page], has_more=has_more))


@answers(_TYPES + "projects.ProjectAPIKey")
async def show_project_key(request: Request) -> Response:
    """Retrieve a key of an account."""
    await admin_caller(request)
    return json_response(_project_key(await _living(request, account=request.path_params["project_id"])))


@answers(Deleted)
async def revoke_project_key(request: Request) -> Response:
    """Revoke a key of an account.

    This cannot be undone.
    """
    principal = await admin_caller(request)
    key = await _living(request, account=request.path_params["project_id"])
    await services_of(request).keys.revoke(key.key_id, by=actor_of(principal))
    return deleted_response(key.key_id, "organization.project.api_key.deleted")


async def _living(request: Request, *, is_admin: bool = False, account: str | None = None) -> ApiKey:
    """Return the key in the path; raise NotFound where it is revoked, no admin key or another account's."""
    key_id: str = request.path_params["key_id"]
    key: ApiKey | None = None
    with suppress(KeyNotFound):
        key = await services_of(request).keys.show(key_id)
    is_meant = key is not None and (key.is_admin or not is_admin) and account in (None, key.account)
    if key is None or not is_meant or key.revoked_at is not None:
        raise NotFound(f"No API key found with id '{shorten(key_id)}'.", param="key_id")
    return key


def _common(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.key_id,
        "name": key.name,
        "redacted_value": key.display,
        "created_at": int(key.created_at),
        "expires_at": None if key.expires_at is None else int(key.expires_at),
        "last_used_at": None,
    }


def _admin_key(key: ApiKey) -> dict[str, Any]:
    owner: dict[str, Any] = {"type": "user", "object": "organization.user", "id": key.account, "name": key.organization}
    owner |= {"created_at": int(key.created_at), "role": "owner"}
    return {"object": "organization.admin_api_key", **_common(key), "owner": owner}


def _project_key(key: ApiKey) -> dict[str, Any]:
    account: dict[str, Any] = {
        "id": key.account,
        "name": key.account,
        "created_at": int(key.created_at),
        "role": "member",
    }
    owner: dict[str, Any] = {"type": "service_account", "service_account": account, "user": None}
    shown = {"object": "organization.project.api_key", **_common(key), "owner": owner}
    return {**shown, "owner_project_access": "active"}


def _project(key: ApiKey) -> dict[str, Any]:
    """Return the account of its first key."""
    shown = {"id": key.account, "object": "organization.project", "name": key.account}
    return {**shown, "created_at": int(key.created_at), "archived_at": None, "status": "active"}
