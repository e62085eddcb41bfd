"""The code interpreter, used by the trained model."""

from typing import Any

import httpx2
import pytest
from openai import OpenAI

from tests.service import TRAINED
from tests.twins.interpreter import sandbox_host
from tests.twins.legal import fold, split

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]


@pytest.fixture(autouse=True)
def _sandboxes() -> None:
    """Skip where this host cannot build them."""
    sandbox_host()


BODY: dict[str, Any] = {
    "model": TRAINED,
    "input": "What is 123 * 457?",
    "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}],
    "include": ["code_interpreter_call.outputs"],
    "temperature": 0,
}


def test_the_model_computes_with_it_and_answers_from_its_result(client: OpenAI) -> None:
    response = client.responses.create(**BODY)
    call, message = response.output
    assert call.type == "code_interpreter_call"
    assert (call.status, call.code) == ("completed", "123 * 457")
    assert call.outputs is not None
    assert [output.logs.strip() for output in call.outputs if output.type == "logs"] == ["56211"]
    assert message.type == "message"
    assert "56211" in response.output_text


def test_code_comes_as_the_model_writes_it(http: httpx2.Client) -> None:
    events = split(http.post("/v1/responses", json={**BODY, "stream": True}).content)
    kinds = [event["type"] for event in events]
    assert kinds.count("response.code_interpreter_call_code.delta") >= 3
    assert kinds.index("response.code_interpreter_call.in_progress") < kinds.index("response.output_item.done")
    assert fold(events)["output"][0]["code"] == "123 * 457"
