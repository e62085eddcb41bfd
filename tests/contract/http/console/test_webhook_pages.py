"""Webhook endpoints in the console: created with a secret that is shown once, tested, rotated, deleted."""

import html
import re
from dataclasses import replace
from urllib.parse import urlsplit

import pytest


@pytest.fixture
async def place(world, webhooks, receiver, holder):
    """The path of an endpoint's forms."""
    created = await holder.send("/console/webhooks", name="mine", url=receiver.url, event_types="batch.completed")
    assert created.status_code == 200, created.text
    found = re.search(r'action="(/console/webhooks/[^"/]+)/test"', created.text)
    assert found is not None
    assert re.search(r'<code id="secret">whsec_[^<]+</code>', created.text)
    return found[1]


async def test_a_secret_is_shown_once_and_an_endpoint_is_listed(world, place, holder, receiver, secrets):
    page = await holder.read("/console/webhooks")
    assert urlsplit(receiver.url).path in page
    assert '<code id="secret">' not in page
    (endpoint,) = (await world.client(secrets["acct_one"]).webhooks.list()).data
    assert (endpoint.name, endpoint.event_types, endpoint.id) == ("mine", ["batch.completed"], place.rpartition("/")[2])


async def test_a_sample_arrives_and_counts_as_a_request(world, place, holder, receiver, secrets):
    own = world.gatekeeper.principals[secrets["acct_one"]]
    world.gatekeeper.principals[secrets["acct_one"]] = replace(own, requests_per_minute=2)
    receiver.statuses = [204, 500]
    assert "with status 204" in (await holder.send(place + "/test", event_type="batch.completed")).text
    refused = await holder.send(place + "/test", event_type="batch.completed")
    assert '<p class="note warn" role="status">' in refused.text
    assert "with status 500" in refused.text
    assert (await holder.send(place + "/test", event_type="batch.exploded")).status_code == 400
    assert (await holder.send(place + "/test", event_type="batch.completed")).status_code == 429
    assert len(receiver.got) == 2


async def test_a_rotated_secret_signs_beside_the_old_one(world, place, holder, receiver):
    old = (await world.webhooks.find("acct_one", place.rpartition("/")[2])).secret
    shown = await holder.send(place + "/rotate", keeps="yes")
    now = await world.webhooks.find("acct_one", place.rpartition("/")[2])
    assert (now.previous, html.escape(now.secret) in shown.text) == (old, True)
    await holder.send(place + "/rotate")
    assert (await world.webhooks.find("acct_one", place.rpartition("/")[2])).previous is None


async def test_wrong_fields_stay_in_the_form(webhooks, holder):
    for fields, said in (
        ({"name": "n", "url": "https://10.0.0.1/x", "event_types": "batch.failed"}, "Invalid &#39;url&#39;"),
        ({"name": "n", "url": "https://example.com"}, "Choose at least one event"),
        ({"url": "https://example.com", "event_types": "batch.failed"}, "name"),
    ):
        refused = await holder.send("/console/webhooks", **fields)
        assert refused.status_code == 400
        assert said in refused.text.partition('role="alert">')[2].partition("</p>")[0]
        assert f'value="{fields["url"]}"' in refused.text


async def test_an_endpoint_of_another_account_is_not_found(world, place, visit, secrets):
    other = visit()
    await other.sign_in(secrets["acct_two"])
    for action in ("test", "rotate", "enable", "delete"):
        answer = await other.send(f"{place}/{action}", event_type="batch.completed")
        assert answer.status_code == 404
    assert "There are no webhooks" in await other.read("/console/webhooks")


async def test_a_disabled_endpoint_is_enabled_and_a_deleted_one_is_gone(world, place, holder):
    assert "gets events again" in await holder.read((await holder.send(place + "/enable")).headers["location"])
    gone = await holder.send(place + "/delete")
    assert gone.headers["location"] == "/console/webhooks?done=deleted"
    assert "There are no webhooks" in await holder.read("/console/webhooks")
    assert (await holder.send(place + "/delete")).status_code == 404
