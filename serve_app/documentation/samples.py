"""Examples of requests in curl, Python and Node.

They are derived from the contracts of endpoints: the method, the path, and the example of the body or the query. Where
the libraries of OpenAI or Anthropic have a method for a route, Python and Node call it.
"""

import json
import re
from typing import Any
from urllib.parse import urlencode

from pydantic import BaseModel

from serve_app.routes.endpoint import Contract

Json = dict[str, Any]

METHODS = {
    "POST /v1/messages": "messages.create",
    "POST /v1/messages/count_tokens": "messages.count_tokens",
    "POST /v1/chat/completions": "chat.completions.create",
    "GET /v1/chat/completions": "chat.completions.list",
    "GET /v1/chat/completions/{completion_id}": "chat.completions.retrieve",
    "POST /v1/chat/completions/{completion_id}": "chat.completions.update",
    "DELETE /v1/chat/completions/{completion_id}": "chat.completions.delete",
    "GET /v1/chat/completions/{completion_id}/messages": "chat.completions.messages.list",
    "POST /v1/completions": "completions.create",
    "POST /v1/embeddings": "embeddings.create",
    "POST /v1/moderations": "moderations.create",
    "GET /v1/models": "models.list",
    "GET /v1/models/{model}": "models.retrieve",
    "GET /v1/files": "files.list",
    "POST /v1/files": "files.create",
    "GET /v1/files/{file_id}": "files.retrieve",
    "DELETE /v1/files/{file_id}": "files.delete",
    "GET /v1/files/{file_id}/content": "files.content",
    "POST /v1/uploads": "uploads.create",
    "POST /v1/uploads/{upload_id}/parts": "uploads.parts.create",
    "POST /v1/uploads/{upload_id}/complete": "uploads.complete",
    "POST /v1/uploads/{upload_id}/cancel": "uploads.cancel",
    "GET /v1/batches": "batches.list",
    "POST /v1/batches": "batches.create",
    "GET /v1/batches/{batch_id}": "batches.retrieve",
    "POST /v1/batches/{batch_id}/cancel": "batches.cancel",
    "POST /v1/responses": "responses.create",
    "POST /v1/responses/input_tokens": "responses.input_tokens.count",
    "POST /v1/responses/compact": "responses.compact",
    "GET /v1/responses/{response_id}": "responses.retrieve",
    "DELETE /v1/responses/{response_id}": "responses.delete",
    "POST /v1/responses/{response_id}/cancel": "responses.cancel",
    "GET /v1/responses/{response_id}/input_items": "responses.input_items.list",
    "POST /v1/conversations": "conversations.create",
    "GET /v1/conversations/{conversation_id}": "conversations.retrieve",
    "POST /v1/conversations/{conversation_id}": "conversations.update",
    "DELETE /v1/conversations/{conversation_id}": "conversations.delete",
    "GET /v1/conversations/{conversation_id}/items": "conversations.items.list",
    "POST /v1/conversations/{conversation_id}/items": "conversations.items.create",
    "GET /v1/conversations/{conversation_id}/items/{item_id}": "conversations.items.retrieve",
    "DELETE /v1/conversations/{conversation_id}/items/{item_id}": "conversations.items.delete",
    "GET /v1/containers": "containers.list",
    "POST /v1/containers": "containers.create",
    "GET /v1/containers/{container_id}": "containers.retrieve",
    "DELETE /v1/containers/{container_id}": "containers.delete",
    "GET /v1/containers/{container_id}/files": "containers.files.list",
    "POST /v1/containers/{container_id}/files": "containers.files.create",
    "GET /v1/containers/{container_id}/files/{file_id}": "containers.files.retrieve",
    "DELETE /v1/containers/{container_id}/files/{file_id}": "containers.files.delete",
    "GET /v1/containers/{container_id}/files/{file_id}/content": "containers.files.content.retrieve",
    "GET /v1/vector_stores": "vector_stores.list",
    "POST /v1/vector_stores": "vector_stores.create",
    "GET /v1/vector_stores/{vector_store_id}": "vector_stores.retrieve",
    "POST /v1/vector_stores/{vector_store_id}": "vector_stores.update",
    "DELETE /v1/vector_stores/{vector_store_id}": "vector_stores.delete",
    "POST /v1/vector_stores/{vector_store_id}/search": "vector_stores.search",
    "GET /v1/vector_stores/{vector_store_id}/files": "vector_stores.files.list",
    "POST /v1/vector_stores/{vector_store_id}/files": "vector_stores.files.create",
    "GET /v1/vector_stores/{vector_store_id}/files/{file_id}": "vector_stores.files.retrieve",
    "POST /v1/vector_stores/{vector_store_id}/files/{file_id}": "vector_stores.files.update",
    "DELETE /v1/vector_stores/{vector_store_id}/files/{file_id}": "vector_stores.files.delete",
    "GET /v1/vector_stores/{vector_store_id}/files/{file_id}/content": "vector_stores.files.content",
    "POST /v1/vector_stores/{vector_store_id}/file_batches": "vector_stores.file_batches.create",
    "GET /v1/vector_stores/{vector_store_id}/file_batches/{batch_id}": "vector_stores.file_batches.retrieve",
    "POST /v1/vector_stores/{vector_store_id}/file_batches/{batch_id}/cancel": "vector_stores.file_batches.cancel",
    "GET /v1/vector_stores/{vector_store_id}/file_batches/{batch_id}/files": "vector_stores.file_batches.list_files",
}
"""The methods of the `openai` and `anthropic` packages for routes."""

_ANTHROPIC = "/v1/messages"
_PYTHON = """from {python} import {client}

client = {client}()  # Reads {prefix}_BASE_URL and {prefix}_API_KEY.
answer = {call}
print(answer)"""
_NODE = """import {client} from "{node}";{imports}

const client = new {client}(); // Reads {prefix}_BASE_URL and {prefix}_API_KEY.
const answer = await {call};
console.log(answer);"""
_OPENAI_LIBRARY = {"python": "openai", "node": "openai", "client": "OpenAI", "prefix": "OPENAI"}
_ANTHROPIC_LIBRARY = {"python": "anthropic", "node": "@anthropic-ai/sdk", "client": "Anthropic", "prefix": "ANTHROPIC"}
_PARAMETER = re.compile(r"\{(\w+)\}")


def example_of(model: type[BaseModel] | None) -> Json:
    """Return the smallest useful value of a body, a form or a query, as its class gives it."""
    return dict(getattr(model, "example", {}))


def samples_of(method: str, path: str, contract: Contract) -> list[Json]:
    """Return the examples of a route, as `x-codeSamples` of its operation."""
    body, form, query = example_of(contract.body), example_of(contract.form), example_of(contract.query)
    has_body = contract.body is not None and contract.form is None
    sources = [("shell", "curl", _curl(method, path, contract, form if contract.form else body, query))]
    if path.startswith("/v1/"):
        values = body if has_body else form
        sources.append(("python", "Python", _python(method, path, values, query)))
        sources.append(("javascript", "Node", _node(method, path, values, query)))
    return [{"lang": lang, "label": label, "source": source} for lang, label, source in sources]


def _library_for(path: str) -> dict[str, str]:
    return _ANTHROPIC_LIBRARY if path.startswith(_ANTHROPIC) else _OPENAI_LIBRARY


def _curl(method: str, path: str, contract: Contract, values: Json, query: Json) -> str:
    filled = _PARAMETER.sub(lambda name: name[1].upper(), path)
    base = "$OPENAI_BASE_URL" if path.startswith("/v1/") else "${OPENAI_BASE_URL%/v1}"
    address = f"{base}{filled.removeprefix('/v1')}" + (f"?{urlencode(query)}" if query else "")
    lines = [f'curl "{address}"']
    if method == "DELETE" or (method == "POST" and contract.body is None and contract.form is None):
        lines[0] = f'curl -X {method} "{address}"'
    if contract.needs_key:
        lines.append('-H "Authorization: Bearer $OPENAI_API_KEY"')
    if contract.form is not None:
        lines += [f"-F {name}={value}" for name, value in values.items()]
    elif contract.body is not None:
        text = json.dumps(values, indent=2, ensure_ascii=False).replace("'", "'\\''")
        lines += ['-H "Content-Type: application/json"', f"-d '{text}'"]
    return " \\\n  ".join(lines)


def _python(method: str, path: str, values: Json, query: Json) -> str:
    *others, last = [*_PARAMETER.findall(path)] or [""]
    known = METHODS.get(f"{method} {path}")
    if known is None:
        filled = _PARAMETER.sub(lambda name: name[1].upper(), path.removeprefix("/v1"))
        options = {"body": values} if method == "POST" else {"options": {"params": query}} if query else {}
        given = [json.dumps(filled), "cast_to=object", *(f"{name}={_literal(one)}" for name, one in options.items())]
        return _PYTHON.format(**_library_for(path), call=_spread(f"client.{method.lower()}", given))
    given = [json.dumps(last.upper())] if last else []
    given += [f"{name}={_literal(value)}" for name, value in {**values, **query}.items()]
    given += [f"{name}={json.dumps(name.upper())}" for name in others]
    return _PYTHON.format(**_library_for(path), call=_spread(f"client.{known}", given))


def _spread(function: str, given: list[str]) -> str:
    """Return a call in one line, or with an argument on each line if it has several."""
    if sum(map(len, given)) + len(function) < 60:
        return f"{function}({', '.join(given)})"
    arguments = "".join(f"    {one},\n" for one in given)
    return f"{function}(\n{arguments})"


def _literal(value: Any) -> str:
    """Return a JSON value as Python, a file as the call that opens it."""
    if _is_file(value):
        return f'open({json.dumps(value[1:])}, "rb")'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_literal(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return repr(value) if value is None or isinstance(value, bool) else json.dumps(value, ensure_ascii=False)


def _node(method: str, path: str, values: Json, query: Json) -> str:
    *others, last = [*_PARAMETER.findall(path)] or [""]
    known = METHODS.get(f"{method} {path}")
    if known is None:
        filled = _PARAMETER.sub(lambda name: name[1].upper(), path.removeprefix("/v1"))
        options = {"body": values} if method == "POST" else {"query": query} if query else {}
        given = [json.dumps(filled), *([_script(options)] if options else [])]
        return _NODE.format(**_library_for(path), imports="", call=f"client.{method.lower()}({', '.join(given)})")
    function = re.sub(r"_(\w)", lambda letter: letter[1].upper(), known)
    options = {**{name: name.upper() for name in others}, **values, **query}
    given = [*([json.dumps(last.upper())] if last else []), *([_script(options)] if options else [])]
    imports = '\nimport fs from "node:fs";' if any(_is_file(value) for value in values.values()) else ""
    return _NODE.format(**_library_for(path), imports=imports, call=f"client.{function}({', '.join(given)})")


def _script(value: Json) -> str:
    """Return a JSON object as JavaScript, a file as the call that opens it."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    text = re.sub(r'^(\s*)"(\w+)":', r"\1\2:", text, flags=re.MULTILINE)
    return re.sub(r'"@([^"]+)"', r'fs.createReadStream("\1")', text)


def _is_file(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("@")
