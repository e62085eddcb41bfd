"""How people type: without capitals and marks, in short forms, with slips, and with small words around a question."""

from tests.tools.demo_model.words import Draw

_SHORT_FORMS = (
    ("What is ", ("whats ", "what's ", "What's ")), ("what is ", ("whats ", "what's ")), ("Who is ", ("whos ",
                                                                                                      "who's ")),
    ("How is ", ("hows ", "how's ")), ("Where is ", ("wheres ", "where's ")), ("What are ", ("what r ", "whatre ")),
    ("My name is ", ("my name's ", "my names ", "My name's ")), ("my name is ", ("my name's ", "my names ")),
    ("I am ", ("im ", "i'm ", "I'm ")), ("It is ", ("its ", "it's ")), ("I would ", ("id ", "i'd ")),
    ("are you", ("r u", "are u")), ("Are you", ("r u", "are u")), ("Can you ", ("can u ", "could you ")),
    (" do not ", (" dont ", " don't ")), ("cannot ", ("cant ", "can't ")), ("Tell me ", ("gimme ", "tell me ")),
    (" about ", (" abt ", " about ")), ("I want to ", ("i wanna ", "i want to ")), ("colour", ("color",)),
    ("Please ", ("pls ", "please ", "plz ")), (" because ", (" cuz ",)), (" and ", (" & ",)), (" I ", (" i ",)),
)  # fmt: skip
_BEFORE = (
    "Hey, ", "hi, ", "Hello, ", "ok, ", "OK. ", "so ", "So, ", "um ", "Well, ", "quick question: ", "Please: ", "Now: ",
    "Thanks. ", "One more thing. ", "sorry, ", "hm, ", "and ", "but ", "Hey Manta, ", "just wondering, ", "question: ",
)  # fmt: skip
_AFTER = (
    " please",
    " pls",
    " thanks",
    " then",
    " now",
    " exactly",
    " by the way",
    " for me",
    "?",
    "??",
    "!",
    "...",
    " :)",
)


def shorten(draw: Draw, text: str, probability: float) -> str:
    """Return a text in the short forms of everyday typing, each with a probability."""
    for long, short in _SHORT_FORMS:
        if long in text and draw.chance(probability):
            text = text.replace(long, draw.random.choice(short), 1)
    return text


def typed(draw: Draw, text: str) -> str:
    """Return a question as people type it; only what means the same in small letters may be in it."""
    if draw.held_out or draw.chance(0.25):
        return text
    text = shorten(draw, text, 0.4)
    if draw.chance(0.55):
        text = text.rstrip(".?!")
    if draw.chance(0.06):
        text = draw.random.choice(_BEFORE) + text
    if draw.chance(0.06):
        text = text.rstrip(".?!") + draw.random.choice(_AFTER)
    if draw.chance(0.6):
        text = text.lower()
    elif draw.chance(0.03):
        text = text.upper()
    return slip(draw, text) if draw.chance(0.15) else text


_SMALL_WORDS = frozenset(("the", "a", "an", "is", "are", "do", "does", "to", "of", "me", "it", "in", "for", "with"))


def slip(draw: Draw, text: str) -> str:
    """Return a text without one of its small words, or with letters of a word swapped, doubled or left out."""
    words = text.split(" ")
    small = [index for index, word in enumerate(words) if word in _SMALL_WORDS]
    if small and len(words) > 2 and draw.chance(0.4):
        left_out = draw.random.choice(small)
        return " ".join(word for index, word in enumerate(words) if index != left_out)
    places = [place for place in range(1, len(text) - 1) if text[place - 1 : place + 2].isalpha()]
    if not places:
        return text
    place = draw.random.choice(places)
    choice = draw.random.randrange(3)
    if choice == 0:
        return text[:place] + text[place + 1] + text[place] + text[place + 2 :]
    return text[:place] + (text[place] * 2 if choice == 1 else "") + text[place + 1 :]


_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
_DIGIT_WORDS = _NUMBERS.split()


def in_words(number: int) -> str:
    """Return a number up to twenty as a word, a larger one in digits."""
    return _DIGIT_WORDS[number] if number < len(_DIGIT_WORDS) else str(number)
