"""What a key may give to the keys that it issues or changes: never more than it has itself."""

import pytest

from deployments.state.identity.keys import NewKey
from serve_app.errors.api import PermissionDenied
from serve_app.operations.scopes import check_within, within
from tests.twins.keys import principal_of_key

HOLDER = principal_of_key(
    account="mine",
    organization="org",
    tier="standard",
    requests_per_minute=60,
    tokens_per_minute=1000,
    operations=frozenset({"chat", "usage"}),
    models=("demo/*", "other/chat"),
    regions=("eu", "us"),
    retention="ephemeral",
    expires_at=5000.0,
)
MINE = {"account": "mine"}
OWN = {
    "tier": "standard",
    "requests_per_minute": 60,
    "tokens_per_minute": 1000,
    "operations": ("chat", "usage"),
    "models": ("demo/*", "other/chat"),
    "regions": ("eu", "us"),
    "retention": "ephemeral",
    "expires_at": 5000.0,
}


def test_a_key_without_bounds_of_its_own_gets_those_of_its_issuer():
    made = within(HOLDER, NewKey(**MINE))
    assert {name: getattr(made, name) for name in OWN} == OWN


@pytest.mark.parametrize(
    "less",
    [
        {"requests_per_minute": 1},
        {"tokens_per_minute": 1000},
        {"operations": ("chat",)},
        {"models": ("demo/small", "other/chat")},
        {"regions": ("us",)},
        {"retention": "strict"},
        {"expires_at": 4999.0},
    ],
    ids=lambda less: next(iter(less)),
)
def test_a_key_may_have_less(less):
    made = within(HOLDER, NewKey(**MINE, **less))
    assert {name: getattr(made, name) for name in OWN} == OWN | less


@pytest.mark.parametrize(
    "more",
    [
        {"tier": "enterprise"},
        {"requests_per_minute": 61},
        {"tokens_per_minute": 1001},
        {"requests_per_minute": None},
        {"operations": ("chat", "files")},
        {"operations": None},
        {"models": ("demo/*", "else/*")},
        {"models": ("demo/?*",)},
        {"models": ("other/cha*",)},
        {"models": None},
        {"regions": ("us", "asia")},
        {"regions": None},
        {"retention": "stored"},
        {"expires_at": 5001.0},
        {"expires_at": None},
        {"account": "theirs"},
        {"is_admin": True, "operations": None, "models": None},
    ],
    ids=str,
)
def test_a_key_may_not_have_more(more):
    wanted = {**MINE, **more}
    with pytest.raises(PermissionDenied):
        within(HOLDER, NewKey(**wanted))
    with pytest.raises(PermissionDenied):
        check_within(HOLDER, NewKey(**{**MINE, **OWN, **more}))


def test_an_admin_key_gives_ordinary_keys_of_any_account_anything():
    operator = principal_of_key(account="ops", is_admin=True, expires_at=10.0, requests_per_minute=1)
    wanted = NewKey(account="theirs", tier="enterprise", requests_per_minute=10**6, tokens_per_minute=10**9)
    assert within(operator, wanted) == wanted
