"""The playground's scripts without a browser, in Node: what they send, what they read, and the programs they show."""

import ast
import json
import subprocess
from pathlib import Path

import pytest

from serve_app.console import rendering
from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.responses.request import ResponseRequest
from serve_app.validation.body import validate_body
from tests import needs

SCRIPTS = [Path(rendering.__file__).parent / "static" / name for name in ("requests.js", "programs.js")]
LOADED = "const vm = require('vm'), fs = require('fs');" + "".join(
    f"vm.runInThisContext(fs.readFileSync({json.dumps(str(path))}, 'utf8'));" for path in SCRIPTS
)
SCHEMAS = {"chat": ChatRequest, "responses": ResponseRequest}
FUNCTION = {"name": "weather", "description": 'It\'s "cold".', "parameters": {"type": "object", "properties": {}}}
NOTHING = {
    **dict.fromkeys(("temperature", "topP", "maxTokens", "seed", "schema")),
    "system": "",
    "effort": "",
    "tools": [],
}
EVERYTHING = {
    "system": "Be brief.\nAlways.",
    "temperature": 0.5,
    "topP": 0.9,
    "maxTokens": 64,
    "seed": 7,
    "effort": "low",
    "schema": {"type": "object", "properties": {"a-b": {"type": ["string", "null"]}}, "additionalProperties": False},
    "tools": [{"type": "function", "function": FUNCTION}, {"type": "function", **FUNCTION, "name": "tides"}],
}
PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)
TURNS = [
    {"role": "user", "text": "It's 'here' \\ \"there\" \u2028 😀?", "images": [PICTURE]},
    {
        "role": "assistant",
        "text": "",
        "reasoning": "Hm.",
        "calls": [{"id": "call_1", "name": "weather", "args": '{"city": "Rome"}', "result": "21 °C"}],
    },
    {"role": "assistant", "text": "It is warm.", "reasoning": "", "calls": []},
    {"role": "user", "text": "Thanks.", "images": []},
]
PLAIN = [{"role": "user", "text": "Hello", "images": []}]


def run(expression, **given):
    """Return the value of an expression over the scripts, in which `given` are names."""
    program = f"{LOADED} const given = JSON.parse(process.argv[1]);"
    program += f"(async ({{ {', '.join(given)} }}) => {expression})(given).then((x) => console.log(JSON.stringify(x)));"
    command = [needs.node()[0], "-e", program, json.dumps(given)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)


@pytest.mark.parametrize("kind", ["chat", "responses"])
@pytest.mark.parametrize(("settings", "turns"), [(NOTHING, PLAIN), (EVERYTHING, TURNS)], ids=["plain", "everything"])
def test_the_service_takes_each_request(kind, settings, turns):
    asked = run("requestOf(kind, 'm', settings, turns)", kind=kind, settings=settings, turns=turns)
    assert validate_body(asked, SCHEMAS[kind]).is_stream
    if settings is NOTHING:
        assert set(asked) == {"model", "messages" if kind == "chat" else "input", "stream"} | (
            {"stream_options"} if kind == "chat" else set()
        )
    else:
        assert [tool.get("function", tool)["name"] for tool in asked["tools"]] == ["weather", "tides"]
        assert {str(one["type"]) for one in asked["tools"]} == {"function"}


@pytest.mark.parametrize("kind", ["chat", "responses"])
def test_programs_send_what_was_sent(kind):
    turns = [TURNS[0] | {"images": []}, *TURNS[1:]]
    call = """{
      const asked = requestOf(kind, "m", settings, turns), [curl, python, node] = programsOf(kind, asked);
      let seen;
      const create = async (body) => { seen = body; return []; };
      globalThis.OpenAI = class { chat = { completions: { create } }; responses = { create }; };
      const [, ...lines] = node.split("\\n");
      await new (Object.getPrototypeOf(async () => {}).constructor)(lines.join("\\n"))();
      return { asked, curl, python, seen };
    }"""
    found = run(call, kind=kind, settings=EVERYTHING, turns=turns)
    assert found["seen"] == found["asked"]
    body = found["curl"].partition("-d '")[2].removesuffix("'").replace("'\\''", "'")
    assert json.loads(body) == found["asked"]
    create = next(one for one in ast.walk(ast.parse(found["python"])) if isinstance(one, ast.Call) and one.keywords)
    assert {one.arg: ast.literal_eval(one.value) for one in create.keywords} == found["asked"]
    assert max(map(len, found["python"].splitlines())) < 180  # Lines are folded, but texts are whole.


def test_a_program_does_not_hold_a_whole_picture():
    made = "programsOf('chat', requestOf('chat', 'm', settings, turns))"
    programs = run(made, settings=NOTHING, turns=[TURNS[0] | {"images": [PICTURE * 100]}])
    assert len(programs) == 3
    assert all("data:image/png" in one and len(one) < 2000 for one in programs)


def test_an_answer_is_read_from_chunks():
    def chunk(finish=None, **delta):
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    events = [
        chunk(role="assistant", content=""),
        chunk(reasoning_content="H", reasoning="H"),
        chunk(reasoning="m"),
        chunk(content="So"),
        chunk(tool_calls=[{"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"a"'}}]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}]),
        chunk("tool_calls"),
        {
            "choices": [],
            "usage": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}},
        },
    ]
    turn = run(TAKE_ALL, events=events)
    assert (turn["text"], turn["reasoning"], turn["finish"]) == ("So", "Hm", "tool_calls")
    assert turn["calls"] == [{"id": "c1", "name": "f", "args": '{"a": 1}', "result": None}]
    assert turn["usage"] == {"prompt": 9, "cached": 4, "completion": 3, "reasoning": 0}


def test_an_answer_is_read_from_events_of_a_response():
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    usage = {"input_tokens": 9, "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 2}}
    events = [
        {"type": "response.created", "response": {"status": "in_progress"}},
        {"type": "response.reasoning_text.delta", "delta": "Hm"},
        {"type": "response.output_text.delta", "delta": "So"},
        {"type": "response.output_item.done", "item": call},
        {
            "type": "response.incomplete",
            "response": {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "usage": usage},
        },
    ]
    turn = run(TAKE_ALL, events=events)
    assert (turn["text"], turn["reasoning"], turn["finish"]) == ("So", "Hm", "max_output_tokens")
    assert turn["calls"] == [{"id": "c1", "name": "f", "args": "{}", "result": None}]
    assert turn["usage"] == {"prompt": 9, "cached": 0, "completion": 3, "reasoning": 2}


@pytest.mark.parametrize(
    "event",
    [
        {"error": {"message": "No."}},
        {"type": "error", "message": "No."},
        {"type": "response.failed", "response": {"error": {"message": "No."}}},
    ],
)
def test_an_error_in_a_stream_is_raised(event):
    caught = "{ try { take({}, event); return 'none'; } catch (error) { return error.message; } }"
    assert run(caught, event=event) == "No."


def test_events_are_found_however_their_bytes_arrive():
    body = 'data: {"a": "é"}\n\n: comment\n\nevent: x\ndata: {"b": 1}\n\ndata: [DONE]\n\n'
    call = """{
      const bytes = new TextEncoder().encode(body), found = [];
      const start = (to) => { for (const one of bytes) to.enqueue(Uint8Array.of(one)); to.close(); };
      const stream = new ReadableStream({ start });
      for await (const event of eventsOf({ body: stream })) found.push(event);
      return found;
    }"""
    assert run(call, body=body) == [{"a": "é"}, {"b": 1}]


TAKE_ALL = """{
  const turn = { text: "", reasoning: "", calls: [], finish: "", usage: null };
  for (const event of events) take(turn, event);
  return turn;
}"""
