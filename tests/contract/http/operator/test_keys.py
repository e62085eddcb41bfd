"""Keys administered over HTTP, on the real key store."""

import pytest

from deployments.state.identity.tiers import Tiers
from tests.contract.http.answers import SECRET

KEYS = "/v1/organization/admin/keys"
ADMIN_KEYS = "/v1/organization/admin_api_keys"
OTHER = "sk-manta-other-0123456789abcdefghijklmnopqrst"
ADMIN = "sk-manta-admin-0123456789abcdefghijklmnopqrst"


@pytest.fixture
async def http(world, key_store):
    world.principal(ADMIN, key_id="key_admin", is_admin=True)
    async with world.http(authorization=f"Bearer {ADMIN}") as http:
        yield http


async def test_key_lives_from_creation_to_revocation(http):
    made = (await http.post(KEYS, json={"name": "app", "account": "acme", "tier": "standard"})).json()
    assert made["secret"].startswith("sk-manta-")
    assert made["object"] == "organization.api_key"
    assert (made["requests_per_minute"], made["tokens_per_minute"]) == (60, 200_000)
    path = f"{KEYS}/{made['id']}"
    shown = (await http.get(path)).json()
    assert "secret" not in shown
    assert shown == {key: value for key, value in made.items() if key != "secret"}
    assert (await http.get(KEYS)).json()["data"] == [shown]
    assert (await http.get(KEYS, params={"account": "other"})).json()["data"] == []

    changed = (await http.post(path, json={"requests_per_minute": 7, "models": ["demo/*"]})).json()
    assert (changed["requests_per_minute"], changed["models"], changed["name"]) == (7, ["demo/*"], "app")

    rotated = (await http.post(path + "/rotate", json={"overlap_s": 60})).json()
    assert rotated["secret"] not in (made["secret"], None)
    assert rotated["previous_expires_at"] == rotated["rotated_at"] + 60
    assert "secret" in (await http.post(path + "/rotate")).json()

    gone = await http.delete(path)
    assert gone.json() == {"id": made["id"], "object": "organization.api_key.deleted", "deleted": True}
    assert (await http.get(KEYS)).json()["data"] == []
    revoked = (await http.get(KEYS, params={"include_revoked": "true"})).json()["data"]
    assert revoked[0]["revoked_at"] is not None


CALLS = [
    ("POST", KEYS, {"account": "acme"}),
    ("GET", KEYS, None),
    ("GET", f"{KEYS}/key_1", None),
    ("POST", f"{KEYS}/key_1", {"name": "x"}),
    ("POST", f"{KEYS}/key_1/rotate", {}),
    ("DELETE", f"{KEYS}/key_1", None),
]


@pytest.mark.parametrize(("method", "path", "body"), CALLS)
async def test_other_keys_are_refused(world, method, path, body):
    async with world.http() as http:
        answer = await http.request(method, path, json=body)
        assert answer.status_code == 403
        assert answer.json()["error"]["type"] == "invalid_request_error"
        del http.headers["authorization"]
        assert (await http.request(method, path, json=body)).status_code == 401


@pytest.mark.parametrize(("method", "path", "body"), CALLS[2:])
async def test_unknown_key_is_404(http, method, path, body):
    answer = await http.request(method, path, json=body)
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == "No API key found with id 'key_1'."


RESEARCH = {"research": {"requests_per_minute": 7, "tokens_per_minute": 700, "enqueued_tokens": None}}


@pytest.fixture
def tiers(world):
    """A tier of the configuration's own; named before `http`, so that the key store knows it."""
    world.tiers = Tiers.model_validate(RESEARCH)


async def test_a_key_has_the_limits_of_a_tier_that_the_configuration_adds(tiers, http, world):
    made = (await http.post(KEYS, json={"tier": "research"})).json()
    assert (made["tier"], made["requests_per_minute"], made["tokens_per_minute"]) == ("research", 7, 700)
    schemas = (await http.get("/openapi.json")).json()["components"]["schemas"]
    for body in ("NewKey", "KeyChange"):
        assert schemas[body]["properties"]["tier"]["enum"] == ["free", "standard", "enterprise", "research"]
    assert "&quot;research&quot;" in (await http.get("/docs/api/api-keys")).text


async def test_an_unknown_tier_is_refused_with_those_that_there_are(http):
    made = (await http.post(KEYS, json={})).json()
    for path in (KEYS, f"{KEYS}/{made['id']}"):
        answer = await http.post(path, json={"tier": "research"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tier")
        assert "Its tiers are: free, standard, enterprise." in answer.json()["error"]["message"]
    schemas = (await http.get("/openapi.json")).json()["components"]["schemas"]
    assert schemas["NewKey"]["properties"]["tier"]["enum"] == ["free", "standard", "enterprise"]


BAD = [
    {"tier": "gold"},
    {"account": "acme", "unknown": 1},
    {"tier": "enterprise"},
    {"requests_per_minute": -1},
    {"requests_per_minute": "many"},
    {"expires_at": 1},
    {"operations": ["telepathy"]},
    {"is_admin": True, "models": ["a"]},
    {"name": "\x00"},
]


@pytest.mark.parametrize("body", BAD, ids=str)
async def test_impossible_keys_are_400(http, body):
    answer = await http.post(KEYS, json=body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"]


async def test_revoked_or_empty_changes_are_400(http):
    made = (await http.post(KEYS, json={})).json()
    path = f"{KEYS}/{made['id']}"
    assert (await http.post(path, json={})).status_code == 400
    await http.delete(path)
    assert (await http.post(path, json={"name": "x"})).status_code == 400
    assert (await http.post(path + "/rotate", json={})).status_code == 400
    assert (await http.post(path + "/rotate", json={"overlap_s": -1})).status_code == 400


async def test_every_allowed_method_is_named(http):
    answer = await http.put(KEYS)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")


async def test_admin_secret_never_shows_in_the_log(http, world):
    await http.post(KEYS, json={})
    assert SECRET not in str(world.log.records)
    assert world.log.records[0].route == KEYS
    assert world.log.records[0].key_id == "key_admin"


async def test_an_admin_key_makes_no_admin_key_that_lasts_longer_or_reaches_further(world, http, key_store):
    soon = world.clock() + 3600
    world.principal(OTHER, key_id="key_soon", is_admin=True, expires_at=soon, regions=("eu", "us"))
    lasting = (await http.post(KEYS, json={"is_admin": True})).json()
    app = (await http.post(KEYS, json={"account": "acme"})).json()
    async with world.http(authorization=f"Bearer {OTHER}") as other:
        made = (await other.post(KEYS, json={"is_admin": True})).json()
        assert (made["expires_at"], made["regions"]) == (int(soon), ["eu", "us"])
        less = {"is_admin": True, "expires_at": soon - 1, "regions": ["eu"]}
        assert (await other.post(KEYS, json=less)).json()["regions"] == ["eu"]
        made_here = (await other.post(ADMIN_KEYS, json={"name": "x"})).json()
        assert made_here["expires_at"] == int(soon)

        more = [{"expires_at": None}, {"expires_at": soon + 1}, {"regions": None}, {"regions": ["eu", "asia"]}]
        refused = [
            *[await other.post(KEYS, json={"is_admin": True, **fields}) for fields in more],
            *[await other.post(f"{KEYS}/{made['id']}", json=fields) for fields in more],
            await other.post(ADMIN_KEYS, json={"name": "x", "expires_in_seconds": 7200}),
            await other.post(f"{KEYS}/{lasting['id']}", json={"name": "mine"}),
            await other.post(f"{KEYS}/{lasting['id']}/rotate"),
        ]
        assert [answer.status_code for answer in refused] == [403] * 11
        assert (await other.post(f"{KEYS}/{made['id']}/rotate")).status_code == 200
        assert (await other.post(f"{KEYS}/{app['id']}/rotate")).status_code == 200  # A user's key may last.
    assert (await http.get(f"{KEYS}/{made['id']}")).json()["expires_at"] == int(soon)
