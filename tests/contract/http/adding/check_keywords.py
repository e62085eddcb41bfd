"""The operation in `keywords`, from its route to its runner; `test_adding` runs this where it is added."""

from contextlib import suppress

import orjson
import pytest

from deployments.models.config import ModelConfig
from deployments.operations import Operation
from deployments.replica.runners import RunnerContext, create_runner
from tests.contract.http.answers import SECRET
from tests.contract.http.batch_calls import finish, jsonl, submit
from tests.contract.http.documented import DocumentedApp
from tests.twins.engine import MemoryDirectory, Script, ScriptedEngine

PATH = "/v1/keywords"
BODY = {"model": "reader", "input": "the whale is in the sea"}
KEYWORDS = {"model": "reader", "keywords": ["whale", "sea"]}


class Written:
    """A reply that is kept."""

    def __init__(self):
        self.pieces = []
        self.end = self.fail = lambda *_: None

    def write(self, piece):
        self.pieces.append(piece)


def run(request):
    """Answer with what the replica's runner writes, which waits for nothing."""
    reply = Written()
    runner = create_runner(request.operation, RunnerContext("reader", None, lambda name: name, None, None))
    with suppress(StopIteration):
        runner.run({}, request.body, reply).send(None)
    return Script(reply.pieces)


@pytest.fixture
def reader(world):
    config = ModelConfig(id="reader", source="demo:chat", task="embed", operations=["keywords"], max_model_len=512)
    world.directory = MemoryDirectory([ScriptedEngine(config.card, run)])


async def test_is_answered_as_its_document_says(world, reader):
    app = DocumentedApp(world.app())
    world.app = lambda: app
    answered = await world.http().post(PATH, json=BODY)
    assert (answered.status_code, answered.json()) == (200, KEYWORDS)
    assert app.answered == {(PATH, "post", "application/json")}
    assert [record.route for record in world.log.records] == [PATH]
    refused = await world.http().post(PATH, json={**BODY, "input": ""})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input")


async def test_needs_its_scope(world, reader):
    world.principal(SECRET, operations=["chat"])
    refused = await world.http().post(PATH, json=BODY)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_permissions")
    world.principal(SECRET, operations=["keywords"])
    assert (await world.http().post(PATH, json=BODY)).status_code == 200


async def test_is_run_in_batches(world, reader, batching):
    client = world.client()
    line = {"custom_id": "one", "method": "POST", "url": PATH, "body": BODY}
    batch = await finish(client, await submit(client, jsonl(line), PATH))
    output = await client.files.content(batch.output_file_id)
    assert orjson.loads(output.content)["response"]["body"] == KEYWORDS


def test_model_offers_it():
    assert (
        Operation("keywords") in ModelConfig(id="m", source="demo:chat", task="embed", max_model_len=8).card.operations
    )
