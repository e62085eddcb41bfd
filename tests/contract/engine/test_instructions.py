"""A real renderer puts instructions where its chat template shows them."""

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

STRICT = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be first.') }}{% endif %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
)
TALK = [
    {"role": "system", "content": "You are an agent."},
    {"role": "user", "content": "Hello."},
    {"role": "system", "content": "Be brief."},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "And?"},
]


def render(engine):
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    request = ChatCompletionRequest(model=engine.model, messages=TALK)
    _, (prompt,) = engine.run(engine.serving.render_chat_request(request))
    return prompt["prompt"]


def test_an_instruction_in_the_middle_becomes_the_users_where_a_template_refuses_it(real_engine, monkeypatch):
    monkeypatch.setattr(real_engine.serving.online_renderer, "chat_template", STRICT)
    assert render(real_engine) == (
        "[system] You are an agent.\n[user] Hello.\n\n<system>\nBe brief.\n</system>\n[assistant] Hi.\n[user] And?\n"
    )


def test_a_template_that_takes_instructions_anywhere_gets_them_as_they_are(real_engine, monkeypatch):
    loose = STRICT.replace("and not loop.first", "and false")
    monkeypatch.setattr(real_engine.serving.online_renderer, "chat_template", loose)
    assert "[user] Hello.\n[system] Be brief.\n[assistant] Hi." in render(real_engine)
