"""Short prompts are prepared in the event loop, long ones in vLLM's threads; both become the same tokens."""

import asyncio
import threading

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
SHORT, LONG = "a few words", "many words " * 100
CASES = {
    "short": ([{"role": "user", "content": SHORT}], None, {"loop"}),
    "long": ([{"role": "user", "content": LONG}], None, {"threads"}),
    "long together": ([{"role": "user", "content": "words " * 20} for _ in range(10)], None, {"threads"}),
    "no text": ([{"role": "user", "content": SHORT}, {"role": "assistant", "content": ""}], None, {"loop"}),
    "tools": ([{"role": "user", "content": SHORT}], [TOOL], {"loop", "threads"}),
    "parts": ([{"role": "user", "content": [{"type": "text", "text": SHORT}]}], None, {"loop"}),
}


@pytest.fixture
def where(real_engine, monkeypatch):
    """Return the places where templates are rendered and text is tokenized, as they are."""
    from vllm.renderers import hf

    from deployments.replica.renderers import prepare_short_at_once

    renderer, seen = real_engine.serving.renderer, set()

    def noting(function):
        def run(*args, **kwargs):
            seen.add("loop" if threading.current_thread() is threading.main_thread() else "threads")
            return function(*args, **kwargs)

        return run

    monkeypatch.setattr("deployments.replica.renderers.SHORT", 1000)
    for name in ("_tokenize_prompt", "_tokenize_prompt_async", "_apply_chat_template_async"):
        monkeypatch.setattr(renderer, name, getattr(renderer, name))
    template, tokenize = noting(hf.safe_apply_chat_template), noting(renderer._tokenize_prompt)
    renderer._tokenize_prompt = tokenize
    loop, pool = real_engine.loop, renderer._executor
    renderer._tokenize_prompt_async = lambda *a: loop.run_in_executor(pool, tokenize, *a)
    renderer._apply_chat_template_async = lambda *a, **k: loop.run_in_executor(pool, lambda: template(*a, **k))
    monkeypatch.setattr("deployments.replica.renderers.safe_apply_chat_template", template)
    prepare_short_at_once(renderer)
    return seen


def render(real_engine, messages, tools):
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    asked = {"model": real_engine.model, "messages": messages, "tools": tools, "tool_choice": "auto" if tools else None}
    request = ChatCompletionRequest.model_validate({name: value for name, value in asked.items() if value is not None})
    _, (prompt,) = real_engine.run(real_engine.serving.render_chat_request(request))
    return prompt["prompt_token_ids"]


@pytest.mark.parametrize("case", CASES)
def test_where_a_prompt_is_prepared_makes_no_difference_to_it(real_engine, where, monkeypatch, case):
    messages, tools, expected = CASES[case]
    rendered = render(real_engine, messages, tools)
    assert where == expected
    monkeypatch.setattr("deployments.replica.renderers.SHORT", -1)
    assert render(real_engine, messages, tools) == rendered


def test_short_prompts_are_prepared_while_a_long_one_is(real_engine):
    async def prepare():
        renderer = real_engine.serving.renderer
        params = renderer.default_cmpl_tok_params
        long = asyncio.ensure_future(renderer._tokenize_prompt_async({"prompt": "many words " * 200_000}, params))
        await asyncio.sleep(0)
        short = [await renderer._tokenize_prompt_async({"prompt": SHORT}, params) for _ in range(20)]
        assert not long.done()
        assert len((await long)["prompt_token_ids"]) > 1_000  # Cut where no model could take more.
        assert len({tuple(one["prompt_token_ids"]) for one in short}) == 1

    real_engine.run(prepare())
