"""Public reports about histories that coding agents send back, their own and those of other services."""

from dataclasses import replace

import orjson
import pytest

from tests.contract.http.answers import MODEL, said
from tests.contract.http.response_calls import messages, script

HI = {"role": "user", "content": "Hi"}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "original"}
CALL = {"type": "function_call", "call_id": "c1", "name": "view_image", "arguments": "{}"}
NONCES = ["x-anthropic-billing-header: cc_version=2.1.36; cch=1;", "x-anthropic-billing-header: cc_version=2.1.36;"]


async def respond(world, *items, **more):
    async with world.http() as http:
        answer = await http.post("/v1/responses", json={"model": MODEL, "input": [*items], **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def message(world, turns, **more):
    body = {"model": MODEL, "max_tokens": 9, "messages": turns, **more}
    async with world.http() as http:
        answer = await http.post("/v1/messages", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("sees", [True, False])
async def test_an_image_in_the_output_of_a_tool_is_seen_or_said_to_be_there(world, sees):
    """ggml-org/llama.cpp#23465, unslothai/unsloth#5141."""
    world.chat.card = replace(world.chat.card, has_images=sees)
    await respond(world, HI, CALL, {"type": "function_call_output", "call_id": "c1", "output": [IMAGE]})
    content = messages(world)[-1]["content"]
    if sees:
        assert content[0]["image_url"]["url"] == IMAGE["image_url"]
    else:
        assert "image" in content
        assert "AAAA" not in content


async def test_a_compaction_of_another_service_does_not_end_a_conversation(world):
    """openai/codex#45401."""
    await respond(world, HI, {"type": "compaction", "encrypted_content": "gAAAA-of-another-service"}, HI)
    assert [told["role"] for told in messages(world)] == ["user", "system", "user"]
    assert "gAAAA" not in str(messages(world))


async def test_an_agent_reads_what_another_one_says(world):
    """openai/codex#27339: `multi_agent_v2`."""
    task = {"type": "encrypted_content", "encrypted_content": "Look into notes.txt."}
    content = [{"type": "input_text", "text": "Sender: /root\nPayload:\n"}, task]
    sent = {"type": "agent_message", "author": "/root", "recipient": "/root/look", "content": content}
    first = await respond(world, HI, {**sent, "id": "amsg_1"}, sent)
    assert messages(world)[1:] == [{"role": "user", "content": "Sender: /root\nPayload:\nLook into notes.txt."}] * 2
    async with world.http() as http:
        stored = (await http.get(f"/v1/responses/{first['id']}/input_items?order=asc")).json()["data"]
    assert stored[1] == {**sent, "id": "amsg_1"}
    assert stored[2]["id"].startswith("amsg_")
    trigger = {"type": "compaction_trigger"}
    compacted = await respond(world, trigger, previous_response_id=first["id"])
    assert [item["type"] for item in compacted["output"]] == ["compaction"]
    await respond(world, HI, previous_response_id=first["id"])
    assert [told["role"] for told in messages(world)] == ["user", "user", "user", "assistant", "user"]


async def test_items_come_back_without_their_ids(world):
    """openai/codex#12230, getcentaur/centaur#951."""
    summary = [{"type": "summary_text", "text": "A greeting."}]
    said_before = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}
    output = {"type": "function_call_output", "call_id": "c1", "output": "x"}
    await respond(world, HI, {"type": "reasoning", "summary": summary}, said_before, HI, CALL, output)
    told = messages(world)
    assert [one["role"] for one in told] == ["user", "assistant", "user", "assistant", "tool"]
    assert (told[1]["reasoning"], told[1]["content"]) == ("A greeting.", "Hello.")


@pytest.mark.parametrize("action", [{"action": {"type": "search", "query": "kites"}}, {"action": None}, {}])
async def test_a_search_of_the_web_comes_back_without_its_id_or_what_it_did(world, action):
    """openai/codex#12230: its own history keeps neither."""
    await respond(world, HI, {"type": "web_search_call", "status": "completed", **action}, HI)
    calls = [call["function"] for one in messages(world) for call in one.get("tool_calls", ())]
    wanted = [{"name": "web_search", "arguments": '{"query":"kites"}'}]
    assert calls == (wanted if action.get("action") else [])


async def test_searches_of_openais_for_tools_are_answered_in_their_order(world):
    def search(name):
        call = {"type": "tool_search_call", "id": f"tsc_{name}", "call_id": None, "execution": "server"}
        tools = [{"type": "function", "name": name, "defer_loading": True}]
        output = {"type": "tool_search_output", "id": f"tso_{name}", "call_id": None, "execution": "server"}
        return {**call, "arguments": {"paths": [name]}}, {**output, "status": "completed", "tools": tools}

    await respond(world, HI, *search("one"), *search("two"), HI)
    results = [one["content"] for one in messages(world) if one["role"] == "tool"]
    assert results == [f"These tools can be called now: {name}." for name in ("one", "two")]


@pytest.mark.parametrize(
    ("output", "read"),
    [
        ({"status": "failed"}, "The call failed: [The call has no output.]"),
        ({"status": "failed", "output": "No such file."}, "The call failed: No such file."),
        ({"status": "completed"}, "[The call has no output.]"),
        ({"status": "completed", "output": "Done."}, "Done."),
    ],
)
async def test_the_model_reads_whether_a_patch_failed(world, output, read):
    operation = {"type": "delete_file", "path": "a.txt"}
    call = {"type": "apply_patch_call", "call_id": "c1", "status": "completed", "operation": operation}
    await respond(world, HI, call, {"type": "apply_patch_call_output", "call_id": "c1", **output})
    assert messages(world)[-1]["content"] == read


@pytest.mark.parametrize("more", [{}, {"annotations": []}, {"annotations": [], "logprobs": []}, {"logprobs": None}])
async def test_what_the_model_said_comes_back_as_output_text(world, more):
    """vllm-project/vllm#45273."""
    part = {"type": "output_text", "text": "Hello.", **more}
    await respond(world, HI, {"role": "assistant", "content": [part]}, HI)
    assert messages(world)[1] == {"role": "assistant", "content": "Hello."}


async def test_instructions_after_the_user_stay_where_they_are(world):
    """vllm-project/vllm#42475, #42407; tests/unit/replica/test_instructions.py is about templates that mind."""
    later = {"role": "developer", "content": "Be brief."}
    await respond(world, HI, later, instructions="You are an agent.")
    assert [told["role"] for told in messages(world)] == ["system", "user", "system"]
    async with world.http() as http:
        answer = await http.post("/v1/chat/completions", json={"model": MODEL, "messages": [HI, later]})
    assert answer.status_code == 200
    assert messages(world) == [HI, {"role": "system", "content": "Be brief."}]


@pytest.mark.parametrize("as_blocks", [True, False])
async def test_instructions_within_messages_stay_where_they_are(world, as_blocks):
    """vllm-project/vllm#44000, #48874, anthropics/claude-code#63473; moving them up spoils the prefix cache."""
    text = "It is noon."
    content = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}] if as_blocks else text
    turns = [HI, {"role": "system", "content": content}, {"role": "assistant", "content": "Hello."}, HI]
    await message(world, turns, system="You are an agent.")
    assert [told["role"] for told in messages(world)] == ["system", "user", "system", "assistant", "user"]
    assert messages(world)[2]["content"] == text


async def test_a_number_that_changes_with_each_request_is_not_in_the_prompt(world):
    """anthropics/claude-code#68900, ollama/ollama#14918: it leaves nothing to find in the prefix cache."""
    for nonce in NONCES:
        system = [{"type": "text", "text": text} for text in (nonce, "You are an agent.")]
        await message(world, [HI], system=system)
    first, second = world.chat.requests
    assert orjson.loads(first.body) == orjson.loads(second.body)
    assert messages(world)[0]["content"] == "You are an agent."


async def test_calls_of_an_agents_own_tools_are_history_that_the_model_reads(world):
    """CommandCodeAI/command-code#893, BerriAI/litellm#20905: refused, or lost on the way to the model."""
    script(world, said("Done."))
    patch = {"type": "update_file", "path": "a.py", "diff": "@@\n-1\n+2"}
    items = [
        {"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": {"query": "echo"}},
        {"type": "tool_search_output", "call_id": "c1", "execution": "client", "status": "completed", "tools": []},
        {"type": "apply_patch_call", "call_id": "c2", "status": "completed", "operation": patch},
        {"type": "apply_patch_call_output", "call_id": "c2", "status": "completed", "output": "Done."},
    ]
    await respond(world, HI, *items)
    first, second = [told["tool_calls"][0]["function"] for told in messages(world) if told["role"] == "assistant"]
    assert (first["name"], second["name"]) == ("tool_search", "apply_patch")
    assert "a.py" in second["arguments"]
