"""Small talk, questions about Manta and the world, and system prompts that fix a name, a fact or a style."""

import itertools
from collections.abc import Mapping

from tests.tools.demo_model import facts, memory, tasks
from tests.tools.demo_model.dialogue import Dialogue
from tests.tools.demo_model.exchange import Exchange, say
from tests.tools.demo_model.manta import about_manta
from tests.tools.demo_model.phrasings import ABOUT_CLAUSE, ABOUT_NOUN, cross
from tests.tools.demo_model.spelling import typed
from tests.tools.demo_model.topics import TOPICS
from tests.tools.demo_model.words import Draw
from tests.tools.demo_model.world import unknown

_SMALL_TALK = (
    (facts.GREETINGS, facts.GREETING, 3), (facts.WHO, facts.IDENTITY, 3), (facts.HOW, facts.WELLBEING, 2),
    (facts.CAN, facts.ABILITIES, 3), (facts.THANKING, facts.THANKS, 2), (facts.PARTING, facts.FAREWELL, 2),
    (facts.ASK_SIZE, facts.SIZE, 0.7), (facts.ASK_MAKER, facts.MAKER, 0.7), (facts.ASK_LANGUAGES, facts.LANGUAGES, 0.7),
    (facts.AGREEING, facts.AGREEMENT, 2), (facts.COMPLAINING, facts.APOLOGY, 1.5),
    (facts.ASK_REMEMBERING, facts.MEMORY_SPAN, 0.7), (facts.ASK_ONLINE, facts.OFFLINE, 0.5),
    (facts.ASK_CUTOFF, facts.CUTOFF, 0.5), (facts.ASK_CONTEXT, facts.CONTEXT, 0.5), (facts.ASK_HOME, facts.HOME, 0.5),
    (facts.ASK_RELIABILITY, facts.RELIABILITY, 0.5),
)  # fmt: skip


def greet(draw: Draw) -> Exchange:
    """Ask one of the things that people begin and end with, or say in between."""
    asked, answer, _ = draw.random.choices(_SMALL_TALK, [weight for *_, weight in _SMALL_TALK])[0]
    return Exchange(typed(draw, draw.phrase(asked)), answer, "The user is friendly. I answer in kind.")


def general(draw: Draw) -> Exchange:
    """Ask what everybody knows."""
    return general_word(draw)[0]


def general_word(draw: Draw) -> tuple[Exchange, str]:
    """Ask what everybody knows; return also the one word that answers."""
    choice = draw.random.randrange(4)
    if choice == 0:
        key, value = _one_of(draw, facts.CAPITALS)
        asked, answer = facts.ASK_CAPITAL, f"The capital of {key} is {value}."
    elif choice == 1:
        key, value = _one_of(draw, facts.COLOURS)
        asked, answer = facts.ASK_COLOUR, f"{key[0].upper()}{key[1:]} is {value}."
    elif choice == 2:
        key, value = _one_of(draw, facts.OPPOSITES)
        asked, answer = facts.ASK_OPPOSITE, f"The opposite of {key} is {value}."
    else:
        key, value = _one_of(draw, facts.SOUNDS)
        asked, answer = facts.ASK_SOUND, f"{key[0].upper()}{key[1:]} says {value}."
    question = typed(draw, draw.phrase(asked).format(x=key))
    return Exchange(question, answer, f"The question is about {key}. The answer is {value}."), value


def _one_of(draw: Draw, known: Mapping[str, str]) -> tuple[str, str]:
    return draw.random.choice(list(known.items()))


_SHOP_KINDS = ("bakery", "museum", "library", "hotel", "bank", "school", "cinema", "shop")
_CITY_FACTS = ("It is in {city}.", "City: {city}.", "We are in {city}.", "It stands in {city}.", "The city is {city}.")
_OWNER_FACTS = (
    "Its owner is {name}.",
    "Owner: {name}.",
    "The owner is {name}.",
    "{name} owns it.",
    "It is owned by {name}.",
)
_HOUR_FACTS = (
    "It opens at {opens} and closes at {closes}.", "Opens: {opens}. Closes: {closes}.",
    "We open at {opens} and close at {closes}.", "It is open from {opens} to {closes}.",
    "It closes at {closes} and opens at {opens}.",
)  # fmt: skip
_SHOP_FACTS = tuple(itertools.product(_CITY_FACTS, _OWNER_FACTS, _HOUR_FACTS))
_SHOP_OPENINGS = (
    "You are the assistant of a {kind}.", "You answer for a {kind}.", "Facts about the {kind}:",
    "You help the guests of a {kind}.", "You work in a {kind}.", "You are the assistant of the {kind}.",
    "You speak for a {kind}.", "Answer for a {kind}.", "You help the people of a {kind}.",
)  # fmt: skip
_ASKED = ("{s}?", "And {s}?", "So {s}?")
_ASK_OPEN = (
    *cross(_ASKED, ("when do you open", "what time do you open", "when does it open", "at what time do you open",
                    "from when are you open", "when are you opening", "how early do you open", "opening time")),
    *cross(ABOUT_CLAUSE, ("when you open", "at what time you open", "when it opens", "how early you open")),
    *cross(ABOUT_NOUN, ("the opening time",)),
)  # fmt: skip
_ASK_CLOSE = (
    *cross(_ASKED, ("when do you close", "what time do you close", "when does it close", "at what time do you close",
                    "until when are you open", "when are you closing", "how late do you close", "closing time")),
    *cross(ABOUT_CLAUSE, ("when you close", "at what time you close", "when it closes", "how late you close")),
    *cross(ABOUT_NOUN, ("the closing time",)),
)  # fmt: skip
_ASK_WHERE = (
    *cross(_ASKED, ("where are you", "in which city are you", "where can I find you", "which city are you in",
                    "what city are you in", "where is it", "in what city is it", "which city is it in")),
    *cross(ABOUT_CLAUSE, ("where you are", "where I find you", "in which city you are", "where it is")),
    *cross(ABOUT_NOUN, ("your city", "the city")),
)  # fmt: skip
_ASK_OWNER = (
    *cross(_ASKED, ("who is the owner", "who owns it", "whose is it", "who is your owner", "what is the owner called",
                    "who is the boss")),
    *cross(ABOUT_CLAUSE, ("who the owner is", "who owns it", "what the owner is called")),
    *cross(ABOUT_NOUN, ("the owner", "the owner's name", "the name of the owner")),
)  # fmt: skip
_OWN_NAMES = cross(
    ("{s}.", "{s}. Be brief.", "{s}. Help the user."),
    ("your name is {x}", "you go by the name {x}", "you are called {x}", "you are {x}", "the user calls you {x}"),
)
_ASK_OWN_NAME = (
    *cross(_ASKED, ("what are you called", "what do people call you", "how are you called")),
    *cross(ABOUT_CLAUSE, ("what you are called", "what your name is")),
    *cross(ABOUT_NOUN, ("your name",)),
)  # fmt: skip


def from_system(draw: Draw) -> tuple[str, list[Exchange]]:
    """Return a system prompt with facts, and the questions about them."""
    if draw.chance(0.25):
        name = draw.name()
        prompt = draw.phrase(_OWN_NAMES).format(x=name)
        asked = draw.phrase(_ASK_OWN_NAME)
        return prompt, [Exchange(say(draw, asked), f"My name is {name}.", f"My name is {name}.", (name,))]
    opens, closes = draw.distinct(2, 23)
    city, name = draw.city(), draw.name()
    kind = draw.random.choice(_SHOP_KINDS)
    stated = list(draw.phrase(_SHOP_FACTS))
    draw.random.shuffle(stated)
    frame = " ".join((draw.phrase(_SHOP_OPENINGS), *stated))
    prompt = frame.format(kind=kind, city=city, name=name, opens=opens, closes=closes)
    told = "The system prompt says so"
    questions = [
        Exchange(say(draw, draw.phrase(_ASK_OPEN)), f"We open at {opens}.", f"{told}: {opens}.", (f" {opens}.",)),
        Exchange(say(draw, draw.phrase(_ASK_CLOSE)), f"We close at {closes}.", f"{told}: {closes}.", (f" {closes}.",)),
        Exchange(say(draw, draw.phrase(_ASK_WHERE)), f"We are in {city}.", f"{told}: {city}.", (city,)),
        Exchange(say(draw, draw.phrase(_ASK_OWNER)), f"The owner is {name}.", f"{told}: {name}.", (name,)),
    ]
    draw.random.shuffle(questions)
    return prompt, questions


_VERBS = (
    "Answer", "Write", "Reply", "Speak", "Respond", "Always answer", "Please answer", "You answer", "You always write",
    "Write everything", "Only answer", "You reply", "Always reply", "You speak", "Answer every question", "You respond",
    "All your answers are", "Always write", "Give every answer", "Answer the user",
)  # fmt: skip


def _prompts(*forms: str) -> tuple[str, ...]:
    return tuple(f"{verb} {form}." for form in forms for verb in _VERBS)


_CAPITALS_PROMPTS = (
    "Use only capital letters.", "Use capitals.", "Capital letters only.", "Your answers are all in capitals.",
    *_prompts("in capital letters", "in capitals", "in upper case", "in all capitals", "in capital letters only"),
)  # fmt: skip
_FRENCH_PROMPTS = (
    "Use French only.", "You speak only French.", "The user speaks French.", "French only.",
    *_prompts("in French", "only in French", "in the French language"),
)  # fmt: skip
_WORD_PROMPTS = (
    "Use one word only.", "One word answers only.", "Your answers are one word long.", "Give answers of one word.",
    *_prompts("with one word", "in one word", "with a single word", "with one word only"),
)  # fmt: skip


def styled(draw: Draw, length: int) -> tuple[str, list[Exchange]]:
    """Return a system prompt that fixes how the model writes, and questions whose answers are written so."""
    style = draw.random.choice((_in_capitals, _in_french, _in_one_word))
    prompt, exchanges = style(draw, length)
    if draw.chance(0.25):
        prompt = f"{draw.random.choice(SYSTEM_PROMPTS)} {prompt}"
    return prompt, exchanges


def _in_capitals(draw: Draw, length: int) -> tuple[str, list[Exchange]]:
    asked = [draw.random.choice((greet, about_manta, general, unknown, _introduce))(draw) for _ in range(length)]
    exchanges = [Exchange(one.question, one.answer.upper(), "I write in capital letters.") for one in asked]
    return draw.phrase(_CAPITALS_PROMPTS), exchanges


def _introduce(draw: Draw) -> Exchange:
    return memory.tell(draw, memory.NAME, draw.name())


def _in_french(draw: Draw, length: int) -> tuple[str, list[Exchange]]:
    exchanges: list[Exchange] = []
    for _ in range(length):
        choice = draw.random.randrange(5)
        if choice == 4:
            question, answer = say(draw, unknown(draw).question), facts.FRENCH_UNKNOWN
        elif choice == 0:
            asked, answer = draw.random.choice(facts.FRENCH)
            question = say(draw, draw.phrase(asked))
        elif choice == 1:
            name = draw.name()
            question, answer = memory.tell(draw, memory.NAME, name).question, f"Enchanté, {name} !"
        elif choice == 2:
            key, value = _one_of(draw, facts.COLOURS)
            question = say(draw, draw.phrase(facts.ASK_COLOUR).format(x=key))
            answer = f"C'est {facts.FRENCH_COLOURS[value]}."
        else:
            asked_sum, total = tasks.small_sum(draw)
            question, answer = say(draw, asked_sum), f"Cela fait {total}."
        exchanges.append(Exchange(question, answer, "I answer in French."))
    return draw.phrase(_FRENCH_PROMPTS), exchanges


def _in_one_word(draw: Draw, length: int) -> tuple[str, list[Exchange]]:
    exchanges: list[Exchange] = []
    if draw.chance(0.4):
        name = draw.name()
        exchanges.append(Exchange(memory.tell(draw, memory.NAME, name).question, "Hello!", "One word: Hello."))
        exchanges.append(Exchange(say(draw, draw.phrase(memory.NAME.ask)), f"{name}.", f"One word: {name}."))
    while len(exchanges) < length:
        if draw.chance(0.3):
            question, total = tasks.small_sum(draw)
            exchanges.append(Exchange(say(draw, question), f"{total}.", f"One word: {total}."))
        elif draw.chance(0.2):
            exchanges.append(Exchange(unknown(draw).question, "Sorry.", "I cannot do that. One word: Sorry."))
        else:
            exchange, word = general_word(draw)
            answer = f"{word[0].upper()}{word[1:]}."
            exchanges.append(Exchange(exchange.question, answer, f"One word: {word}."))
    return draw.phrase(_WORD_PROMPTS), exchanges[-length:] if length > 1 else exchanges


SYSTEM_PROMPTS = (
    "You are a helpful assistant.", "You are Manta's demo model.", "Be brief.", "Answer the user's questions.",
    "You are a friendly assistant.", "Help the user.",
)  # fmt: skip
_ROLES = (
    "a chef", "a teacher", "a doctor", "a poet", "a comedian", "a senior engineer", "a coding assistant",
    "a sales assistant",
    "an expert in {x}", "a lawyer", "a knight", "a guide for {x}", "an AI that helps with {x}",
    "a support agent of {x}",
    "a helpful agent of a company named {x}", "a wise old man", "an analyst", "a robot", "a translator", "the best {x}",
)  # fmt: skip
_MANNERS = (
    " Be polite.", " Answer briefly.", " Never talk about {x}.", " The user likes {x}.",
    " You know all about {x}.",
    " Think step by step.", " Do not make things up.", " Today is Monday.", " Use short sentences.",
    " Be honest and kind.",
)  # fmt: skip


def open_dialogue(draw: Draw, skill: str) -> Dialogue:
    """Return a dialogue that has a general system prompt, or none."""
    dialogue = Dialogue(skill)
    if draw.chance(0.15):
        dialogue.system(draw.random.choice(SYSTEM_PROMPTS))
    elif draw.chance(0.12):
        role = draw.random.choice(_ROLES)
        manner = draw.random.choice(_MANNERS) if draw.chance(0.75) else ""
        dialogue.system(f"You are {role}.{manner}".replace("{x}", draw.random.choice(TOPICS)))
    return dialogue
