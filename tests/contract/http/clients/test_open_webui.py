"""Open WebUI, unmodified, against the application behind a real server; driven as its page drives it."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import orjson
import pytest

from tests import needs
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, SECRET
from tests.contract.http.conftest import serve
from tests.ports import free_port
from tests.waiting import eventually

CHAT = "/api/chat/completions"


@asynccontextmanager
async def open_webui(program: str, folder, address: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Run Open WebUI over a service; yield a client that is signed in to it."""
    port = free_port()
    settings = {
        "OPENAI_API_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": SECRET,
        "RAG_EMBEDDING_ENGINE": "openai",
        "RAG_OPENAI_API_BASE_URL": f"{address}/v1",
        "RAG_OPENAI_API_KEY": SECRET,
        "RAG_EMBEDDING_MODEL": EMBEDDING_MODEL,
        "WEBUI_AUTH": "False",
        "ENABLE_OLLAMA_API": "False",
        "OFFLINE_MODE": "True",
        "DATA_DIR": str(folder),
        "WEBUI_SECRET_KEY": "key of a test",
    }
    with (folder / "output.log").open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(program, "serve", "--host", "127.0.0.1", "--port", str(port)),
            cwd=folder,
            env={**os.environ, **settings},
            stdout=output,
            stderr=output,
        )
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:

            async def answers() -> bool:
                assert process.returncode is None, (folder / "output.log").read_text()
                try:
                    return (await client.get("/health")).is_success
                except httpx2.ConnectError:
                    return False

            await eventually(answers, 600)
            signed_in = await client.post("/api/v1/auths/signin", json={"email": "", "password": ""})
            client.headers["authorization"] = "Bearer " + signed_in.json()["token"]
            yield client
    finally:
        process.terminate()
        await process.wait()


def asking(text: str, **more: object) -> dict[str, object]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **more}


def text_of(stream: str) -> str:
    *lines, last = (line.removeprefix("data: ") for line in stream.split("\n\n") if line.strip())
    assert last == "[DONE]"
    return "".join(choice["delta"].get("content") or "" for line in lines for choice in orjson.loads(line)["choices"])


@pytest.mark.timeout(900)
async def test_open_webui_works_unmodified(world, tmp_path):
    program = needs.open_webui()
    async with serve(world.app()) as address, open_webui(program, tmp_path, address) as page:
        models = (await page.get("/api/models")).json()["data"]
        assert {model["id"] for model in models} >= {MODEL, EMBEDDING_MODEL}

        answer = await page.post(CHAT, json=asking("Hello?", stream=True))
        assert text_of(answer.text) == "Hello there!"
        title = await page.post("/api/v1/tasks/title/completions", json=asking("Hello?"))
        assert title.json()["choices"][0]["message"]["content"] == "Hello there!"

        # A document is cut into pieces, and each gets a vector; the pieces that a question finds are in its prompt.
        document = {"file": ("herons.txt", b"A heron stands on one leg.", "text/plain")}
        file_id = (await page.post("/api/v1/files/", files=document)).json()["id"]

        async def is_processed() -> bool:
            status = (await page.get(f"/api/v1/files/{file_id}/process/status")).json()["status"]
            assert status != "failed"
            return status == "completed"

        await eventually(is_processed, 120)
        answer = await page.post(CHAT, json=asking("And herons?", stream=True, files=[{"type": "file", "id": file_id}]))
    assert '"content":"Hello"' in answer.text
    assert b"stands on one leg" in world.chat.requests[-1].body
    assert all(b"stands on one leg" not in request.body for request in world.chat.requests[:-1])
