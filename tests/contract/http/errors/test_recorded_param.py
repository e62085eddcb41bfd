"""The request log has the parameter at fault or the limit that refused a request, and nothing that a client made up."""

import pytest

from tests.contract.http.answers import MODEL, SECRET

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"temperature": 9}, "temperature"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"model": "none"}, "model"),
        ({"my secret": 1}, None),
        ({"tempratur": 1}, None),
    ],
)
async def test_the_parameter_at_fault_is_recorded(world, change, param):
    async with world.http() as http:
        answer = await http.post("/v1/chat/completions", json={**CHAT, **change})
    assert answer.status_code in (400, 404)
    assert world.log.records[-1].param == param


async def test_the_limit_that_refused_is_recorded(world):
    world.principal(requests_per_minute=1)
    async with world.http() as http:
        for _ in range(2):
            answer = await http.post("/v1/chat/completions", json=CHAT)
    assert answer.status_code == 429
    assert world.log.records[-1].param == "requests_per_minute"
    world.principal(SECRET + "2", key_id="key_2", tokens_per_minute=1)
    async with world.http(authorization=f"Bearer {SECRET}2") as http:
        assert (await http.post("/v1/chat/completions", json=CHAT)).status_code == 429
    assert world.log.records[-1].param == "tokens_per_minute"
