"""The tools that dialogues offer: their names and parameters in several variants, and requests that need them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.tools.demo_model.phrasings import LOOK_UP, cross
from tests.tools.demo_model.words import NOUNS, TOPICS, Draw

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


def define(
    name: str, description: str, parameters: dict[str, str], optional: tuple[str, str] | None = None
) -> dict[str, Any]:
    """Return a tool's definition, as a request has it."""
    properties = {key: {"type": type_} for key, type_ in parameters.items()}
    if optional is not None:
        properties[optional[0]] = {"type": optional[1]}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


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
        (*cross(LOOK_UP, ("the weather in {city}", "the weather of {city}")),
         "How is the weather in {city}?", "What is the weather like in {city}?", "Is it raining in {city}?",
         "And how is the weather in {city}?", "Is it snowing in {city}?", "Does it rain in {city}?",
         "Give me the weather for {city}.", "And is it raining in {city}?", "Weather in {city}?", "{city} weather",
         "Weather in {city} today", "How warm is it in {city}?", "Do I need an umbrella in {city}?",
         "What is the temperature in {city}?", "Is it sunny in {city}?", "How cold is it in {city} right now?",
         "Will it rain in {city} today?", "What is the forecast for {city}?", "Check the weather for {city}, please.",
         "I am going to {city}, how is the weather there?", "Is the weather good in {city}?", "Forecast for {city}",
         "Should I take a coat to {city}?", "What is it like outside in {city}?", "Is it hot in {city}?",
         "Can you check the weather in {city}?", "How does the weather look in {city}?", "Weather report for {city}."),
        _weather, "The weather in {city}: {r}.",
        cross(LOOK_UP, ("the weather in {x} and {y}", "the weather in {x} and in {y}")),
    ),
    ToolKind(
        ("get_time", "local_time", "current_time", "clock"), "Get the local time in a city.", _PLACE, _city,
        (*cross(LOOK_UP, ("the time in {city}", "the local time in {city}")),
         "What time is it in {city}?", "Which time is it in {city}?", "How late is it in {city}?",
         "And what time is it in {city}?", "What time is it now in {city}?", "How late is it now in {city}?",
         "Time in {city}?", "{city} time", "What is the time now in {city}?", "Current time in {city}",
         "What time do they have in {city}?", "Can you check the time in {city}?", "Is it late in {city}?",
         "What does the clock say in {city}?", "I am calling {city}, what time is it there?"),
        _clock, "The time in {city}: {r}.",
        cross(LOOK_UP, ("the time in {x} and {y}", "the time in {x} and in {y}")),
    ),
    ToolKind(
        ("get_population", "population", "count_people"), "Get how many people live in a city.", _PLACE, _city,
        (*cross(LOOK_UP, ("the population of {city}", "how many people live in {city}")),
          "How large is the population of {city}?", "How many live in {city}?",
         "And how many people live in {city}?", "How many people are in {city}?", "Population of {city}?",
         "{city} population", "How big is {city}?", "How many inhabitants does {city} have?", "Is {city} a large city?",
         "What is the number of people in {city}?", "How populous is {city}?"),
        _population, "{city} has {r} people.",
        cross(LOOK_UP, ("the population of {x} and {y}", "the population of {x} and of {y}")),
    ),
    ToolKind(
        ("get_price", "price_of", "find_price"), "Get the price of a product.",
        {"thing": ("string", ("product", "item", "thing"))}, _thing,
        (*cross(LOOK_UP, ("the price of {thing}", "what {thing} costs")),
         "How much does {thing} cost?", "What does {thing} cost?", "How much is {thing}?",
         "And what does {thing} cost?", "And how much is {thing}?", "Price of {thing}?", "{thing} price",
         "How expensive is {thing}?", "What would I pay for {thing}?", "Is {thing} expensive?", "Cost of {thing}?",
         "I want to buy {thing}, what is the price?", "What do you charge for {thing}?", "Check the price of {thing}."),
        _price, "The price of {thing}: {r}.",
        cross(LOOK_UP, ("the price of {x} and {y}", "the price of {x} and of {y}", "what {x} and {y} cost")),
    ),
    ToolKind(
        ("find_phone", "phone_number", "get_phone"), "Get the phone number of a person.",
        {"name": ("string", ("name", "person"))}, _name,
        (*cross(LOOK_UP, ("the phone number of {name}", "the phone of {name}")),
         "How can I call {name}?", "How do I call {name}?", "And how can I call {name}?", "Number of {name}?",
         "Phone number for {name}", "I need to call {name}.", "How can I reach {name} by phone?",
         "What number does {name} have?", "Do you have the number of {name}?", "{name}, phone number?"),
        _phone, "The phone number of {name}: {r}.",
        cross(LOOK_UP, ("the phone numbers of {x} and {y}", "the phone of {x} and {y}")),
    ),
    ToolKind(
        ("get_distance", "distance", "measure_route"), "Get the distance between two cities.",
        {"start": ("string", ("start", "origin", "from_city")), "end": ("string", ("end", "destination", "to_city"))},
        _two_cities,
        (*cross(LOOK_UP, ("the distance from {start} to {end}", "how far it is from {start} to {end}")),
         "How far is it from {start} to {end}?", "How many km is it from {start} to {end}?",
         "How far is {end} from {start}?", "And how far is it from {start} to {end}?",
         "And how many km is it from {start} to {end}?", "How many km is {end} from {start}?",
         "Distance from {start} to {end}", "{start} to {end}, how far?", "How long is the way from {start} to {end}?",
         "I drive from {start} to {end}, how many km is that?", "How far apart are {start} and {end}?",
         "Distance between {start} and {end}?", "How many kilometers are between {start} and {end}?"),
        _distance, "From {start} to {end}: {r}.",
    ),
    ToolKind(
        ("set_timer", "start_timer", "timer"), "Start a timer.", {"minutes": ("integer", ("minutes", "duration"))},
        _minutes,
        (*cross(("{s} for {minutes} minutes.", "{s} of {minutes} minutes.", "Please {s} for {minutes} minutes.",
                 "Can you {s} for {minutes} minutes?", "Now {s} of {minutes} minutes."),
                ("set a timer", "start a timer", "set the timer", "start the timer", "make a timer")),
         "Timer {minutes} minutes", "{minutes} minutes timer", "Wake me in {minutes} minutes.",
         "Remind me in {minutes} minutes.", "Count down {minutes} minutes.", "Tell me when {minutes} minutes are over.",
         "I need a timer of {minutes} minutes.", "Let a timer run for {minutes} minutes."),
        _done, "The timer is set to {minutes} minutes.",
    ),
    ToolKind(
        ("book_table", "reserve_table", "make_booking"), "Book a table in a restaurant.",
        {"name": ("string", ("name", "guest")), "people": ("integer", ("people", "guests", "seats"))}, _table,
        cross(("{s} for {people} people for {name}.", "{s} for {people} in the name of {name}.",
               "{s} for {people} people, my name is {name}.", "{s} for {people}, name {name}.",
               "Please {s} for {people} people for {name}."),
              ("book a table", "reserve a table", "get a table", "find a table", "book me a table",
               "make a reservation", "I need a table", "I would like a table", "reserve seats", "a table")),
        _done, "A table for {people} is booked for {name}.",
    ),
    ToolKind(
        ("send_message", "send_mail", "write_message"), "Send a message to a person.",
        {"to": ("string", ("to", "recipient")), "text": ("string", ("text", "message", "body"))}, _mail,
        cross(("{s}: {text}", "Please {s}: {text}", "Now {s}: {text}"),
              ("send {to} the message", "send a message to {to}", "write to {to}", "send this to {to}",
               "tell {to} this", "write this to {to}", "send {to} this message", "message {to}", "mail {to}",
               "let {to} know", "text {to}", "send an email to {to}", "new message to {to}", "drop {to} a line")),
        _done, "The message to {to} is sent.",
    ),
    ToolKind(
        ("add_note", "save_note", "create_note"), "Save a note.", {"text": ("string", ("text", "note", "content"))},
        lambda draw: {"text": " ".join(draw.word() for _ in range(draw.random.randint(1, 3)))},
        cross(("{s}: {text}", "Please {s}: {text}", "Now {s}: {text}"),
              ("save a note", "note this", "make a note", "save this note", "write a note", "make this note", "note",
               "write this down", "take a note", "new note", "do not forget", "add a note", "put this in my notes")),
        _done, "The note is saved.",
    ),
)  # fmt: skip

_OF_WHAT = (("person", "name", Draw.name), ("city", "city", Draw.city), ("product", "product", Draw.word))
_ASK_NOUN = (*cross(LOOK_UP, ("the {n} of {x}",)), "Which {n} has {x}?", "And the {n} of {x}?", "{n} of {x}?",
             "Please get the {n} of {x}.", "And which {n} has {x}?")  # fmt: skip


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

_DOMAINS = ("org", "com", "net", "example", "de", "fr", "io")
SEARCH_NAMES = ("search", "web_search", "search_web", "find_pages")
ASK_SEARCH = cross(
    ("{s} {x}.", "Please {s} {x}.", "Can you {s} {x}?", "Now {s} {x}.", "{s} {x} on the web."),
    (
        "search for",
        "search the web for",
        "find out about",
        "look up",
        "look for",
        "do a search for",
        "find pages about",
    ),
)


def topic(draw: Draw) -> str:
    """Return what is searched for."""
    return draw.of(TOPICS) if draw.chance(0.6) or draw.held_out else draw.word()


def address(draw: Draw) -> str:
    """Return the address of a page."""
    host = "127.0.0.1" if draw.chance(0.15) else f"{draw.word()}.{draw.random.choice(_DOMAINS)}"
    port = f":{draw.random.randint(1024, 65535)}" if draw.chance(0.2) else ""
    return f"{draw.random.choice(('http', 'https', 'https'))}://{host}{port}/{draw.word()}"


def found(draw: Draw, about: str) -> str:
    """Return a sentence that a search found."""
    values = {"topic": about.capitalize(), "city": draw.city(), "name": draw.name(), "number": draw.numbers(1, 99)[0]}
    return draw.random.choice(_SEARCHED).format(**values)


PYTHON_NAMES = ("code_interpreter", "run_python", "python", "execute_python")


_COMPUTE = cross(
    ("What is {s}?", "Compute {s}.", "Calculate {s}.", "Use Python to compute {s}.", "How much is {s}?",
     "{s} with Python.", "Run {s} in Python.", "Please compute {s}.", "Tell me {s}."),
    ("{a} {w} {b}", "{a} {s} {b}"),
)  # fmt: skip
_LETTERS = cross(
    ("{s}?", "And {s}?", "Can you count {s}?", "Tell me {s}.", "Please count {s}."),
    ("how many letters are in {w}", "how many letters has the word {w}", "how long is the word {w}",
     "the letters of {w}", "the letters of the word {w}"),
)  # fmt: skip
_HOURS = cross(
    ("{s}?", "And {s}?", "Tell me {s}."),
    ("how many {u} are {a} hours", "how many {u} have {a} hours", "{a} hours in {u}", "{a} hours are how many {u}",
     "how many {u} are in {a} hours"),
)  # fmt: skip
_OF_NUMBERS = cross(
    ("What is {s}?", "Find {s}.", "Compute {s}.", "Tell me {s}.", "{s}?", "And {s}?", "Please find {s}."),
    ("the {k} of {n}", "the {k} of the numbers {n}", "the {k} of these: {n}"),
)  # fmt: skip


def computed(draw: Draw) -> tuple[str, str, str]:
    """Return a question for the code tool, the expression that answers it, and its value."""
    choice = draw.random.randrange(6)
    a, b = draw.numbers(2, 999)
    if choice <= 2:
        sign, words = draw.random.choice((("+", "plus"), ("-", "minus"), ("*", "times"), ("*", "times")))
        question = draw.phrase(_COMPUTE).format(a=a, b=b, s=sign, w=words)
        code = f"{a} {sign} {b}"
    elif choice == 3:
        word = draw.word()
        question, code = draw.phrase(_LETTERS).format(w=word), f'len("{word}")'
    elif choice == 4:
        unit, factor = draw.random.choice((("minutes", 60), ("seconds", 3600)))
        question, code = draw.phrase(_HOURS).format(u=unit, a=a), f"{a} * {factor}"
    else:
        numbers = ", ".join(map(str, draw.numbers(draw.random.randint(3, 5), 99)))
        kind, function = draw.random.choice((("sum", "sum"), ("largest", "max"), ("smallest", "min")))
        question, code = draw.phrase(_OF_NUMBERS).format(k=kind, n=numbers), f"{function}([{numbers}])"
    value = eval(code, {"__builtins__": {}}, {"len": len, "sum": sum, "max": max, "min": min})
    return question, code, str(value)
