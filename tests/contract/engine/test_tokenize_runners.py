"""Tokens as the model reads them: those of a text, and of a chat with everything that its template knows."""

import json

import pytest

from deployments.models.contract.errors import RequestRejected
from deployments.operations import Operation
from tests.contract.engine.replies import Collected

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a batch?"}]
TOOL = {
    "type": "function",
    "function": {"name": "look_up", "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}},
}


@pytest.fixture
def ask(trained_engine):
    from deployments.replica.runners import RunnerContext, create_runner

    context = RunnerContext(
        trained_engine.model, None, lambda name: getattr(trained_engine.state, f"serving_{name}"), None, None
    )

    def ask(operation, **body):
        reply = Collected()
        header = {"request_id": "req_1", "stream": False, "cache_salt": "", "priority": 0}
        runner = create_runner(Operation(operation), context)
        trained_engine.run(runner.run(header, json.dumps(body).encode(), reply))
        assert reply.summary["usage"] == [0, 0, 0, 0]
        return json.loads(b"".join(reply.pieces))

    return ask


def prompt_of_chat(engine, **body):
    """Return the tokens that a chat with the same body has as its prompt."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    request = ChatCompletionRequest.model_validate({"model": engine.model, **body})
    _, [prompt] = engine.run(engine.serving.render_chat_request(request))
    return prompt["prompt_token_ids"]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"tools": [TOOL]},
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"add_generation_prompt": False},
        {
            "messages": [*MESSAGES, {"role": "assistant", "content": "A batch"}],
            "continue_final_message": True,
            "add_generation_prompt": False,
        },
    ],
)
def test_tokens_of_a_chat_are_those_that_it_is_answered_with(trained_engine, ask, more):
    body = {"messages": MESSAGES, **more}
    answer = ask("tokenize", **body)
    assert answer["tokens"] == prompt_of_chat(trained_engine, **body)
    assert (answer["count"], answer["max_model_len"], answer["token_strs"]) == (len(answer["tokens"]), 1024, None)


def test_effort_is_what_a_chat_makes_of_it(trained_engine, ask):
    thinks = {"reasoning_effort": "high", "enable_thinking": True}
    answer = ask("tokenize", messages=MESSAGES, reasoning_effort="high", chat_template_kwargs=thinks)
    assert answer["tokens"] == prompt_of_chat(trained_engine, messages=MESSAGES, reasoning_effort="high")
    assert answer["tokens"] != ask("tokenize", messages=MESSAGES)["tokens"]


def test_text_becomes_tokens_and_text_again(ask):
    text = "What is a batch? Größe: 3 €"
    answer = ask("tokenize", prompt=text, return_token_strs=True)
    assert len(answer["token_strs"]) == answer["count"] == len(answer["tokens"]) > 5
    assert ask("detokenize", tokens=answer["tokens"]) == {"prompt": text}


def test_text_longer_than_the_context_is_counted(ask):
    assert ask("tokenize", prompt="batch " * 3000)["count"] > 1024
    assert ask("tokenize", messages=[{"role": "user", "content": "batch " * 3000}])["count"] > 1024
    assert ask("tokenize", prompt="")["count"] == 0


@pytest.mark.parametrize("token", [10_000_000, 2**31 - 1])
def test_token_that_the_model_does_not_have_is_named(ask, token):
    with pytest.raises(RequestRejected, match=f"Token id {token} is out of vocabulary") as refused:
        ask("detokenize", tokens=[1, token])
    assert refused.value.param == "tokens"


def test_chat_that_the_template_cannot_write_is_the_clients_error(ask):
    with pytest.raises(RequestRejected):
        ask("tokenize", messages=MESSAGES, continue_final_message=True, add_generation_prompt=True)
