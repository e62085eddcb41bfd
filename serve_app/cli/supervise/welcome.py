"""A first key, a sign-in link, and what `manta serve` prints once the service runs: code that works as pasted."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy.exc import DBAPIError

from deployments.config import ConfigError
from deployments.models.config import ModelConfig
from deployments.state.config import ResolvedState
from deployments.state.console_sessions import ConsoleSessions
from deployments.state.database.connection import connect
from deployments.state.identity.key_store import KeyStore
from deployments.state.identity.keys import NewKey
from deployments.state.objects.marker import open_objects

_PLACEHOLDER = "YOUR_KEY"
_ANOTHER = "another one: .venv/bin/manta keys create --tier standard"
_RANKING = {"query": "What is a test?", "documents": ["This is a test.", "This is one."]}


async def open_state(state: ResolvedState) -> str | None:
    """Check the database and the object store; return the secret of a first key, None if there is a key already.

    Raises:
        ConfigError: they cannot be used, or do not belong together.
    """
    database = await connect(state.database_url)
    try:
        await open_objects(database, state.object_store)
        keys = KeyStore(database, state.pepper, state.config.tiers)
        if await keys.list_keys():
            return None
        _, secret = await keys.create(NewKey(name="first key", tier="standard"))
        return secret
    finally:
        await database.close()


async def create_link(state: ResolvedState) -> str | None:
    """Return the token of a new sign-in link, for the oldest key without admin rights.

    None if there is no such key, or the database is away.
    """
    try:
        database = await connect(state.database_url)
    except ConfigError:
        return None
    try:
        sessions = ConsoleSessions(database)
        keys = await KeyStore(database, state.pepper, state.config.tiers).list_keys()
        usable = [key for key in keys if not key.is_admin and key.status(sessions.clock()) == "active"]
        return await sessions.create_link(usable[-1].key_id) if usable else None
    except DBAPIError:
        return None
    finally:
        await database.close()


def render_welcome(
    url: str,
    models: Sequence[ModelConfig],
    secret: str | None,
    log_path: Path,
    link: str | None = None,
    interpreter_problem: str | None = None,
) -> str:
    """Return the text to print. `secret` is None if a key was issued before: its secret cannot be shown again.

    `link` is the token of a one-time link into the console, None if there is no key to sign in with.
    `interpreter_problem` says why the code interpreter is off, None if it is not.
    """
    names = ", ".join(model.id for model in models)
    if secret is None:
        key_lines = f"API key    issued before; {_ANOTHER}"
    else:
        key_lines = f"API key    {secret}\n           (standard tier, shown only this once; {_ANOTHER})"
    model = next((model for model in models if model.task == "generate"), models[0])
    key = secret or _PLACEHOLDER
    console = f"Console    {url}/console\n"
    if link is not None:
        console += f"           signs in once, within 15 minutes: {url}/console/sign-in?link={link}\n"
    off = "" if interpreter_problem is None else f"Off        Code interpreter: {interpreter_problem}\n"
    return (
        f"\nBase URL   {url}/v1\n{key_lines}\nModels     {names}\n"
        f"{console}Reference  {url}/docs\nLog        {log_path}\n{off}\n"
        f"{_render_curl(url, model, key)}\n\n{_render_python(url, model, key)}\nCtrl-C stops it.\n"
    )


def _render_curl(url: str, model: ModelConfig, key: str) -> str:
    body: dict[str, Any] = {"model": model.id}
    match model.task:
        case "generate":
            path = "chat/completions"
            body |= {"max_tokens": 32, "messages": [{"role": "user", "content": "Say this is a test."}]}
        case "embed":
            path = "embeddings"
            body |= {"input": "Say this is a test."}
        case "score":
            path = "rerank"
            body |= _RANKING
    return (
        f"curl {url}/v1/{path} -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' "
        f"-d '{json.dumps(body)}'"
    )


def _render_python(url: str, model: ModelConfig, key: str) -> str:
    lines = ["from openai import OpenAI", f'client = OpenAI(base_url="{url}/v1", api_key="{key}")']
    if model.task == "generate":
        lines += [
            'messages = [{"role": "user", "content": "Say this is a test."}]',
            f'ask = {{"model": "{model.id}", "max_tokens": 32, "messages": messages}}',
            "for chunk in client.chat.completions.create(stream=True, **ask):",
            '    print(chunk.choices[0].delta.content or "", end="", flush=True)',
        ]
    elif model.task == "score":
        lines += [
            f"documents = {json.dumps(_RANKING['documents'])}",
            f'ask = {{"model": "{model.id}", "query": "{_RANKING["query"]}", "documents": documents}}',
            'for result in client.post("/rerank", cast_to=object, body=ask)["results"]:',
            '    print(result["index"], result["relevance_score"])',
        ]
    else:
        lines += [
            'texts = ["Say this is a test.", "This is one."]',
            f'answer = client.embeddings.create(model="{model.id}", input=texts)',
            "for item in answer.data:",
            "    print(item.index, item.embedding[:4])",
        ]
    return "\n".join(lines) + "\n"
