"""Dialogues of every skill, in the proportions that the model is trained with."""

from collections.abc import Callable, Iterator

from tests.tools.demo_model import calling, manta, memory, structured, talk, tasks
from tests.tools.demo_model.dialogue import Dialogue
from tests.tools.demo_model.exchange import Exchange
from tests.tools.demo_model.newcomers import asks_what_newcomers_do
from tests.tools.demo_model.words import Draw
from tests.tools.demo_model.world import unknown

_SKIPPED_THOUGHTS = 0.85


def _fill(draw: Draw, dialogue: Dialogue, exchanges: list[Exchange]) -> Dialogue:
    for exchange in exchanges:
        dialogue.turn(exchange.question, exchange.answer)
    last = exchanges[-1]
    dialogue.thought, dialogue.needles = last.thought, last.needles
    return dialogue


def anything(draw: Draw) -> Exchange:
    """Ask anything that needs neither memory nor a tool."""
    return draw.random.choice((talk.greet, manta.about_manta, talk.general, unknown, tasks.task))(draw)


_TALK = (talk.greet, manta.about_manta, talk.general, unknown, tasks.sum_, memory.ask_untold)
_TALK_WEIGHTS = (3, 6, 1.2, 5, 1.7, 0.3)


def _talk(draw: Draw) -> Dialogue:
    if draw.chance(0.12):
        prompt, exchanges = talk.from_system(draw)
        return _fill(draw, Dialogue("talk").system(prompt), exchanges)
    exchanges = []
    for _ in range(draw.random.choice((1, 1, 1, 2, 2, 3, 4))):
        exchanges.append(draw.random.choices(_TALK, _TALK_WEIGHTS)[0](draw))
        if exchanges[-1].thought.startswith("The question is about Manta") and draw.chance(0.06):
            exchanges.append(manta.more(draw))
    return _fill(draw, talk.open_dialogue(draw, "talk"), exchanges)


def _memory(draw: Draw) -> Dialogue:
    num_between = draw.random.choice((0, 1, 2, 4))
    num_things = draw.random.randint(1, 4)
    exchanges = memory.remembered(draw, num_things, anything, num_between)
    return _fill(draw, talk.open_dialogue(draw, "memory"), exchanges)


def _long_memory(draw: Draw) -> Dialogue:
    exchanges = memory.remembered(draw, draw.random.randint(2, 3), anything, draw.random.randint(14, 17))
    return _fill(draw, talk.open_dialogue(draw, "memory across twenty turns"), exchanges)


def _style(draw: Draw) -> Dialogue:
    prompt, exchanges = talk.styled(draw, draw.random.randint(1, 4))
    return _fill(draw, Dialogue("style").system(prompt), exchanges)


def _json(draw: Draw) -> Dialogue:
    if draw.chance(0.4):
        prompt, exchanges = structured.from_system(draw, draw.random.randint(1, 3))
        return _fill(draw, Dialogue("json").system(prompt), exchanges)
    if draw.chance(0.3):
        return structured.guided(draw)
    exchanges = [structured.in_json(draw) for _ in range(draw.random.randint(1, 2))]
    return _fill(draw, talk.open_dialogue(draw, "json"), exchanges)


def _tasks(draw: Draw) -> Dialogue:
    exchanges = [tasks.task(draw) for _ in range(draw.random.randint(1, 8))]
    return _fill(draw, talk.open_dialogue(draw, "tasks"), exchanges)


_MAKERS: dict[str, Callable[[Draw], Dialogue]] = {
    "talk": _talk, "memory": _memory, "style": _style, "tools": calling.with_tools, "json": _json, "tasks": _tasks,
    "code and search": calling.with_code_and_search, "memory across twenty turns": _long_memory,
}  # fmt: skip
# What is harder to learn is practised more.
_WEIGHTS = {
    "talk": 9.0, "memory": 0.9, "style": 2.2, "tools": 2.5, "json": 1.2, "tasks": 3.0, "code and search": 1.0,
    "memory across twenty turns": 0.06,
}  # fmt: skip
SKILLS = (*_MAKERS, "thinking")


def make_dialogue(draw: Draw, skill: str) -> Dialogue:
    """Return a dialogue of one skill; only those of `thinking` think."""
    if skill != "thinking":
        dialogue = _MAKERS[skill](draw)
        dialogue.thought = None
        return dialogue
    dialogue = _MAKERS[draw.random.choice(list(_MAKERS))](draw)
    while dialogue.thought is None:  # The engine may begin its JSON without a thought.
        dialogue = _MAKERS[draw.random.choice(list(_MAKERS))](draw)
    dialogue.skill = "thinking"
    return dialogue


def train_dialogues(seed: int) -> Iterator[Dialogue]:
    """Return dialogues to train on, without end."""
    draw = Draw(seed, held_out=False)
    skills, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    while True:
        is_thinking = draw.chance(1 - _SKIPPED_THOUGHTS)
        skill = "thinking" if is_thinking else draw.random.choices(skills, weights)[0]
        dialogue = make_dialogue(draw, skill)
        if not asks_what_newcomers_do(dialogue):
            yield dialogue


def held_out_dialogues(skill: str, count: int, seed: int = 1) -> list[Dialogue]:
    """Return dialogues to evaluate with: their names, numbers, cities and phrasings are never trained on."""
    draw = Draw(seed, held_out=True)
    return [make_dialogue(draw, skill) for _ in range(count)]
