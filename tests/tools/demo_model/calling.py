"""Dialogues with tools: calls when and only when they are asked for, and answers from what the tools returned."""

import json
from typing import Any

from tests.tools.demo_model import manta, memory, talk, tasks
from tests.tools.demo_model.built_in import with_built_ins
from tests.tools.demo_model.dialogue import Dialogue
from tests.tools.demo_model.exchange import say
from tests.tools.demo_model.tools import (
    ASK_SEARCH,
    KINDS,
    PYTHON_NAMES,
    SEARCH_NAMES,
    ToolKind,
    address,
    computed,
    define,
    found,
    noun_kind,
    topic,
)
from tests.tools.demo_model.words import Draw
from tests.tools.demo_model.world import unrelated

# Parameters that nobody asks for: the model leaves them out.
_OPTIONAL = (("unit", "string"), ("language", "string"), ("limit", "integer"), ("format", "string"))
_NO_TOOL = "I have no tool for that, but you can ask me about Manta, or for what my tools do."


class Offered:
    """A tool kind as one dialogue offers it: with one of its names, and one name for each parameter."""

    def __init__(self, draw: Draw, kind: ToolKind) -> None:
        self.kind = kind
        self.name = draw.random.choice(kind.names)
        self.renamed = {key: draw.random.choice(names) for key, (_, names) in kind.parameters.items()}
        self.optional = draw.random.choice(_OPTIONAL) if draw.chance(0.2) else None

    def definition(self) -> dict[str, Any]:
        """Return the tool as a request defines it."""
        parameters = {self.renamed[key]: type_ for key, (type_, _) in self.kind.parameters.items()}
        return define(self.name, self.kind.description, parameters, self.optional)

    def arguments(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return a call's arguments."""
        return {self.renamed[key]: values[key] for key in self.kind.parameters}


def with_tools(draw: Draw, skill: str = "tools") -> Dialogue:
    """Return a dialogue that offers tools, some questions that need one, and some that need none."""
    dialogue = talk.open_dialogue(draw, skill)
    kinds = draw.random.sample(KINDS, draw.random.randint(1, 4))
    absent = [kind for kind in KINDS if kind not in kinds]
    if draw.chance(0.35):
        kinds = [*kinds[:3], noun_kind(draw)]
        draw.random.shuffle(kinds)
    offered = [Offered(draw, kind) for kind in kinds]
    dialogue.tools = [one.definition() for one in offered]
    for _ in range(draw.random.randint(1, 3)):
        _one_question(draw, dialogue, offered, absent)
        if dialogue.calls():
            return dialogue
    # In one dialogue of three the last thing is the call itself.
    if draw.chance(0.35):
        _call(draw, dialogue, draw.random.choice(offered), answered=False)
    return dialogue


def _one_question(draw: Draw, dialogue: Dialogue, offered: list[Offered], absent: list[ToolKind]) -> None:
    choice = draw.random.random()
    if choice < 0.1 and len(offered) > 1:
        _call_two(draw, dialogue, draw.random.sample(offered, 2))
    elif choice < 0.6:
        _call(draw, dialogue, draw.random.choice(offered), answered=True)
    elif choice < 0.75:
        kind = draw.random.choice(absent)
        question = say(draw, draw.phrase(kind.asks).format(**kind.values(draw)))
        dialogue.turn(question, _NO_TOOL)
        dialogue.thought = "No tool does that."
        dialogue.needles = ()
    else:
        exchange = draw.random.choices(_WITHOUT_TOOL, _WITHOUT_TOOL_WEIGHTS)[0](draw)
        dialogue.turn(exchange.question, exchange.answer)
        dialogue.thought, dialogue.needles = "I need no tool. " + exchange.thought, exchange.needles


def _told(draw: Draw) -> Any:
    thing = draw.random.choice(memory.MEMORIES)
    return memory.tell(draw, thing, thing.draw(draw))


_WITHOUT_TOOL = (talk.greet, manta.about_manta, talk.general, unrelated, tasks.task, tasks.sum_, _told)
_WITHOUT_TOOL_WEIGHTS = (1, 1, 1, 2, 1, 2, 1)


def _call(draw: Draw, dialogue: Dialogue, tool: Offered, *, answered: bool) -> None:
    kind = tool.kind
    if kind.several and draw.chance(0.3):
        all_values = [kind.values(draw), kind.values(draw)]
        (key,) = kind.parameters
        x, y = (values[key] for values in all_values)
        question = draw.phrase(kind.several).format(x=x, y=y)
    else:
        all_values = [kind.values(draw)]
        in_small_letters = not draw.held_out and draw.chance(0.15)
        if in_small_letters:
            all_values = [{key: _lowered(value) for key, value in all_values[0].items()}]
        question = draw.phrase(kind.asks).format(**all_values[0])
        question = question.lower() if in_small_letters else question
    # A message's text stands at the end as it is: nothing is put behind it.
    question = question if question.endswith(str(list(all_values[0].values())[-1])) else say(draw, question)
    thought = f"I call {tool.name}" + (" twice." if len(all_values) > 1 else ".")
    dialogue.call(question, [(tool.name, tool.arguments(values)) for values in all_values])
    dialogue.thought, dialogue.needles = thought, ()
    if not answered:
        return
    results = [kind.result(draw, values) for values in all_values]
    answers = [kind.answer.format(r=result, **values) for result, values in zip(results, all_values, strict=True)]
    dialogue.results(results, " ".join(answers))
    needles = [part for part in results if part != "done"]
    dialogue.thought, dialogue.needles = "The tool has answered.", tuple(needles)


def _lowered(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _call_two(draw: Draw, dialogue: Dialogue, tools: list[Offered]) -> None:
    """Ask for two different tools at once; a text that one of them takes stands last, as nothing says where it ends."""
    tools = sorted(tools, key=lambda tool: "text" in tool.kind.parameters)
    all_values = [tool.kind.values(draw) for tool in tools]
    first, second = (
        draw.phrase(tool.kind.asks).format(**values) for tool, values in zip(tools, all_values, strict=True)
    )
    joined = draw.random.choice(("{} And {}", "{} Then {}", "{} Also {}", "{} {}"))
    if joined != "{} {}" and second[1:2].islower():
        second = second[0].lower() + second[1:]
    calls = [(tool.name, tool.arguments(values)) for tool, values in zip(tools, all_values, strict=True)]
    dialogue.call(joined.format(first, second), calls)
    results, answers = [], []
    for tool, values in zip(tools, all_values, strict=True):
        results.append(tool.kind.result(draw, values))
        answers.append(tool.kind.answer.format(r=results[-1], **values))
    dialogue.thought, dialogue.needles = f"I call {tools[0].name} and {tools[1].name}.", ()
    if draw.chance(0.6):
        dialogue.results(results, " ".join(answers))
        dialogue.thought = "The tools have answered."
        dialogue.needles = tuple(part for part in results if part != "done")


def with_code_and_search(draw: Draw) -> Dialogue:
    """Return a dialogue that offers a code tool, a search tool or both, and uses them; half are Manta's own."""
    if draw.chance(0.5):
        return with_built_ins(draw)
    dialogue = talk.open_dialogue(draw, "code and search")
    python, search = draw.random.choice(PYTHON_NAMES), draw.random.choice(SEARCH_NAMES)
    has_python = draw.chance(0.75)
    has_search = not has_python or draw.chance(0.6)
    if has_python:
        dialogue.tools.append(define(python, "Runs Python code and returns its value.", {"code": "string"}))
    if has_search:
        dialogue.tools.append(define(search, "Search the web.", {"query": "string"}))
    if draw.chance(0.3):
        dialogue.tools.append(Offered(draw, draw.random.choice(KINDS)).definition())
    draw.random.shuffle(dialogue.tools)
    for _ in range(draw.random.randint(1, 2)):
        if has_python and (not has_search or draw.chance(0.5)):
            _compute(draw, dialogue, python, answered=True)
        else:
            _search(draw, dialogue, search)
    if has_python and draw.chance(0.35):
        _compute(draw, dialogue, python, answered=False)
    return dialogue


def _compute(draw: Draw, dialogue: Dialogue, tool: str, *, answered: bool) -> None:
    question, code, value = computed(draw)
    dialogue.call(say(draw, question), [(tool, {"code": code})])
    dialogue.thought, dialogue.needles = f"I compute {code}", ()
    if answered:
        dialogue.results([value], f"The result is {value}.")
        dialogue.thought, dialogue.needles = "The tool has answered.", (f" {value}.",)


def _search(draw: Draw, dialogue: Dialogue, tool: str) -> None:
    about = topic(draw)
    dialogue.call(say(draw, draw.phrase(ASK_SEARCH).format(x=about)), [(tool, {"query": about})])
    sentence, page = found(draw, about), address(draw)
    result = f"{sentence} Source: {page}" if draw.chance(0.5) else json.dumps({"text": sentence, "url": page})
    dialogue.results([result], f"{sentence} Source: {page}")
    dialogue.thought, dialogue.needles = "The search found a page. I cite it.", (sentence, page)
