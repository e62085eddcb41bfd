"""The tools of a configuration, made by their names."""

from types import SimpleNamespace

from deployments.operations import TOOLS
from deployments.state.objects.config import ResolvedObjectStore
from deployments.tools.config import ToolsConfig
from serve_app.operations.registry import create_tooling
from serve_app.operations.responses.tools.contract import ToolResources
from tests.twins.engine import MemoryDirectory

SECTIONS = {
    "code_interpreter": {},
    "file_search": {"embedding_model": "m"},
    "web_search": {"provider": {"name": "searxng", "url": "http://search.test"}},
    "mcp": {},
}


def resources(tmp_path, sections) -> ToolResources:
    files = SimpleNamespace(vault=None, clock=None)
    place = ResolvedObjectStore(tmp_path.as_uri())
    config = ToolsConfig.model_validate(sections)
    return ToolResources(config, None, files, MemoryDirectory([]), str, place, {"code_interpreter": None})


async def test_every_tool_of_a_configuration_is_made_and_closed(tmp_path):
    tooling = create_tooling(resources(tmp_path, SECTIONS))
    assert {name: tool.type for name, tool in tooling.built_ins.items()} == {name: name for name in TOOLS}
    assert tooling.containers is tooling.built_ins["code_interpreter"].containers
    assert tooling.file_search is tooling.built_ins["file_search"].search
    await tooling.aclose()


async def test_without_a_section_there_is_no_tool(tmp_path):
    tooling = create_tooling(resources(tmp_path, {}))
    assert (tooling.built_ins, tooling.containers, tooling.file_search) == ({}, None, None)
    await tooling.aclose()
