"""Programs that call a model, in curl, Python and Node, for people to paste.

The playground's script writes the same for the request that it has just sent.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from deployments.operations import MODEL_OPERATIONS, Operation


@dataclass(frozen=True, slots=True)
class _Call:
    """A request, the method of OpenAI's libraries that sends it, and the part of the answer that is shown."""

    fields: dict[str, Any]
    method: str = ""
    shown_in_python: str = ""
    shown_in_node: str = ""


_CALLS = {
    Operation.CHAT: _Call(
        {"messages": [{"role": "user", "content": "Say hello in one sentence."}]},
        "chat.completions.create",
        "answer.choices[0].message.content",
        "answer.choices[0].message.content",
    ),
    Operation.EMBEDDINGS: _Call(
        {"input": ["one text", "another"]},
        "embeddings.create",
        "len(answer.data[0].embedding)",
        "answer.data[0].embedding.length",
    ),
    Operation.RERANK: _Call({"query": "fruit", "documents": ["an apple", "a car"]}),
}


def environment(base_url: str, key: str = "sk-manta-...") -> str:
    """Return the shell commands that tell a program where the service is, and with which key to call it."""
    return f"export OPENAI_BASE_URL={base_url}\nexport OPENAI_API_KEY={key}"


def programs(model: str, operations: Iterable[str]) -> list[tuple[str, str]]:
    """Return (language, program) for the first of chat, embeddings and rerank that a model has; empty if it has none.

    The programs take the address and the key from the environment, as OpenAI's libraries do. Those libraries have no
    method for rerank, so that is curl alone.
    """
    offered = set(operations)
    for operation, call in _CALLS.items():
        if operation in offered:
            body = {"model": model, **call.fields}
            curl = ("curl", _curl(MODEL_OPERATIONS[operation].path.removeprefix("/v1"), body))
            return [curl, ("Python", _python(call, body)), ("Node", _node(call, body))] if call.method else [curl]
    return []


def _curl(path: str, body: dict[str, Any]) -> str:
    sent = json.dumps(body, indent=2, ensure_ascii=False).replace("'", "'\\''")
    return (
        f'curl "$OPENAI_BASE_URL{path}" \\\n  -H "Authorization: Bearer $OPENAI_API_KEY" \\\n'
        f"  -H \"Content-Type: application/json\" \\\n  -d '{sent}'"
    )


def _python(call: _Call, body: dict[str, Any]) -> str:
    fields = "".join(f"    {name}={_literal(value)},\n" for name, value in body.items())
    made = f"answer = client.{call.method}(\n{fields})\nprint({call.shown_in_python})"
    return f"from openai import OpenAI\n\nclient = OpenAI()\n{made}"


def _node(call: _Call, body: dict[str, Any]) -> str:
    fields = "".join(f"  {name}: {_literal(value)},\n" for name, value in body.items())
    made = f"const answer = await client.{call.method}({{\n{fields}}});\nconsole.log({call.shown_in_node});"
    return f'import OpenAI from "openai";\n\nconst client = new OpenAI();\n{made}'


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
