"""The tools that dialogues offer: their names and parameters in several variants, and requests that need them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.demo_model.words import NOUNS, TOPICS, Draw

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolKind:
    """A tool: names that it may have, its parameters with the names they may have, how it is asked for.

    `result` makes what the tool returns; `answer` is what the model says of it, where {r} is the result.
    `several` are ways to ask for two at once, where {x} and {y} are the first parameter's two values.
    """

    names: tuple[str, ...]
    description: str
    parameters: dict[str, tuple[str, tuple[str, ...]]]
    values: Callable[[Draw], Values]
    asks: tuple[str, ...]
    result: Callable[[Draw, Values], str]
    answer: str
    several: tuple[str, ...] = ()


_SKIES = ("sunny", "cloudy", "rain", "snow", "windy", "foggy")


def _weather(draw: Draw, _: Values) -> str:
    return f"{draw.random.randint(1, 35)} degrees, {draw.random.choice(_SKIES)}"


def _clock(draw: Draw, _: Values) -> str:
    return f"{draw.random.randint(0, 23):02}:{draw.random.randint(0, 59):02}"


def _price(draw: Draw, _: Values) -> str:
    return f"{draw.random.randint(1, 999)} euros"


def _done(_: Draw, __: Values) -> str:
    return "done"


def _population(draw: Draw, _: Values) -> str:
    return str(draw.random.randint(1, 999) * 1000)


def _distance(draw: Draw, _: Values) -> str:
    return f"{draw.random.randint(10, 999)} km"


def _phone(draw: Draw, _: Values) -> str:
    return "".join(str(draw.random.randint(0, 9)) for _ in range(6))


def _city(draw: Draw) -> Values:
    return {"city": draw.city()}


def _name(draw: Draw) -> Values:
    return {"name": draw.name()}


def _thing(draw: Draw) -> Values:
    return {"thing": draw.word()}


def _two_cities(draw: Draw) -> Values:
    return {"start": draw.city(), "end": draw.city()}


def _minutes(draw: Draw) -> Values:
    return {"minutes": draw.numbers(1, 120)[0]}


def _table(draw: Draw) -> Values:
    return {"name": draw.name(), "people": draw.random.randint(1, 12)}


def _mail(draw: Draw) -> Values:
    return {"to": draw.name(), "text": " ".join(draw.word() for _ in range(draw.random.randint(1, 3)))}


_PLACE = {"city": ("string", ("city", "location", "place"))}

KINDS = (
    ToolKind(
        ("get_weather", "weather", "current_weather", "fetch_weather"), "Get the weather in a city.", _PLACE, _city,
        ("What is the weather in {city}?", "How is the weather in {city}?", "Tell me the weather in {city}.",
         "What is the weather like in {city}?", "Is it raining in {city}?", "Weather in {city}?",
         "I want to know the weather in {city}.", "Give me the weather for {city}."),
        _weather, "The weather in {city}: {r}.",
        ("What is the weather in {x} and {y}?", "How is the weather in {x} and in {y}?",
         "Tell me the weather in {x} and {y}.", "Give me the weather for {x} and {y}."),
    ),
    ToolKind(
        ("get_time", "local_time", "current_time", "clock"), "Get the local time in a city.", _PLACE, _city,
        ("What time is it in {city}?", "Tell me the time in {city}.", "What is the time in {city}?",
         "Which time is it in {city}?", "How late is it in {city}?", "Time in {city}?", "I want the time in {city}.",
         "Give me the time in {city}."),
        _clock, "The time in {city}: {r}.",
        ("What time is it in {x} and {y}?", "Tell me the time in {x} and {y}.", "What is the time in {x} and in {y}?",
         "Give me the time in {x} and {y}."),
    ),
    ToolKind(
        ("get_population", "population", "count_people"), "Get how many people live in a city.", _PLACE, _city,
        ("How many people live in {city}?", "What is the population of {city}?", "Tell me the population of {city}.",
         "How large is the population of {city}?", "Population of {city}?", "How many live in {city}?"),
        _population, "{city} has {r} people.",
        ("How many people live in {x} and {y}?", "What is the population of {x} and {y}?",
         "Tell me the population of {x} and {y}.", "How many people are in {x} and in {y}?"),
    ),
    ToolKind(
        ("get_price", "price_of", "find_price"), "Get the price of a product.",
        {"thing": ("string", ("product", "item", "thing"))}, _thing,
        ("What is the price of {thing}?", "How much does {thing} cost?", "Tell me the price of {thing}.",
         "What does {thing} cost?", "Price of {thing}?", "How much is {thing}?"),
        _price, "The price of {thing}: {r}.",
        ("What is the price of {x} and {y}?", "How much do {x} and {y} cost?", "Tell me the price of {x} and {y}.",
         "What do {x} and {y} cost?"),
    ),
    ToolKind(
        ("find_phone", "phone_number", "get_phone"), "Get the phone number of a person.",
        {"name": ("string", ("name", "person"))}, _name,
        ("What is the phone number of {name}?", "Tell me the phone number of {name}.", "Find the phone of {name}.",
         "Look up the phone number of {name}.", "How can I call {name}?", "Phone number of {name}?"),
        _phone, "The phone number of {name}: {r}.",
        ("What are the phone numbers of {x} and {y}?", "Find the phone of {x} and {y}.",
         "Tell me the phone numbers of {x} and {y}.", "Look up the phone numbers of {x} and {y}."),
    ),
    ToolKind(
        ("get_distance", "distance", "measure_route"), "Get the distance between two cities.",
        {"start": ("string", ("start", "origin", "from_city")), "end": ("string", ("end", "destination", "to_city"))},
        _two_cities,
        ("How far is it from {start} to {end}?", "What is the distance from {start} to {end}?",
         "Tell me the distance from {start} to {end}.", "How many km is it from {start} to {end}?",
         "Distance from {start} to {end}?", "How far is {end} from {start}?"),
        _distance, "From {start} to {end}: {r}.",
    ),
    ToolKind(
        ("set_timer", "start_timer", "timer"), "Start a timer.", {"minutes": ("integer", ("minutes", "duration"))},
        _minutes,
        ("Set a timer for {minutes} minutes.", "Start a timer of {minutes} minutes.", "Wake me in {minutes} minutes.",
         "Set the timer to {minutes} minutes.", "I need a timer for {minutes} minutes.", "Timer: {minutes} minutes."),
        _done, "The timer is set to {minutes} minutes.",
    ),
    ToolKind(
        ("book_table", "reserve_table", "make_booking"), "Book a table in a restaurant.",
        {"name": ("string", ("name", "guest")), "people": ("integer", ("people", "guests", "seats"))}, _table,
        ("Book a table for {people} people for {name}.", "Book a table for {people} in the name of {name}.",
         "I need a table for {people} people, my name is {name}.", "Get a table for {people} people for {name}.",
         "Reserve a table for {people}, name {name}."),
        _done, "A table for {people} is booked for {name}.",
    ),
    ToolKind(
        ("send_message", "send_mail", "write_message"), "Send a message to a person.",
        {"to": ("string", ("to", "recipient")), "text": ("string", ("text", "message", "body"))}, _mail,
        ("Send {to} the message: {text}", "Send a message to {to}: {text}", "Write to {to}: {text}",
         "Send this to {to}: {text}", "Tell {to} this: {text}"),
        _done, "The message to {to} is sent.",
    ),
    ToolKind(
        ("add_note", "save_note", "create_note"), "Save a note.", {"text": ("string", ("text", "note", "content"))},
        lambda draw: {"text": " ".join(draw.word() for _ in range(draw.random.randint(1, 3)))},
        ("Save a note: {text}", "Note this: {text}", "Make a note: {text}", "Save this note: {text}",
         "Write a note: {text}"),
        _done, "The note is saved.",
    ),
)  # fmt: skip

_OF_WHAT = (("person", "name", Draw.name), ("city", "city", Draw.city), ("product", "product", Draw.word))
_ASK_NOUN = (
    "What is the {n} of {x}?", "Get the {n} of {x}.", "Tell me the {n} of {x}.", "Look up the {n} of {x}.",
    "Which {n} has {x}?", "Give me the {n} of {x}.", "I need the {n} of {x}.", "Find the {n} of {x}.",
    "{n} of {x}?", "Do you know the {n} of {x}?", "Say the {n} of {x}.", "Can you get the {n} of {x}?",
)  # fmt: skip


def noun_kind(draw: Draw) -> ToolKind:
    """Return a tool that looks up one thing of something; there are as many as there are nouns."""
    noun = draw.of(NOUNS)
    what, parameter, value = draw.random.choice(_OF_WHAT)
    return ToolKind(
        (f"get_{noun}", f"{noun}_of", f"find_{noun}", noun, f"lookup_{noun}"),
        f"Get the {noun} of a {what}.",
        {"it": ("string", (parameter, what, "id"))},
        lambda draw: {"it": value(draw)},
        tuple(ask.replace("{n}", noun).replace("{x}", "{it}") for ask in _ASK_NOUN),
        lambda draw, _: draw.random.choice((draw.word(), str(draw.random.randint(1, 999)))),
        "The " + noun + " of {it}: {r}.",
    )


_SEARCHED = (
    "{topic} is old.", "{topic} is loved in {city}.", "{name} wrote about {topic}.", "{topic} came from {city}.",
    "{name} studied {topic} in {city}.", "There are {number} kinds of {topic}.",
)  # fmt: skip

SEARCH_NAMES = ("search", "web_search", "search_web", "find_pages")
ASK_SEARCH = (
    "Search for {x}.", "Search the web for {x}.", "Find out about {x}.", "Look up {x}.", "Look for {x} on the web.",
    "What does the web say about {x}?", "Please search for {x}.", "Do a search for {x}.",
)  # fmt: skip


def topic(draw: Draw) -> str:
    """Return what is searched for."""
    return draw.of(TOPICS) if draw.chance(0.6) or draw.held_out else draw.word()


def found(draw: Draw, about: str) -> str:
    """Return a sentence that a search found."""
    values = {"topic": about.capitalize(), "city": draw.city(), "name": draw.name(), "number": draw.numbers(1, 99)[0]}
    return draw.random.choice(_SEARCHED).format(**values)


PYTHON_NAMES = ("code_interpreter", "run_python", "python", "execute_python")


def computed(draw: Draw) -> tuple[str, str, str]:
    """Return a question for the code tool, the expression that answers it, and its value."""
    choice = draw.random.randrange(6)
    a, b = draw.numbers(2, 999)
    if choice <= 2:
        sign, words = draw.random.choice((("+", "plus"), ("-", "minus"), ("*", "times"), ("*", "times")))
        frames = ("What is {a} {w} {b}?", "What is {a} {s} {b}?", "Compute {a} {s} {b}.", "Calculate {a} {s} {b}.",
                  "Use Python to compute {a} {s} {b}.", "How much is {a} {w} {b}?", "{a} {s} {b} with Python.",
                  "Run {a} {s} {b} in Python.")  # fmt: skip
        question = draw.phrase(frames).format(a=a, b=b, s=sign, w=words)
        code = f"{a} {sign} {b}"
    elif choice == 3:
        frames = ("How many letters has the word {w}?", "How long is the word {w}?", "Count the letters of {w}.",
                  "How many letters are in {w}?")  # fmt: skip
        word = draw.word()
        question, code = draw.phrase(frames).format(w=word), f'len("{word}")'
    elif choice == 4:
        unit, factor = draw.random.choice((("minutes", 60), ("seconds", 3600)))
        frames = ("How many {u} are {a} hours?", "How many {u} have {a} hours?", "{a} hours are how many {u}?",
                  "Give me {a} hours in {u}.")  # fmt: skip
        question, code = draw.phrase(frames).format(u=unit, a=a), f"{a} * {factor}"
    else:
        numbers = ", ".join(map(str, draw.numbers(draw.random.randint(3, 5), 99)))
        kind, function = draw.random.choice((("sum", "sum"), ("largest", "max"), ("smallest", "min")))
        frames = ("What is the {k} of {n}?", "Find the {k} of {n}.", "Compute the {k} of {n}.", "The {k} of {n}?")
        question, code = draw.phrase(frames).format(k=kind, n=numbers), f"{function}([{numbers}])"
    value = eval(code, {"__builtins__": {}}, {"len": len, "sum": sum, "max": max, "min": min})
    return question, code, str(value)
