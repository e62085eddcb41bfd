"""The text for the operator once the service runs: the address, a key, and lines that work as pasted."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deployments.models.config import ModelConfig

_PLACEHOLDER = "YOUR_KEY"
_RANKING = {"query": "What is a test?", "documents": ["This is a test.", "This is one."]}


def render_welcome(
    url: str, models: Sequence[ModelConfig], secret: str | None, log_path: Path, link: str | None = None
) -> str:
    """Return the text; `secret` is None where a key was issued before and cannot be shown again.

    `link` is the token of a one-time link into the console, None where there is no key to sign in with.
    """
    names = ", ".join(model.id for model in models)
    if secret is None:
        key_lines = "API key    issued before; another one: .venv/bin/manta keys create"
    else:
        key_lines = f"API key    {secret}\n           (standard tier, shown only this once)"
    model = next((model for model in models if model.task == "generate"), models[0])
    key = secret or _PLACEHOLDER
    console = f"Console    {url}/console\n"
    if link is not None:
        console += f"           signs in once, within 15 minutes: {url}/console/sign-in?link={link}\n"
    return (
        f"\nBase URL   {url}/v1\n{key_lines}\nModels     {names}\n"
        f"{console}Reference  {url}/docs\nLog        {log_path}\n\n"
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
