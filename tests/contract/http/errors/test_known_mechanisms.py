"""Attacks that other services of this kind fell to, tried here."""

import pytest

from tests.contract.http.answers import MODEL

MESSAGES = [{"role": "user", "content": "Say hello."}]
CHAT = ("/v1/chat/completions", {"messages": MESSAGES})
RESPONSES = ("/v1/responses", {"input": "Say hello."})
HOSTS = ("manta.test/?", "manta.test/#", "manta.test/healthz?", "manta.test/v1/models#", "@manta.test", "")


async def refused(world, path, body):
    async with world.http() as http:
        answer = await http.post(path, json={"model": MODEL, **body})
    assert answer.status_code == 400, answer.text[:300]
    assert not world.chat.requests
    return answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "body"), [CHAT, RESPONSES, ("/v1/responses/input_tokens", RESPONSES[1]), ("/tokenize", CHAT[1])]
)
@pytest.mark.parametrize("name", ["chat_template", "tokenize", "messages"])
async def test_no_request_brings_a_template_of_its_own(world, path, body, name):
    error = await refused(world, path, {**body, "chat_template_kwargs": {name: "{{ 1 }}"}})
    assert error["param"].startswith("chat_template_kwargs")
    await refused(world, path, {**body, "chat_template": "{{ 1 }}"})


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    ("secret", "path", "status"),
    [
        ("sk-wrong", "/v1/models", 401),
        (None, "/v1/organization/admin_api_keys", 403),
    ],
)
async def test_the_host_that_a_client_names_opens_no_path(world, host, secret, path, status):
    headers = {"host": host} | ({"authorization": f"Bearer {secret}"} if secret else {})
    async with world.http() as http:
        assert (await http.get(path, headers=headers)).status_code == status
