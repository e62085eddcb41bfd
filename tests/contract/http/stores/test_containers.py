"""/v1/containers with the real client, over real sandboxes."""

import asyncio
import io

import openai
import pytest

OTHER = "sk-manta-other-0123456789abcdefghijklmnopqrst"


@pytest.fixture
def containers(world, interpreter):
    return world.client().containers


async def content(containers, file, container):
    return (await containers.files.content.retrieve(file.id, container_id=container.id)).content


async def test_a_container_is_created_found_listed_and_deleted(containers):
    made = await containers.create(name="mine", expires_after={"anchor": "last_active_at", "minutes": 5})
    assert made.id.startswith("cntr_")
    assert (made.object, made.name, made.status, made.memory_limit) == ("container", "mine", "running", "1g")
    assert made.expires_after.minutes == 5
    assert made.network_policy.type == "disabled"
    other = await containers.create(name="other")
    assert other.expires_after.minutes == 20
    assert (await containers.retrieve(made.id)).name == "mine"
    assert {one.id for one in (await containers.list()).data} == {made.id, other.id}
    assert [one.id for one in (await containers.list(name="other")).data] == [other.id]
    pages = [one.id async for one in containers.list(limit=1, order="asc")]
    assert sorted(pages) == sorted([made.id, other.id])
    await containers.delete(made.id)
    with pytest.raises(openai.NotFoundError, match="not found"):
        await containers.retrieve(made.id)
    assert [one.id for one in (await containers.list()).data] == [other.id]


async def test_files_go_in_and_out(containers, world, interpreter):
    made = await containers.create(name="mine")
    data = bytes(range(256)) * 10_000
    file = await containers.files.create(made.id, file=("data.bin", io.BytesIO(data)))
    assert (file.object, file.path, file.bytes, file.source) == (
        "container.file",
        "/mnt/data/data.bin",
        len(data),
        "user",
    )
    assert file.id.startswith("cfile_")
    assert await content(containers, file, made) == data
    (listed,) = (await containers.files.list(made.id)).data
    assert (await containers.files.retrieve(file.id, container_id=made.id)).to_dict() == listed.to_dict()
    await containers.files.delete(file.id, container_id=made.id)
    assert (await containers.files.list(made.id)).data == []
    for asking in (containers.files.retrieve, containers.files.delete, containers.files.content.retrieve):
        with pytest.raises(openai.NotFoundError, match="No such container file"):
            await asking(file.id, container_id=made.id)


async def test_an_empty_file_and_names_that_lead_elsewhere(containers):
    made = await containers.create(name="mine")
    empty = await containers.files.create(made.id, file=("empty.txt", b""))
    assert (empty.bytes, await content(containers, empty, made)) == (0, b"")
    file = await containers.files.create(made.id, file=("../../etc/passwd", b"x"))
    assert file.path == "/mnt/data/passwd"
    file = await containers.files.create(made.id, file=("..", b"x"))
    assert file.path.startswith("/mnt/data/file-")


async def test_uploaded_files_are_copied(containers, world):
    client = world.client()
    uploaded = await client.files.create(file=("table.csv", b"a,b\n1,2\n"), purpose="user_data")
    made = await containers.create(name="mine", file_ids=[uploaded.id])
    (file,) = (await containers.files.list(made.id)).data
    assert (file.path, await content(containers, file, made)) == ("/mnt/data/table.csv", b"a,b\n1,2\n")
    again = await containers.files.create(made.id, file_id=uploaded.id)
    assert again.id == file.id
    with pytest.raises(openai.NotFoundError) as caught:
        await containers.create(name="x", file_ids=[uploaded.id, "file-nothing"])
    assert caught.value.param == "file_ids[1]"


async def test_what_is_too_large_is_refused(containers, interpreter):
    made = await containers.create(name="mine")
    with pytest.raises(openai.BadRequestError, match="could not be written"):
        await containers.files.create(made.id, file=("big", bytes(9 << 20)))
    assert (await containers.retrieve(made.id)).status == "running"


async def test_a_container_of_another_account_does_not_exist(containers, world):
    world.principal(OTHER, account="acct_2", key_id="key_2")
    made = await containers.create(name="mine")
    file = await containers.files.create(made.id, file=("a", b"x"))
    theirs = world.client(OTHER).containers
    assert (await theirs.list()).data == []
    for asking in (
        theirs.retrieve(made.id),
        theirs.delete(made.id),
        theirs.files.list(made.id),
        theirs.files.create(made.id, file=("b", b"y")),
        theirs.files.retrieve(file.id, container_id=made.id),
        theirs.files.content.retrieve(file.id, container_id=made.id),
        theirs.files.delete(file.id, container_id=made.id),
        theirs.list(after=made.id),
    ):
        with pytest.raises(openai.APIStatusError) as caught:
            await asking
        assert caught.value.status_code == (400 if "after" in str(caught.value.param) else 404)
    assert [one.id for one in (await containers.files.list(made.id)).data] == [file.id]


async def test_an_idle_container_has_expired(containers, world, interpreter):
    made = await containers.create(name="mine")
    world.clock.now += 19 * 60
    await containers.retrieve(made.id)
    world.clock.now += 19 * 60
    assert (await containers.retrieve(made.id)).status == "running"
    world.clock.now += 21 * 60
    assert (await containers.retrieve(made.id)).status == "expired"
    with pytest.raises(openai.NotFoundError) as caught:
        await containers.files.list(made.id)
    assert caught.value.code == "container_expired"
    world.clock.now += 3600
    with pytest.raises(openai.NotFoundError, match="not found"):
        await containers.retrieve(made.id)
    assert await world.containers.store.sweep() == 1


async def test_the_containers_of_a_replica_that_went_away_have_expired(containers, interpreter):
    made = await containers.create(name="mine")
    await interpreter.replicas[0].server.close()
    with pytest.raises(openai.NotFoundError) as caught:
        await containers.files.list(made.id)
    assert caught.value.code == "container_expired"
    assert (await containers.retrieve(made.id)).status == "expired"


async def test_an_account_has_so_many_containers_at_most(containers):
    made = [await containers.create(name=str(number)) for number in range(3)]
    with pytest.raises(openai.RateLimitError) as caught:
        await containers.create(name="one more")
    assert caught.value.code == "too_many_containers"
    await containers.delete(made[0].id)
    await containers.create(name="one more")


async def test_containers_that_are_asked_for_side_by_side_are_no_more_than_an_account_may_have(containers, interpreter):
    asked = (containers.create(name=str(number)) for number in range(5))
    made = await asyncio.gather(*asked, return_exceptions=True)
    assert sorted(isinstance(one, openai.RateLimitError) for one in made) == [False] * 3 + [True] * 2
    assert interpreter.replicas[0].containers.num_containers == 3


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x", "memory_limit": "2g"}, "memory_limit"),
        ({"name": "x", "memory_limit": "4g"}, "memory_limit"),
        ({"name": "x", "expires_after": {"anchor": "last_active_at", "minutes": 21}}, "expires_after.minutes"),
        ({"name": "x", "network_policy": {"type": "allowlist", "allowed_domains": ["a"]}}, "network_policy.type"),
        ({"name": "x", "skills": [{"type": "skill_reference", "skill_id": "s"}]}, "skills"),
    ],
)
async def test_malformed_containers_are_refused(world, interpreter, body, param):
    async with world.http() as http:
        answer = await http.post("/v1/containers", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_a_form_without_a_file_is_refused(world, containers):
    made = await containers.create(name="mine")
    async with world.http() as http:
        answer = await http.post(f"/v1/containers/{made.id}/files", files={"other": ("a", b"x")})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "file")
        answer = await http.post(f"/v1/containers/{made.id}/files", json={})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "file_id")


async def test_a_key_needs_the_scope_and_may_keep_something(world, interpreter):
    world.principal(operations=frozenset({"responses"}))
    with pytest.raises(openai.PermissionDeniedError, match="code_interpreter"):
        await world.client().containers.list()
    world.principal(retention="strict")
    with pytest.raises(openai.PermissionDeniedError) as caught:
        await world.client().containers.create(name="x")
    assert caught.value.code == "retention_policy"


async def test_switched_off_there_are_none(world):
    with pytest.raises(openai.NotFoundError, match="not switched on"):
        await world.client().containers.list()


async def test_nothing_of_a_container_lies_in_the_clear(containers, world, file_store, tmp_path):
    made = await containers.create(name="Kanarienvogel")
    await containers.files.create(made.id, file=("Kanarienvogel.txt", b"Kanarienvogel"))
    await file_store._database.close()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"Kanarienvogel" not in path.read_bytes(), path
