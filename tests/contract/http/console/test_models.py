"""The page of models: what each can do, whether it can answer now, and programs that call it."""

import asyncio

import pytest

from deployments.models.config import deployment_name
from serve_app.console.pages import models as page
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL
from tests.twins.cluster import ClusterTwin, deployment
from tests.twins.engine import model_card

STATES = [
    (deployment(deployment_name(MODEL), RUNNING=1), "ready"),
    (deployment(deployment_name(MODEL), "UPDATING", STARTING=1), "starting"),
    (deployment(deployment_name(MODEL)), "scaled to zero"),
    (deployment(deployment_name(MODEL), "UNHEALTHY"), "unavailable"),
]


@pytest.fixture
def cluster(world):
    """A cluster; named before `visit`."""
    world.cluster = ClusterTwin()
    return world.cluster


@pytest.fixture
async def browser(cluster, visit, secrets):
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    return browser


@pytest.mark.parametrize(("seen", "state"), STATES, ids=[state for _, state in STATES])
async def test_a_model_has_the_state_of_its_deployment(cluster, browser, seen, state):
    cluster.seen["deployments"] = [seen]
    text = await browser.read("/console/models")
    shown = [one for _, one in STATES if f">{one}</span>" in text]
    assert shown == [state]
    assert ("Its first request starts it" in text) == (state == "scaled to zero")


async def test_models_are_shown_without_a_state_while_ray_does_not_answer(cluster, browser, monkeypatch):
    monkeypatch.setattr(page, "_STATES_S", 0.01)
    monkeypatch.setattr(cluster, "deployments", asyncio.Event().wait)
    assert MODEL in await browser.read("/console/models")


async def test_a_model_shows_what_it_is_for_its_other_names_and_what_it_can_do(world, browser):
    card = model_card(
        MODEL, "chat", has_tools=True, has_images=True, aliases=("chat", "small"), description="For <b>support</b>."
    )
    world.chat.card = card
    text = await browser.read("/console/models")
    for shown in ("chat, small", "For &lt;b&gt;support&lt;/b&gt;.", "4,096 tokens", ">images<", ">structured output<"):
        assert shown in text, shown
    assert ">reasoning<" not in text


async def test_a_model_that_can_chat_leads_to_the_playground_and_each_to_its_programs(browser):
    text = await browser.read("/console/models")
    chat, embeddings = (part for part in text.split('<section class="card"')[1:])
    assert MODEL in chat
    assert EMBEDDING_MODEL in embeddings
    assert f"/console/playground?model={MODEL}" in chat
    assert "/console/playground?" not in embeddings
    assert "chat.completions.create" in chat
    assert "embeddings.create" in embeddings


async def test_the_playground_offers_every_effort_by_its_name(world, browser):
    text = await browser.read("/console/playground")
    assert "<option>none</option><option>minimal</option><option>low</option>" in text
    assert "Literal" not in text
