"""The model is trained on Manta's own tools as Manta offers them and tells their results."""

from types import SimpleNamespace
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from serve_app.operations.containers.tool import CodeInUse
from serve_app.operations.responses.tools.contract import ToolContext
from serve_app.operations.vector_stores.tool import FileSearchInUse
from serve_app.operations.web_search.tool import SearchInUse, _marked
from serve_app.schemas.responses.file_search import FileSearchTool
from serve_app.schemas.responses.web_search import WebSearchTool
from tests.tools.demo_model.built_in import CODE, FILES, PAGES, UNTRUSTED, WEB
from tests.tools.demo_model.export import TEMPLATE

NOTHING: Any = None
CONTEXT = ToolContext(NOTHING, items=[])


def offered() -> dict[str, list[Any]]:
    containers: Any = SimpleNamespace(config=SimpleNamespace(packages=["numpy"], shell=False))
    return {
        "code": CodeInUse(containers, CONTEXT, None, None, []).functions(),
        "files": FileSearchInUse(
            NOTHING, CONTEXT, FileSearchTool(type="file_search", vector_store_ids=["vs_1"])
        ).functions(),
        "web": SearchInUse(NOTHING, NOTHING, WebSearchTool(type="web_search"), CONTEXT).functions(),
    }


def written(tools: list[Any]) -> str:
    """Return tools as the chat template writes them."""
    ((text,), _) = render_jinja_template(
        [[{"role": "user", "content": "?"}]], chat_template=TEMPLATE.read_text(), tools=tools
    )
    return str(text)


@pytest.mark.parametrize(("kind", "trained"), [("code", [CODE]), ("files", [FILES]), ("web", [WEB, *PAGES])])
def test_tools_are_trained_as_they_are_offered(kind: str, trained: list[Any]) -> None:
    assert written(trained) == written(offered()[kind])


def test_what_is_told_to_be_untrusted_is_trained() -> None:
    told = _marked("a page")
    mark = told.rpartition(" ")[2]
    assert told == UNTRUSTED.format(mark=mark, text="a page")
