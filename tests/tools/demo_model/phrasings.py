"""Ways to ask, put together from parts, so that a phrasing that is held out is made of parts that were trained."""

# Around what has a name of its own: "my name", "the weather in {city}".
ABOUT_NOUN = (
    "What is {s}?", "Tell me {s}.", "Do you know {s}?", "Say {s}.", "And {s}?", "Can you tell me {s}?", "Name {s}.",
    "Please say {s}.", "What is {s} again?", "Please tell me {s}.", "I want to know {s}.",
)  # fmt: skip
# Around half a sentence: "where I live", "when you open".
ABOUT_CLAUSE = (
    "Tell me {s}.", "Do you know {s}?", "Can you tell me {s}?", "Please tell me {s}.", "I want to know {s}.",
    "Say {s}.", "Please say {s}.",
)  # fmt: skip
# What is asked for a second time.
ABOUT_TOLD = (
    *ABOUT_NOUN, "Do you remember {s}?", "What was {s}?", "Do you still know {s}?", "Remind me of {s}.",
)  # fmt: skip
ABOUT_TOLD_CLAUSE = (*ABOUT_CLAUSE, "Do you remember {s}?", "Do you still know {s}?")
# What is looked up with a tool.
LOOK_UP = (
    "What is {s}?", "Tell me {s}.", "Give me {s}.", "Look up {s}.", "Find {s}.", "I need {s}.", "Get {s}.",
    "Can you tell me {s}?", "Please find {s}.", "I want to know {s}.", "Do you know {s}?", "Can you get {s}?", "{s}?",
)  # fmt: skip


def cross(frames: tuple[str, ...], parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return every frame with every part in the place of {s}.

    Their number of frames is odd, so that `Draw.phrase`, which holds out the last of every four, holds out each
    frame with some parts and each part with some frames, and none of them always.
    """
    assert len(frames) % 2 == 1
    return tuple(sentence(frame.replace("{s}", part)) for part in parts for frame in frames)


def sentence(text: str) -> str:
    """Return a text that begins with a capital letter, unless it begins with a place to fill."""
    return text[0].upper() + text[1:]
