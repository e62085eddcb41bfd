"""Containers of the code interpreter on a running service: found from every ingress replica, and their own replicas."""

import psutil
import pytest
from openai import APIStatusError, NotFoundError, OpenAI

from deployments.tools.code_interpreter.replica import DEPLOYMENT
from tests.service import Service, eventually, is_living
from tests.twins.interpreter import sandbox_host

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1200)]


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


def test_replicas_come_with_containers_and_go_with_them(service: Service, client: OpenAI) -> None:
    delete_all(client)
    eventually(lambda: len(service.running(DEPLOYMENT)) == 1, 120, "one replica holds no containers")
    made = [client.containers.create(name=f"{number}").id for number in range(9)]  # One replica is to have eight.
    eventually(lambda: len(service.running(DEPLOYMENT)) == 2, 120, "another replica comes")
    for container_id in made:
        client.containers.files.create(container_id, file=("a.txt", b"hello"))
    delete_all(client)
    eventually(lambda: len(service.replicas(DEPLOYMENT)) == 1, 120, "it goes when there are none")


def delete_all(client: OpenAI) -> None:
    for container in list(client.containers.list()):
        if container.status == "running":
            client.containers.delete(container.id)


def test_a_replica_that_is_killed_takes_its_containers_along_and_is_replaced(service: Service, client: OpenAI) -> None:
    container = client.containers.create(name="mine")
    (replica,) = service.running(DEPLOYMENT)
    process = psutil.Process(replica.pid)
    sandboxes = process.children(recursive=True)
    assert any(one.name() == "bwrap" for one in sandboxes)
    process.kill()
    eventually(lambda: not any(map(is_living, sandboxes)), 30, "its sandboxes end with it")
    with pytest.raises(NotFoundError) as caught:
        client.containers.files.list(container.id)
    assert caught.value.code == "container_expired"

    def create() -> str | None:
        try:
            return client.containers.create(name="another").id
        except APIStatusError as error:
            if error.status_code != 503:
                raise
            return None

    client.containers.delete(str(eventually(create, 90, "another replica makes containers")))
