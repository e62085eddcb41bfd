"""A disk that is almost full: clients store nothing, and all else goes on. The disk is a real one, in memory."""

import os
import subprocess

import pytest

from deployments.state.disk import DiskReserve
from tests.contract.http.answers import MODEL

MIB = 1024 * 1024
MESSAGES = [{"role": "user", "content": "Hi"}]
FILE = {"files": {"file": ("a.txt", b"x")}, "data": {"purpose": "user_data"}}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="Only root mounts a disk.")


@pytest.fixture
def disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], check=False)
    if mounted.returncode:
        pytest.skip("No disk can be mounted here.")
    yield place
    subprocess.run(["umount", str(place)], check=True)


async def test_below_the_reserve_clients_store_nothing_and_all_else_goes_on(world, vector_stores, disk):
    world.disk = DiskReserve([disk], 2 * MIB, world.clock)
    async with world.http() as http:
        file = (await http.post("/v1/files", **FILE)).json()["id"]
        talk = (await http.post("/v1/conversations", json={})).json()["id"]
        response = (await http.post("/v1/responses", json={"model": MODEL, "input": "Hi"})).json()["id"]
        (disk / "filler").write_bytes(b"x" * 7 * MIB)
        world.clock.advance(1)
        upload = {"bytes": 1, "filename": "a.txt", "mime_type": "text/plain", "purpose": "user_data"}
        refused = [
            await http.post("/v1/files", **FILE),
            await http.post("/v1/uploads", json=upload),
            await http.post("/v1/conversations", json={}),
            await http.post(f"/v1/conversations/{talk}/items", json={"items": [{"role": "user", "content": "Hi"}]}),
            await http.post("/v1/vector_stores", json={}),
            await http.post("/v1/responses", json={"model": MODEL, "input": "Hi"}),
            await http.post("/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES, "store": True}),
        ]
        assert {(answer.status_code, answer.json()["error"]["code"]) for answer in refused} == {
            (507, "insufficient_storage")
        }
        assert "almost full" in refused[0].json()["error"]["message"]
        done = [
            await http.post("/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES}),
            await http.post("/v1/responses", json={"model": MODEL, "input": "Hi", "store": False}),
            await http.get(f"/v1/files/{file}/content"),
            await http.get(f"/v1/conversations/{talk}/items"),
            await http.delete(f"/v1/responses/{response}"),
            await http.delete(f"/v1/files/{file}"),
        ]
        assert [answer.status_code for answer in done] == [200] * len(done)
        (disk / "filler").unlink()
        world.clock.advance(1)
        assert (await http.post("/v1/files", **FILE)).status_code == 200


async def test_without_a_setting_a_twentieth_is_kept_free(world, file_store, disk):
    world.disk = DiskReserve([disk], None, world.clock)
    async with world.http() as http:
        (disk / "filler").write_bytes(b"x" * (7 * MIB + MIB // 2))
        assert (await http.post("/v1/files", **FILE)).status_code == 200
        (disk / "more").write_bytes(b"x" * (MIB // 4))
        world.clock.advance(1)
        assert (await http.post("/v1/files", **FILE)).status_code == 507
