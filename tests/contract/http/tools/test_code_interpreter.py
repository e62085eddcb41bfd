"""The code interpreter within responses: a scripted model, the real client, real sandboxes."""

import base64

import openai
import orjson
import pytest

from tests.contract.http.answers import MODEL, USAGE, pieces, said
from tests.contract.http.background_calls import ended
from tests.contract.http.batch_calls import run_responses
from tests.contract.http.code_interpreter_calls import OUTPUTS, TOOL, calls_of, respond, runs, stream
from tests.contract.http.response_calls import WEATHER, calling, messages, script
from tests.contract.http.tool_calls import leave
from tests.twins.engine import Script
from tests.twins.legal import fold, split
from tests.waiting import eventually


async def test_code_runs_and_the_model_reads_what_it_printed(world, interpreter):
    script(world, runs("print('hello')\n20 + 22", words=("Let me see.",)), said("It is 42."))
    events = await stream(world, include=OUTPUTS)
    final = fold(events)
    assert [item["type"] for item in final["output"]] == ["message", "code_interpreter_call", "message"]
    (call,) = calls_of(final)
    assert call["id"].startswith("ci_")
    assert call["container_id"].startswith("cntr_")
    assert (call["status"], call["code"]) == ("completed", "print('hello')\n20 + 22")
    assert call["outputs"] == [{"type": "logs", "logs": "hello\n42\n"}]
    kinds = [event["type"].removeprefix("response.code_interpreter_call") for event in events]
    assert [kind for kind in kinds if not kind.startswith("response.")] == [
        ".in_progress",
        "_code.delta",
        "_code.delta",
        "_code.done",
        ".interpreting",
        ".completed",
    ]
    assert messages(world)[2] == {"role": "tool", "tool_call_id": "call_0", "content": "hello\n42"}
    assert final["usage"]["total_tokens"] == 2 * USAGE.total_tokens


async def test_outputs_are_shown_to_those_who_include_them(world, interpreter):
    script(world, runs("1"), said("One."))
    (call,) = calls_of(await respond(world))
    assert call["outputs"] is None


async def test_the_client_reads_the_stream(world, interpreter):
    script(world, runs("1 + 1"), said("Two."))
    async with world.client().responses.stream(model=MODEL, input="x", tools=[TOOL], include=OUTPUTS) as events:
        kinds = [event.type async for event in events]
        final = await events.get_final_response()
    assert "response.code_interpreter_call_code.done" in kinds
    assert final.output[0].outputs[0].logs == "2\n"
    assert final.output_text == "Two."


async def test_variables_live_on_across_calls_and_responses(world, interpreter):
    script(world, runs("x = 40"), runs("x += 1"), said("Done."), runs("x + 1"), said("42."))
    first = await respond(world)
    one, two = calls_of(first)
    assert one["container_id"] == two["container_id"]
    second = await respond(world, previous_response_id=first["id"], include=OUTPUTS)
    (three,) = calls_of(second)
    assert three["container_id"] == one["container_id"]
    assert three["outputs"][0]["logs"] == "42\n"


async def test_a_client_that_keeps_the_conversation_gets_its_container_back(world, interpreter):
    script(world, runs("x = 42"), said("Done."), runs("x"), said("42."))
    first = await respond(world, store=False, include=OUTPUTS)
    second = await respond(
        world, store=False, include=OUTPUTS, input=[{"role": "user", "content": "x"}, *first["output"]]
    )
    assert calls_of(second)[0]["container_id"] == calls_of(first)[0]["container_id"]
    assert calls_of(second)[0]["outputs"][0]["logs"] == "42\n"
    told = messages(world, -2)
    assert [message["role"] for message in told] == ["user", "assistant", "tool", "assistant"]
    assert orjson.loads(told[1]["tool_calls"][0]["function"]["arguments"]) == {"code": "x = 42"}


async def test_in_a_conversation_the_model_reads_again_what_the_code_printed(world, interpreter):
    script(world, runs("x = 42\nprint('kept')"), said("Done."), runs("x"), said("42."))
    conversation = await world.client().conversations.create()
    first = await respond(world, conversation=conversation.id)
    second = await respond(world, conversation=conversation.id)
    assert [message["content"] for message in messages(world, -2) if message["role"] == "tool"] == ["kept"]
    assert calls_of(second)[0]["container_id"] == calls_of(first)[0]["container_id"]


async def test_two_conversations_do_not_share_a_container(world, interpreter):
    script(world, runs("x = 1"), said("Done."), runs("x"), said("Hm."))
    first = await respond(world)
    second = await respond(world, include=OUTPUTS)
    assert calls_of(first)[0]["container_id"] != calls_of(second)[0]["container_id"]
    assert "NameError" in calls_of(second)[0]["outputs"][0]["logs"]


async def test_errors_of_the_code_are_for_the_model(world, interpreter):
    script(world, runs("1 / 0"), said("It cannot be."))
    final = await respond(world)
    assert calls_of(final)[0]["status"] == "completed"
    assert messages(world)[2]["content"].endswith("ZeroDivisionError: division by zero")
    assert final["status"] == "completed"


async def test_a_named_container_with_its_files(world, interpreter):
    client = world.client()
    container = await client.containers.create(name="mine")
    await client.containers.files.create(container.id, file=("table.csv", b"a,b\n1,2\n3,4\n"))
    code = "import pandas\npandas.read_csv('table.csv').a.sum()"
    script(world, runs(code), said("Four."))
    final = await respond(world, tools=[{"type": "code_interpreter", "container": container.id}], include=OUTPUTS)
    (call,) = calls_of(final)
    assert call["container_id"] == container.id
    assert call["outputs"][0]["logs"].strip() in ("4", "np.int64(4)")


async def test_files_are_put_into_an_automatic_container_and_the_model_hears_of_them(world, interpreter):
    uploaded = await world.client().files.create(file=("table.csv", b"a,b\n1,2\n"), purpose="user_data")
    tool = {"type": "code_interpreter", "container": {"type": "auto", "file_ids": [uploaded.id]}}
    script(world, runs("print(open('table.csv').read())"), said("There."))
    final = await respond(world, tools=[tool], include=OUTPUTS)
    assert calls_of(final)[0]["outputs"][0]["logs"] == "a,b\n1,2\n\n"
    (offered,) = orjson.loads(world.chat.requests[0].body)["tools"]
    assert "table.csv" in offered["function"]["description"]
    assert final["tools"] == [tool]


async def test_files_that_a_later_request_names_are_put_into_the_container_that_is_there(world, interpreter):
    upload = world.client().files.create
    one, two = [(await upload(file=(name, name.encode()), purpose="user_data")).id for name in ("a.txt", "b.txt")]

    def tool(*file_ids):
        return {"type": "code_interpreter", "container": {"type": "auto", "file_ids": file_ids}}

    changed = "open('a.txt', 'a').write('+')"
    read = "[open(name).read() for name in ('a.txt', 'b.txt')]"
    script(world, runs(changed), said("Done."), runs(read), said("There."))
    first = await respond(world, tools=[tool(one)])
    second = await respond(world, tools=[tool(one, two)], previous_response_id=first["id"], include=OUTPUTS)
    assert calls_of(second)[0]["container_id"] == calls_of(first)[0]["container_id"]
    assert calls_of(second)[0]["outputs"][0]["logs"] == "['a.txt+', 'b.txt']\n"


async def test_figures_are_images_and_files_are_cited(world, interpreter):
    code = (
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\n"
        "with open('/mnt/data/notes.txt', 'w') as file: file.write('noted')"
    )
    link = "[notes](sandbox:/mnt/data/notes.txt)"
    script(world, runs(code), said("Here are ", link, "."))
    events = await stream(world, include=OUTPUTS)
    final = fold(events)
    call, message = final["output"]
    assert [output["type"] for output in call["outputs"]] == ["image"]
    image = base64.b64decode(call["outputs"][0]["url"].removeprefix("data:image/png;base64,"))
    assert image.startswith(b"\x89PNG")
    text = message["content"][0]["text"]
    figure, notes = message["content"][0]["annotations"]
    assert (figure["filename"], figure["start_index"], figure["end_index"]) == ("figure_1.png", 0, 0)
    assert (notes["type"], notes["filename"]) == ("container_file_citation", "notes.txt")
    assert text[notes["start_index"] : notes["end_index"]] == "sandbox:/mnt/data/notes.txt"
    client = world.client().containers.files.content
    assert (await client.retrieve(notes["file_id"], container_id=notes["container_id"])).content == b"noted"
    assert (await client.retrieve(figure["file_id"], container_id=figure["container_id"])).content == image
    async with world.http() as http:
        assert split((await http.get(f"/v1/responses/{final['id']}?stream=true")).content) == events


async def test_a_call_without_code_is_told_so(world, interpreter):
    script(world, calling(("call_0", "code_interpreter", "print(1)")), said("Sorry."))
    final = await respond(world)
    assert calls_of(final)[0]["status"] == "failed"
    assert "without code" in messages(world)[2]["content"]
    assert interpreter.replicas[0].containers.num_containers == 0


async def test_a_container_that_dies_is_replaced_at_the_next_call(world, interpreter):
    script(world, runs("import os; os._exit(1)"), runs("1 + 1"), said("Two."))
    final = await respond(world, include=OUTPUTS)
    died, lives = calls_of(final)
    assert (died["status"], lives["status"]) == ("failed", "completed")
    assert died["container_id"] != lives["container_id"]
    assert "The container has ended" in messages(world)[2]["content"]


async def test_a_container_that_has_expired_meanwhile_is_replaced_and_the_model_hears_of_it(world, interpreter):
    script(world, runs("x = 1"), said("Done."), runs("2"), said("Hm."))
    first = await respond(world)
    await interpreter.replicas[0].containers.end(calls_of(first)[0]["container_id"])
    second = await respond(world, previous_response_id=first["id"])
    assert messages(world)[-1]["content"].startswith("[The container had expired")
    assert calls_of(second)[0]["container_id"] != calls_of(first)[0]["container_id"]


async def test_a_named_container_that_is_not_there_or_has_expired_is_refused(world, interpreter):
    client = world.client()
    for container_id, code in (
        ("cntr_nothing", None),
        ((await client.containers.create(name="x")).id, "container_expired"),
    ):
        await interpreter.replicas[0].containers.end(container_id)
        with pytest.raises(openai.NotFoundError) as caught:
            await client.responses.create(
                model=MODEL, input="x", tools=[{"type": "code_interpreter", "container": container_id}]
            )
        assert (caught.value.param, caught.value.code) == ("tools[0].container", code)
    assert all(stream.is_aborted for stream in world.chat.streams)


async def test_a_container_or_file_of_another_account_cannot_be_used(world, interpreter):
    client = world.client()
    container = await client.containers.create(name="mine")
    file = await client.files.create(file=("a", b"x"), purpose="user_data")
    world.principal(account="acct_2")
    for wanted in (container.id, {"type": "auto", "file_ids": [file.id]}):
        with pytest.raises(openai.NotFoundError):
            await client.responses.create(
                model=MODEL, input="x", tools=[{"type": "code_interpreter", "container": wanted}]
            )


async def test_no_container_to_be_had_fails_the_call_only(world, interpreter):
    client = world.client()
    for number in range(3):
        await client.containers.create(name=str(number))
    script(world, runs("1"), said("Sorry."))
    final = await respond(world)
    assert calls_of(final)[0]["status"] == "failed"
    assert "which is the limit" in messages(world)[2]["content"]
    assert final["status"] == "completed"


async def test_several_calls_at_once_run_one_after_the_other(world, interpreter):
    script(world, runs("x = 1", "x + 1"), said("Two."))
    final = await respond(world, include=OUTPUTS)
    assert [call["outputs"] for call in calls_of(final)] == [[], [{"type": "logs", "logs": "2\n"}]]


async def test_beside_a_function_of_the_client(world, interpreter):
    both = calling(("call_0", "code_interpreter", '{"code":"1"}'), ("call_1", "weather", "{}"))
    script(world, both, said("Done."))
    first = await respond(world, tools=[WEATHER, TOOL])
    assert [item["type"] for item in first["output"]] == ["code_interpreter_call", "function_call"]
    output = {"type": "function_call_output", "call_id": "call_1", "output": "Rain."}
    final = await respond(world, tools=[WEATHER, TOOL], previous_response_id=first["id"], input=[output])
    assert final["status"] == "completed"


async def test_a_client_that_leaves_interrupts_the_code(world, interpreter):
    script(world, runs("while True: pass"))
    await leave(world, TOOL, lambda: num_running(interpreter), lambda: not num_running(interpreter))


def num_running(interpreter) -> int:
    """Return how many of the sandboxes run code right now."""
    return sum(held.num_running for held in interpreter.replicas[0].containers._held.values())


async def test_in_the_background_it_runs_and_can_be_cancelled(world, interpreter):
    script(world, runs("6 * 7"), said("42."), runs("while True: pass"))
    responses = world.client().responses
    begun = await responses.create(model=MODEL, input="x", background=True, tools=[TOOL])
    done = await ended(responses, begun.id)
    assert [item.type for item in done.output] == ["code_interpreter_call", "message"]
    begun = await responses.create(model=MODEL, input="x", background=True, tools=[TOOL])
    await eventually(lambda: num_running(interpreter))
    await responses.cancel(begun.id)
    assert (await ended(responses, begun.id)).status == "cancelled"
    await eventually(lambda: not num_running(interpreter))


async def test_a_strict_key_leaves_no_container_behind(world, interpreter):
    world.principal(retention="strict")
    script(world, runs("open('a.txt', 'w').write('x')"), said("See sandbox:/mnt/data/a.txt"))
    final = await respond(world)
    assert calls_of(final)[0]["status"] == "completed"
    assert final["output"][-1]["content"][0]["annotations"] == []
    assert interpreter.replicas[0].containers.num_containers == 0
    assert (await world.client().containers.list()).data == []


async def test_memory_beyond_what_there_is_is_refused(world, interpreter):
    tool = {"type": "code_interpreter", "container": {"type": "auto", "memory_limit": "64g"}}
    with pytest.raises(openai.BadRequestError) as caught:
        await world.client().responses.create(model=MODEL, input="x", tools=[tool])
    assert caught.value.param == "tools[0].container.memory_limit"


async def test_its_tokens_are_counted_before(world, interpreter):
    world.chat.script = lambda request: Script(pieces(request, said("x")), USAGE)
    counted = await world.client().responses.input_tokens.count(model=MODEL, input="x", tools=[TOOL])
    assert counted.input_tokens == USAGE.prompt_tokens
    (offered,) = orjson.loads(world.chat.requests[0].body)["tools"]
    assert offered["function"]["name"] == "code_interpreter"


async def test_nothing_that_code_says_is_logged(world, interpreter, caplog):
    script(world, runs("print('Kanarienvogel')\nraise ValueError('Kanarienvogel')"), said("Hm."))
    await respond(world)
    assert "Kanarienvogel" not in caplog.text
    assert "Kanarienvogel" not in str(world.log.__dict__)


async def test_where_no_sandbox_can_be_built_the_tool_is_off_and_says_so(world, interpreter):
    interpreter.replicas[0].containers._problem = "bubblewrap is not installed: apt-get install bubblewrap"
    check_able, asked = interpreter.hosts.check_able, []

    async def counted():
        asked.append(1)
        await check_able()

    interpreter.hosts.check_able = counted
    with pytest.raises(openai.InternalServerError, match="off: bubblewrap is not installed") as caught:
        await world.client(max_retries=2).responses.create(model=MODEL, input="x", tools=[TOOL])
    assert (caught.value.status_code, caught.value.code) == (503, "tool_off")
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert len(asked) == 1
    assert not world.chat.requests
    with pytest.raises(openai.InternalServerError, match="off: bubblewrap is not installed"):
        await world.client().containers.create(name="x")


async def test_the_automatic_container_used_longest_ago_makes_room(world, interpreter):
    script(world, runs("x = 1"), said("Done."), *[runs("1"), said("One.")] * 3)
    first = await respond(world)
    for number in range(3):
        world.clock.advance(60 if number else 300)
        final = await respond(world)
        assert calls_of(final)[0]["status"] == "completed"
    assert interpreter.replicas[0].containers.num_containers == 3
    ended = await world.client().containers.retrieve(calls_of(first)[0]["container_id"])
    assert ended.status == "expired"


async def test_only_the_automatic_container_idle_longest_and_for_two_minutes_makes_room(world, interpreter):
    containers = world.client().containers
    script(world, *[runs("1"), said("One.")] * 5)
    named = (await containers.create(name="mine")).id

    async def run_after(idle_s):
        world.clock.advance(idle_s)
        (call,) = calls_of(await respond(world))
        return call["container_id"] if call["status"] == "completed" else None

    first, second = await run_after(1), await run_after(10)
    assert await run_after(105) is None
    third = await run_after(20)
    fourth = await run_after(125)
    running = [one.id async for one in containers.list(order="asc") if one.status == "running"]
    assert running == [named, third, fourth]
    assert {first, second}.isdisjoint(running)


async def test_lines_of_a_batch_wait_for_room_and_leave_no_container_behind(world, interpreter, batching):
    def play(request):
        has_run = any(message["role"] == "tool" for message in orjson.loads(request.body)["messages"])
        return Script(pieces(request, said("Done.") if has_run else runs("6 * 7")), USAGE)

    world.chat.script = play
    told = (await run_responses(world, 8, tools=[TOOL], include=OUTPUTS)).splitlines()
    calls = [calls_of(orjson.loads(line)["response"]["body"])[0] for line in told]
    assert [call["outputs"] for call in calls] == [[{"type": "logs", "logs": "42\n"}]] * 8
    assert interpreter.replicas[0].containers.num_containers == 0
