"""The code interpreter on the real service: a container is the same from every ingress replica."""

import httpx2
import psutil
import pytest
from openai import NotFoundError, OpenAI

from deployments.tools.code_interpreter.replica import DEPLOYMENT
from tests.cluster.cluster import CHAT, Service, eventually
from tests.twins.interpreter import sandbox_host
from tests.twins.legal import fold, split

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def _sandboxes() -> None:
    """Skip where this host cannot build them."""
    sandbox_host()


def test_a_container_is_found_from_every_ingress_replica(service: Service, client: OpenAI, key: str) -> None:
    container = client.containers.create(name="mine")
    file = client.containers.files.create(container.id, file=("a.txt", b"hello"))
    for url in service.ingress_urls():
        with OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=60) as direct:
            content = direct.containers.files.content.retrieve(file.id, container_id=container.id)
            assert content.content == b"hello"
    client.containers.delete(container.id)


BODY = {
    "model": CHAT,
    "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}],
    "tool_choice": {"type": "code_interpreter"},
    "max_tool_calls": 1,
    "max_output_tokens": 60,
    "include": ["code_interpreter_call.outputs"],
}


def test_the_model_calls_it_and_the_response_goes_on(http: httpx2.Client) -> None:
    # Random weights seldom write Python, and some of what they begin does not end within the tokens that they have.
    answers = (http.post("/v1/responses", json={**BODY, "input": "x" * number}).json() for number in range(1, 20))
    calls = (item for told in answers for item in told["output"] if item["type"] == "code_interpreter_call")
    call = next(call for call in calls if call["status"] != "incomplete")
    assert call["status"] == "completed"
    assert call["outputs"] is not None


def test_code_comes_as_the_model_writes_it(http: httpx2.Client) -> None:
    answers = (http.post("/v1/responses", json={**BODY, "input": "x" * n, "stream": True}) for n in range(1, 20))
    kinds = []
    while kinds.count("response.code_interpreter_call_code.delta") < 3:  # Random weights may write no code at all.
        events = split(next(answers).content)
        kinds = [event["type"] for event in events]
        final = fold(events)
    assert kinds.index("response.code_interpreter_call.in_progress") < kinds.index("response.output_item.done")
    assert final["output"][0]["code"]


def test_a_replica_that_is_killed_takes_its_containers_along_and_is_replaced(service: Service, client: OpenAI) -> None:
    container = client.containers.create(name="mine")
    (replica,) = service.running(DEPLOYMENT)
    process = psutil.Process(replica.pid)
    sandboxes = process.children(recursive=True)
    assert any(one.name() == "bwrap" for one in sandboxes)
    process.kill()
    eventually(lambda: not any(map(_is_there, sandboxes)), 30, "its sandboxes end with it")
    with pytest.raises(NotFoundError) as caught:
        client.containers.files.list(container.id)
    assert caught.value.code == "container_expired"

    def create() -> str | None:
        try:
            return client.containers.create(name="another").id
        except Exception:
            return None

    client.containers.delete(str(eventually(create, 90, "another replica makes containers")))


def _is_there(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
