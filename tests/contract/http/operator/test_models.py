"""The list of models in the forms of those who ask for it."""

import pytest

from deployments.operations import operations_of
from tests.contract.http.answers import MODEL, answer
from tests.twins.engine import MemoryDirectory, ScriptedEngine, model_card


@pytest.fixture
def able(world):
    """One model that calls tools, and one that only some accounts see."""
    operations = operations_of("generate")
    mine = model_card(MODEL, *operations, has_tools=True)
    theirs = model_card("theirs", *operations, has_tools=True, accounts=frozenset({"acct_2"}))
    world.directory = MemoryDirectory([ScriptedEngine(card, answer) for card in (mine, theirs)])


async def test_codex_gets_its_catalogue_of_the_models_that_its_key_may_use(world, able):
    async with world.http() as http:
        told = await http.get("/v1/models?client_version=0.171.0")
        assert [model["slug"] for model in told.json()["models"]] == [MODEL]
        assert "object" in (await http.get("/v1/models")).json()
        world.principal(models=["other-*"])
        assert (await http.get("/v1/models?client_version=")).json() == {"models": []}
        assert (await http.get("/v1/models?client_version=1", headers={"authorization": "Bearer x"})).status_code == 401


async def test_an_unchanged_catalogue_is_not_sent_again(world, able):
    async with world.http() as http:
        told = await http.get("/v1/models?client_version=1")
        again = await http.get("/v1/models?client_version=1", headers={"if-none-match": told.headers["etag"]})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", told.headers["etag"])
        weak = await http.get(
            "/v1/models?client_version=1", headers={"if-none-match": f'"x", W/{told.headers["etag"]}'}
        )
        assert weak.status_code == 304
        other = await http.get("/v1/models?client_version=1", headers={"if-none-match": '"other"'})
        assert (other.status_code, other.json()) == (200, told.json())
