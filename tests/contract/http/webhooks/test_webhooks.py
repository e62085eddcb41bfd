"""Webhooks, by the real client's routes, over real HTTP: signed, repeated, and kept within bounds."""

import asyncio
import logging

import openai
import orjson
import pytest

from deployments.state.webhooks.queue import LEASE_S, enqueue
from deployments.state.webhooks.rows import EVENT_TYPES
from deployments.tools.outbound.addresses import AddressRules
from deployments.webhooks import WebhookSender
from tests.contract.http.answers import MODEL
from tests.contract.http.background_calls import ended
from tests.contract.http.batch_calls import finish, jsonl, line, submit
from tests.contract.http.conftest import run_batches
from tests.waiting import eventually

OTHER = "sk-manta-other-0123456789abcdefghijklmnopqrs"


async def make(client, receiver, *types):
    return await client.webhooks.create(name="mine", url=receiver.url, event_types=types or ("response.completed",))


async def is_empty(webhooks):
    return (await webhooks.queue.waiting()).num_deliveries == 0


def read(client, got, secret):
    body, headers = got
    return client.webhooks.unwrap(body, headers, secret=secret)


async def test_endpoints_are_made_listed_changed_and_deleted(world, webhooks, receiver):
    client = world.client()
    made = await make(client, receiver)
    assert made.signing_secret.startswith("whsec_")
    assert made.signing_secret.endswith(made.signing_secret_hint[-4:])
    world.clock.advance(1)
    second = await make(client, receiver, "batch.failed")
    page = await client.webhooks.list(limit=1)
    assert [one.id for one in page.data] == [second.id]
    assert [one.id async for one in client.webhooks.list(limit=1)] == [second.id, made.id]
    found = await client.webhooks.retrieve(made.id)
    assert (found.name, found.url, found.event_types) == ("mine", receiver.url, ["response.completed"])
    assert "signing_secret" not in found.model_dump()
    changed = await client.webhooks.update(made.id, name="renamed", event_types=["batch.failed", "batch.failed"])
    assert (changed.name, changed.url, changed.event_types) == ("renamed", receiver.url, ["batch.failed"])
    assert (await client.webhooks.delete(made.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await client.webhooks.retrieve(made.id)
    assert (await client.webhooks.event_types.list()).data == list(EVENT_TYPES)


async def test_a_background_response_is_told_of_and_the_client_verifies_it(world, webhooks, receiver):
    client = world.client()
    made = await make(client, receiver)
    async with webhooks.delivering():
        begun = await client.responses.create(model=MODEL, input="Go on.", background=True)
        await ended(client.responses, begun.id)
        await eventually(lambda: receiver.got)
        await eventually(lambda: is_empty(webhooks))
    event = read(client, receiver.got[0], made.signing_secret)
    assert (event.type, event.data.id, event.id) == ("response.completed", begun.id, receiver.ids()[0])
    with pytest.raises(openai.InvalidWebhookSignatureError):
        read(client, receiver.got[0], "whsec_" + "A" * 44)


async def test_a_response_in_the_foreground_is_no_event(world, webhooks, receiver):
    client = world.client()
    await make(client, receiver)
    await client.responses.create(model=MODEL, input="Go on.")
    assert (await webhooks.queue.waiting()).num_deliveries == 0


async def test_batches_are_told_of_however_they_end(world, batch_stores, batch_webhooks, receiver):
    world.principal(requests_per_minute=100_000)
    client = world.client()
    made = await make(client, receiver, "batch.completed", "batch.failed", "batch.cancelled")
    async with batch_webhooks.delivering(), run_batches(world, batch_stores):
        good = await finish(client, await submit(client, jsonl(line(1))))
        bad = await finish(client, await submit(client, b"not json\n"))
        await eventually(lambda: len(receiver.got) == 2)
    events = [read(client, got, made.signing_secret) for got in receiver.got]
    assert {(event.type, event.data.id) for event in events} == {
        ("batch.completed", good.id),
        ("batch.failed", bad.id),
    }


async def test_what_fails_is_sent_again_under_the_same_id(world, webhooks, receiver):
    client = world.client()
    made = await make(client, receiver)
    receiver.statuses = [500, 307, 200]
    begun = await client.responses.create(model=MODEL, input="Go on.", background=True)
    await ended(client.responses, begun.id)
    async with webhooks.delivering():
        for tries in (1, 2, 3):
            await eventually(lambda tries=tries: len(receiver.got) == tries)
            await asyncio.sleep(0.1)  # It is noted in a moment.
            world.clock.advance(400)
        await eventually(lambda: is_empty(webhooks))
    assert len(set(receiver.ids())) == 1
    assert len(receiver.got) == 3
    assert read(client, receiver.got[2], made.signing_secret).data.id == begun.id


async def test_a_process_that_dies_after_sending_has_it_sent_again(world, webhooks, receiver):
    client = world.client()
    await make(client, receiver)
    begun = await client.responses.create(model=MODEL, input="Go on.", background=True)
    await ended(client.responses, begun.id)
    is_dead = asyncio.Event()

    class Dying:
        """The queue of a process that is killed before it can note what it has sent."""

        take = webhooks.queue.take

        async def note_delivered(self, delivery):
            is_dead.set()
            raise OSError("This process is dead.")

    async with webhooks.delivering(Dying()):
        await asyncio.wait_for(is_dead.wait(), 30)
    assert len(receiver.got) == 1
    world.clock.advance(LEASE_S)
    async with webhooks.delivering():
        await eventually(lambda: len(receiver.got) == 2)
    assert len(set(receiver.ids())) == 1


async def test_an_endpoint_that_is_gone_is_disabled(world, webhooks, receiver):
    client = world.client()
    made = await make(client, receiver)
    receiver.statuses = [410]

    async def is_disabled():
        return (await client.webhooks.retrieve(made.id)).status == "disabled"

    async with webhooks.delivering():
        begun = await client.responses.create(model=MODEL, input="Go on.", background=True)
        await ended(client.responses, begun.id)
        await eventually(is_disabled)
    async with world.http() as http:  # Without a field: the client sends an empty object, others nothing.
        assert (await http.post(f"/v1/webhook_endpoints/{made.id}")).json()["status"] == "enabled"
    assert (await client.webhooks.update(made.id)).status == "enabled"


async def test_a_slow_endpoint_holds_up_no_other(world, webhooks, receiver):
    client = world.client()
    await make(client, receiver)
    receiver.is_silent = True
    for _ in range(6):
        begun = await client.responses.create(model=MODEL, input="Go on.", background=True)
        await ended(client.responses, begun.id)
    async with webhooks.delivering():
        await eventually(lambda: len(receiver.got) == 4)
        receiver.is_silent = False
        other = await make(client, receiver)
        begun = await client.responses.create(model=MODEL, input="Go on.", background=True)
        await ended(client.responses, begun.id)
        await eventually(lambda: len(receiver.got) == 5)
    assert read(client, receiver.got[4], other.signing_secret).data.id == begun.id


async def test_account_with_many_silent_endpoints_leaves_places_for_others(world, webhooks, receiver):
    receiver.is_silent = True
    for number in range(20):
        values = {"name": f"{number}", "url": receiver.url, "event_types": ["response.completed"]}
        await webhooks.store.create("acct_1", values["name"], values["url"], values["event_types"])
    for number in range(4):
        async with webhooks.database.write() as connection:
            await enqueue(connection, "acct_1", "response.completed", f"resp_{number}", world.clock())
    async with webhooks.delivering():
        await eventually(lambda: len(receiver.got) == 32)
        await webhooks.store.create("acct_2", "theirs", receiver.url, ["response.failed"])
        async with webhooks.database.write() as connection:
            await enqueue(connection, "acct_2", "response.failed", "resp_9", world.clock())
        await eventually(lambda: len(receiver.got) == 33)
    assert orjson.loads(receiver.got[32][0])["data"]["id"] == "resp_9"


async def test_a_rotated_secret_signs_beside_the_old_one_if_it_is_kept(world, webhooks, receiver):
    client = world.client()
    made = await make(client, receiver)
    rotated = await client.webhooks.rotate_secret(made.id, keep_old_secret_active_for_24_hours=True)
    result = await client.webhooks.test(made.id, event_type="response.completed")
    assert (result.status_code, result.success) == (200, True)
    for secret in (made.signing_secret, rotated.signing_secret):
        assert read(client, receiver.got[0], secret).type == "response.completed"
    last = await client.webhooks.rotate_secret(made.id)
    await client.webhooks.test(made.id, event_type="batch.failed")
    assert read(client, receiver.got[1], last.signing_secret).data.id == "batch_test"
    with pytest.raises(openai.InvalidWebhookSignatureError):
        read(client, receiver.got[1], rotated.signing_secret)


async def test_a_test_tells_the_status_and_what_went_wrong(world, webhooks, receiver):
    client = world.client()
    made = await make(client, receiver)
    receiver.statuses = [404]
    assert (await client.webhooks.test(made.id, event_type="response.failed")).status_code == 404
    changed = await client.webhooks.update(made.id, url="http://127.0.0.1:1025/")
    with pytest.raises(openai.BadRequestError, match=r"could not be reached"):
        await client.webhooks.test(changed.id, event_type="response.failed")


HOSTILE = (
    "http://receiver.example/",
    "https://10.0.0.7/hook",
    "https://[::1]/hook",
    "https://169.254.169.254/latest",
    "https://user:password@receiver.example/",
    "ftp://receiver.example/",
    "file:///etc/passwd",
    "https://receiver.example:22/",
    "https:///no-host",
    "not an address",
    "https://" + "a" * 3000,
)


@pytest.mark.parametrize("url", HOSTILE)
async def test_nothing_is_sent_to_hostile_addresses(world, webhooks, url):
    world.webhook_sender = WebhookSender(AddressRules())
    client = world.client()
    with pytest.raises(openai.BadRequestError) as refused:
        await client.webhooks.create(name="x", url=url, event_types=["batch.failed"])
    assert refused.value.param == "url"


async def test_a_host_that_leads_inside_gets_nothing(world, webhooks, receiver):
    world.webhook_sender = WebhookSender(AddressRules())
    client = world.client()
    made = await client.webhooks.create(name="x", url="https://localhost:8443/", event_types=["batch.failed"])
    with pytest.raises(openai.BadRequestError, match="not on the public internet"):
        await client.webhooks.test(made.id, event_type="batch.failed")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "x", "url": "https://receiver.example", "event_types": []},
        {"name": "x", "url": "https://receiver.example", "event_types": ["video.completed"]},
        {"name": "", "url": "https://receiver.example", "event_types": ["batch.failed"]},
        {"name": "x" * 101, "url": "https://receiver.example", "event_types": ["batch.failed"]},
    ],
)
async def test_bodies_that_are_no_endpoint_are_refused(world, webhooks, body):
    async with world.http() as http:
        answer = await http.post("/v1/webhook_endpoints", json=body)
    assert answer.status_code == 400, answer.text


async def test_endpoints_of_another_account_do_not_exist(world, webhooks, receiver):
    made = await make(world.client(), receiver)
    world.principal(OTHER, account="acct_2")
    other = world.client(OTHER)
    for attempt in (
        other.webhooks.retrieve(made.id),
        other.webhooks.update(made.id, name="x"),
        other.webhooks.delete(made.id),
        other.webhooks.rotate_secret(made.id),
        other.webhooks.test(made.id, event_type="batch.failed"),
    ):
        with pytest.raises(openai.NotFoundError):
            await attempt
    assert (await other.webhooks.list()).data == []
    assert receiver.got == []


async def test_no_log_has_an_address_or_a_secret(world, webhooks, receiver, caplog):
    caplog.set_level(logging.INFO)
    client = world.client()
    receiver.url += "?token=not-for-logs"
    made = await make(client, receiver)
    receiver.statuses = [410]
    async with webhooks.delivering():
        begun = await client.responses.create(model=MODEL, input="Go on.", background=True)
        await ended(client.responses, begun.id)
        await eventually(lambda: "Dropped evt_" in caplog.text)
    of_receiver = "uvicorn"
    lines = [line.getMessage() for line in caplog.records if not line.name.startswith(of_receiver)]
    assert not [line for line in lines if "not-for-logs" in line or made.signing_secret in line]
