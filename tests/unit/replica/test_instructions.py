"""Instructions in the middle of a conversation reach models whose templates take them only at the beginning."""

import itertools

import jinja2
import pytest

from deployments.replica.instructions import has_instructions, placed, places_of

ANYWHERE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
FIRST = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ fail('System message must be first.') }}"
    "{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)
IGNORED = (
    "{% if messages[0].role == 'system' %}<system>{{ messages[0].content }}{% endif %}"
    "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)
IN_TURN = (
    "{% for m in messages %}{% if m.role not in ('user', 'assistant') %}{{ fail('System role not supported.') }}"
    "{% endif %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ fail('Roles must alternate.') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}"
)
IN_PARTS = "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
PLACES = {ANYWHERE: "anywhere", FIRST: "first", IGNORED: "first", IN_TURN: "none"}


def renderer(template):
    def fail(message):
        raise jinja2.TemplateError(message)

    made = jinja2.Environment(autoescape=False).from_string(template)
    return lambda messages: made.render(messages=messages, fail=fail)


def talk(*roles):
    return [{"role": role, "content": f"<{number}>"} for number, role in enumerate(roles)]


@pytest.mark.parametrize(("template", "places"), PLACES.items())
def test_a_template_shows_where_it_takes_instructions(template, places):
    assert places_of(renderer(template)) == places


def test_a_template_of_parts_is_asked_in_parts():
    assert places_of(renderer(IN_PARTS), in_parts=True) == "anywhere"


@pytest.mark.parametrize("template", PLACES)
@pytest.mark.parametrize("num_messages", range(2, 6))
def test_every_instruction_is_in_the_prompt_in_its_order(template, num_messages):
    render, places = renderer(template), PLACES[template]
    for middle in itertools.product(("system", "assistant"), repeat=num_messages - 2):
        for first in ("system", "user"):
            roles = [first, *itertools.chain.from_iterable((role, "user") for role in middle), "user"]
            asked = talk(*roles)
            prompt = render(placed(asked, places))
            assert [prompt.index(message["content"]) for message in asked] == sorted(
                prompt.index(message["content"]) for message in asked
            )


@pytest.mark.parametrize("template", PLACES)
def test_a_later_instruction_leaves_the_prompt_before_it_as_it_was(template):
    render, places = renderer(template), PLACES[template]
    turns = talk("system", "system", "user", "system", "assistant", "user", "assistant", "system", "user", "assistant")
    ends = [number for number, message in enumerate(turns) if message["role"] == "assistant"]
    prompts = [render(placed(turns[:end], places)) for end in ends]
    assert all(after.startswith(before) for before, after in itertools.pairwise(prompts))


def test_what_the_user_says_in_parts_stays_in_parts():
    image = {"type": "image"}
    asked = [{"role": "user", "content": [image]}, {"role": "system", "content": "Be brief."}]
    (told,) = placed(asked, "first")
    assert told["content"] == [image, {"type": "text", "text": "<system>\nBe brief.\n</system>"}]


def test_results_of_calls_stay_apart_from_the_instruction_after_them():
    told = placed(talk("user", "assistant", "tool", "system"), "first")
    assert [message["role"] for message in told] == ["user", "assistant", "tool", "user"]


def test_a_template_that_shows_no_conversation_is_left_alone():
    assert places_of(renderer("{{ fail('Not for chats.') }}")) == "anywhere"


def test_a_conversation_without_instructions_needs_nothing():
    assert not has_instructions(talk("user", "assistant"))
    assert has_instructions(talk("system", "user"))
