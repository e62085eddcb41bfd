"""The code interpreter on the real service: a container is the same from every ingress replica."""

import httpx2
import psutil
import pytest
from openai import NotFoundError, OpenAI

from deployments.tools.code_interpreter.replica import DEPLOYMENT
from tests.cluster.cluster import CHAT, Service, eventually
from tests.twins.interpreter import sandbox_host

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


def test_the_model_calls_it_and_the_response_goes_on(http: httpx2.Client) -> None:
    body = {
        "model": CHAT,
        "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}],
        "tool_choice": {"type": "code_interpreter"},
        "max_tool_calls": 1,
        "max_output_tokens": 60,
        "include": ["code_interpreter_call.outputs"],
    }
    # Random weights seldom write Python, and some of what they begin does not end within the tokens that they have.
    answers = (http.post("/v1/responses", json={**body, "input": "x" * number}).json() for number in range(1, 20))
    call = next(item for told in answers for item in told["output"] if item["type"] == "code_interpreter_call")
    assert call["status"] == "completed"
    assert call["outputs"] is not None


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
