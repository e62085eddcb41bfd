"""Calls from web pages: a browser asks first, and shows a page the answers that name the page's origin."""

import pytest

from tests.contract.http.answers import MODEL

ORIGIN = "https://chat.example.com"
ASKED = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}


async def test_no_page_may_call_the_service_unless_it_is_configured(world):
    async with world.http(origin=ORIGIN) as http:
        for answer in (
            await http.options("/v1/chat/completions", headers=ASKED),
            await http.post("/v1/chat/completions", json=CHAT),
        ):
            assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize(("allowed", "named"), [((ORIGIN, "http://localhost:3000"), ORIGIN), (("*",), "*")])
async def test_a_page_of_an_origin_that_is_named_may_call_the_service(world, allowed, named):
    world.cors_origins = allowed
    async with world.http(origin=ORIGIN) as http:
        asked = await http.options("/v1/chat/completions", headers=ASKED)
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == named
        assert "POST" in asked.headers["access-control-allow-methods"]
        assert {"authorization", "content-type"} <= set(asked.headers["access-control-allow-headers"].split(","))
        answer = await http.post("/v1/chat/completions", json=CHAT)
        stream = await http.post("/v1/chat/completions", json={**CHAT, "stream": True})
        refused = await http.post("/v1/chat/completions", json=CHAT, headers={"authorization": "Bearer sk-wrong"})
    assert [one.status_code for one in (answer, stream, refused)] == [200, 200, 401]
    for one in (answer, stream, refused):
        assert one.headers["access-control-allow-origin"] == named
        assert "x-request-id" in one.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in one.headers


async def test_a_page_of_another_origin_may_not(world):
    world.cors_origins = (ORIGIN,)
    async with world.http(origin="https://evil.example") as http:
        assert (await http.options("/v1/models", headers=ASKED)).status_code == 400
        assert "access-control-allow-origin" not in (await http.get("/v1/models")).headers
