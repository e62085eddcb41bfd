"""Keys with scopes, issued by the real key store: what they name may be used, and nothing else."""

from collections.abc import Awaitable, Callable

import openai
import pytest

from deployments.operations import Operation
from deployments.state.usage.request_log import RequestLogReader
from serve_app.operations.safety.moderation import ModerationConfig
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, said
from tests.contract.http.code_interpreter_calls import runs
from tests.contract.http.file_search_calls import filled_store, tool_of
from tests.contract.http.file_search_calls import searches as searches_files
from tests.contract.http.mcp_calls import NAILS
from tests.contract.http.mcp_calls import tool as mcp_tool
from tests.contract.http.response_calls import script
from tests.contract.http.web_search_calls import TOOL as WEB_SEARCH
from tests.contract.http.web_search_calls import searches as searches_web

KEYS = "/v1/organization/admin/keys"
ADMIN = "sk-manta-admin-0123456789abcdefghijklmnopqrst"
Ask = Callable[[openai.AsyncOpenAI], Awaitable[object]]


@pytest.fixture
def client_of(world, key_store):
    """Return a function that issues a key with scopes as an operator does over HTTP, and returns its client."""
    world.principal(ADMIN, key_id="key_admin", is_admin=True)

    async def issue(*operations: str) -> openai.AsyncOpenAI:
        async with world.http(authorization=f"Bearer {ADMIN}") as http:
            new = {"operations": operations, "account": "acct_1", "tier": "standard"}
            answer = await http.post(KEYS, json=new)
        assert answer.status_code == 200, answer.text
        assert answer.json()["operations"] == list(operations)
        _, stored = await key_store.changes_since(0)
        world.gatekeeper.principals[answer.json()["secret"]] = stored[-1].principal
        return world.client(answer.json()["secret"])

    return issue


async def refused(ask: Ask, client: openai.AsyncOpenAI, scope: str) -> None:
    with pytest.raises(openai.PermissionDeniedError, match=f"'{scope}'") as caught:
        await ask(client)
    assert (caught.value.status_code, caught.value.code) == (403, "insufficient_permissions")


def responding(*tools: dict[str, object]) -> Ask:
    return lambda client: client.responses.create(model=MODEL, input="x", tools=tools)


async def used(world, ask: Ask, client: openai.AsyncOpenAI, kind: str, *turns) -> None:
    """Have a response use its tool, and see that the call was made."""
    script(world, *turns, said("Done."))
    response = await ask(client)
    calls = [item for item in response.output if item.type == kind]
    assert [call.status for call in calls] == ["completed"]


async def test_a_key_with_its_scope_searches_the_web(world, client_of, web):
    ask = responding(WEB_SEARCH)
    await refused(ask, await client_of("responses"), "web_search")
    await used(world, ask, await client_of("responses", "web_search"), "web_search_call", searches_web())


async def test_a_key_with_its_scope_runs_code_and_has_containers(world, client_of, interpreter):
    ask = responding({"type": "code_interpreter", "container": {"type": "auto"}})
    without, client = await client_of("responses"), await client_of("responses", "code_interpreter")
    await refused(ask, without, "code_interpreter")
    await refused(lambda one: one.containers.list(), without, "code_interpreter")
    await used(world, ask, client, "code_interpreter_call", runs("print(1)"))
    made = await client.containers.create(name="mine")
    assert made.id in [one.id for one in (await client.containers.list()).data]


async def test_a_key_with_its_scope_searches_files_and_has_vector_stores(world, client_of, vector_stores, indexer):
    store = await filled_store(world, indexer, {"moon.md": "The moon is made of cheese."})
    ask = responding(tool_of(store))
    without, client = await client_of("responses"), await client_of("responses", "file_search")
    await refused(ask, without, "file_search")
    await refused(lambda one: one.vector_stores.list(), without, "file_search")
    await used(world, ask, client, "file_search_call", searches_files("moon"))
    assert [one.id for one in (await client.vector_stores.list()).data] == [store.id]


async def test_a_key_with_its_scope_calls_remote_servers(world, client_of, mcp_server):
    ask = responding(mcp_tool(mcp_server))
    await refused(ask, await client_of("responses"), "mcp")
    await used(world, ask, await client_of("responses", "mcp"), "mcp_call", NAILS)


def posting(path: str, **body: object) -> Ask:
    return lambda client: client.post(path, cast_to=object, body=body)


ASKS: dict[str, Ask] = {
    Operation.CHAT: lambda client: client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "x"}]
    ),
    Operation.COMPLETIONS: lambda client: client.completions.create(model=MODEL, prompt="x"),
    Operation.EMBEDDINGS: lambda client: client.embeddings.create(model=EMBEDDING_MODEL, input="x"),
    Operation.RESPONSES: lambda client: client.responses.create(model=MODEL, input="x"),
    Operation.TOKENIZE: posting("/tokenize", model=MODEL, prompt="x"),
    Operation.DETOKENIZE: posting("/detokenize", model=MODEL, tokens=[1]),
    Operation.RERANK: posting("/rerank", model=EMBEDDING_MODEL, query="x", documents=["y"]),
    Operation.MODERATIONS: lambda client: client.moderations.create(input="x"),
    Operation.SCORE: posting("/score", model=EMBEDDING_MODEL, text_1="x", text_2="y"),
    Operation.FILES: lambda client: client.files.list(),
    Operation.BATCHES: lambda client: client.batches.list(),
    Operation.USAGE: lambda client: client.get("/organization/requests", cast_to=object),
    Operation.WEBHOOKS: lambda client: client.webhooks.event_types.list(),
}


@pytest.mark.parametrize("scope", ASKS)
async def test_a_key_does_what_its_scope_names_and_nothing_else(world, client_of, batch_stores, scope):
    world.moderation = ModerationConfig(patterns={"violence": ("kill",)})
    world.request_log = RequestLogReader(batch_stores.database)
    client = await client_of(scope)
    for other, ask in ASKS.items():
        if other == scope:
            await ask(client)
        else:
            await refused(ask, client, other)


async def test_the_document_lists_every_scope(world):
    async with world.http() as http:
        schemas = (await http.get("/openapi.json")).json()["components"]["schemas"]
    for body in ("NewKey", "KeyChange"):
        (scopes,) = [kind["items"] for kind in schemas[body]["properties"]["operations"]["anyOf"] if "items" in kind]
        assert scopes["enum"] == list(Operation)
