"""Small tasks with one right answer: sums, counting, repeating, reversing, upper-casing, sorting."""

from collections.abc import Callable

from tests.tools.demo_model.exchange import Exchange, say
from tests.tools.demo_model.phrasings import cross
from tests.tools.demo_model.spelling import in_words
from tests.tools.demo_model.words import Draw

HIGHEST = 20  # Of what is added: small sums are learned by heart, larger ones go to a tool.

_COMPUTE = (
    "What is {s}?", "Compute {s}.", "Calculate {s}.", "Tell me {s}.", "How much is {s}?", "{s}?", "{s} = ?",
    "And {s}?", "Please compute {s}.",
)  # fmt: skip
_DO = ("{s}.", "Can you {s}?", "Please {s}.", "Now {s}.", "I want you to {s}.")
_EVERYDAY = (
    "{s}", "{s} =", "{s}=", "{s} equals", "{s} is", "{s} makes?", "What does {s} give?", "{s}, please", "Solve {s}",
    "What do you get for {s}?", "Can you tell me {s}?", "{s} equals what?", "Work out {s} for me.", "I need {s}",
    "Result of {s}?", "whats {s}", "{s} is what?", "I would like to know {s}", "Quick: {s}", "How much does {s} make?",
    "Tell me what {s} is", "Do you know what {s} is?", "Can you do {s}?", "Please solve {s}", "Math: {s}",
    "What do I get when I do {s}?", "My homework is {s}", "Say what {s} is", "The answer to {s}?", "Give me {s}",
    "{s} comes to what?", "And what is {s}?", "Could you calculate {s}?", "I want the result of {s}",
    "What number is {s}?",
)  # fmt: skip  # fmt: skip
_ADD = (*cross(_COMPUTE, ("{a} + {b}", "{a} plus {b}", "the sum of {a} and {b}")),
        *cross(_DO, ("add {a} and {b}", "add {b} to {a}")),
        *cross(_EVERYDAY, ("{a} + {b}", "{a} plus {b}", "{a} and {b} together", "the total of {a} and {b}",
                           "{a} added to {b}", "the sum {a} + {b}")),
        "I have {a} apples and get {b} more. How many do I have?", "If I have {a} and add {b}, what do I get?",
        "{a} birds sit on a tree and {b} come. How many are there?", "There are {a} and {b} more. How many in all?",
        "I add {b} to {a}. What is it?", "Sum: {a} and {b}", "Put {a} and {b} together.",
        "What number is {b} more than {a}?")  # fmt: skip
_SUBTRACT = (*cross(_COMPUTE, ("{a} - {b}", "{a} minus {b}")),
             *cross(_DO, ("subtract {b} from {a}", "take {b} from {a}")),
             *cross(_EVERYDAY, ("{a} - {b}", "{a} minus {b}", "{a} less {b}", "the difference of {a} and {b}",
                                "{b} taken from {a}", "{a} without {b}")),
             "I have {a} apples and eat {b}. How many are left?", "If I have {a} and take away {b}, what is left?",
             "{a} birds sit on a tree and {b} fly away. How many stay?", "I had {a} coins and lost {b}. What is left?",
             "I take {b} from {a}. What remains?", "There were {a} and {b} are gone. How many are left?",
             "Remove {b} from {a}.", "What number is {b} less than {a}?")  # fmt: skip
_COUNT = cross(_DO, ("count to {b}", "count from 1 to {b}", "count up to {b}", "count from one to {b}",
                     "give me the numbers up to {b}", "list the numbers from 1 to {b}",
                     "say the numbers 1 to {b}"))  # fmt: skip
_COUNT_FROM = (
    "Count from {a} to {b}.", "Count up from {a} to {b}.", "Start at {a} and count to {b}.",
    "Please count from {a} to {b}.", "Can you count from {a} to {b}?", "Give me the numbers from {a} to {b}.",
    "Go from {a} to {b}.", "Say the numbers from {a} to {b}.", "List the numbers from {a} to {b}.",
)  # fmt: skip
_HOW_MANY = ("How many words are these: {x}", "Count the words: {x}", "How many words: {x}", "Count these words: {x}",
             "How many words do you see: {x}", "Tell me how many words: {x}", "Number of words: {x}",
             "How many words are there: {x}")  # fmt: skip
_REPEAT = (
    "Repeat: {x}", "Say: {x}", "Repeat after me: {x}", "Please repeat: {x}", "Echo: {x}", "Write: {x}", "Say {x}",
    "Say this: {x}", "Say the words {x}", "Echo {x}", "Repeat back to me: {x}", "Print {x}", "Just say {x}",
    "Type {x}", "Reply with {x}", "Answer with: {x}", "Output {x}", "Only say {x}", "Repeat these words: {x}",
    "Repeat {x}", "Can you say: {x}", "Please say: {x}",
)  # fmt: skip
_SAID = (
    "I like",
    "the",
    "my name is",
    "we all love",
    "good morning",
    "a model is",
    "you are",
    "this is my",
    "how are you",
)
_REVERSE = (
    "Reverse the word {x}.", "Spell {x} backwards.", "Write {x} backwards.", "What is {x} backwards?", "Reverse {x}.",
    "Turn the word {x} around.", "{x} reversed", "Flip the word {x}.", "What is {x} spelled backwards?",
    "Reverse this word: {x}", "How do you spell {x} backwards?", "What is the reverse of {x}?", "Backwards: {x}",
    "Say {x} in reverse.", "Please reverse the word {x}.", "{x} backwards, please.",
    "Can you reverse {x}?", "Write the word {x} backwards.", "Give me {x} in reverse.", "Spell the word {x} backwards.",
)  # fmt: skip
_UPPER = (
    "Write {x} in capital letters.", "Put {x} in capitals.", "Upper-case the word {x}.", "Write {x} in upper case.",
    "Make {x} upper case.", "{x} in capitals", "{x} in all caps", "Uppercase {x}", "Capitalize every letter of {x}.",
    "Write {x} in big letters.", "What is {x} in capital letters?", "Convert {x} to uppercase.", "Shout {x}.",
    "Turn {x} into capital letters.", "Write the word {x} in capitals.",
    "Please write {x} in capital letters.", "Can you write {x} in capitals?", "Give me {x} in capital letters.",
    "{x} in upper case, please.", "Spell {x} in capital letters.", "Change {x} to upper case.",
)  # fmt: skip
_SORT = cross(
    ("{s} these numbers: {x}", "{s} {x}.", "{s} the numbers {x}.", "{s} by size: {x}", "{s} from small to large: {x}",
     "Please {s} {x}.", "Can you {s} {x}?"),
    ("sort", "order", "arrange", "put in order", "put in ascending order", "sort in ascending order"),
)  # fmt: skip


def small_sum(draw: Draw) -> tuple[str, int]:
    """Return a question for a sum or a difference, and the result."""
    a, b = draw.numbers(2, HIGHEST)
    if draw.chance(0.6):
        return _spelled(draw, draw.phrase(_ADD), a, b), a + b
    a, b = max(a, b), min(a, b)
    return _spelled(draw, draw.phrase(_SUBTRACT), a, b), a - b


def _spelled(draw: Draw, phrase: str, a: int, b: int) -> str:
    """Return a sum as people write it: in training at times without blanks, or with words for numbers."""
    if draw.held_out:
        return phrase.format(a=a, b=b)
    if draw.chance(0.3):
        for sign in "+-":
            phrase = phrase.replace(f" {sign} ", draw.random.choice((sign, sign, f"{sign} ", f" {sign}")))
    write = in_words if draw.chance(0.2) else str
    return phrase.format(a=write(a), b=write(b))


def sum_(draw: Draw) -> Exchange:
    """Ask for a sum or a difference."""
    question, result = small_sum(draw)
    return Exchange(say(draw, question), f"{result}", f"The result is {result}.")


def count(draw: Draw) -> Exchange:
    """Ask to count, or how many words there are."""
    if draw.chance(0.3):
        words = [draw.word() for _ in range(draw.random.randint(2, 6))]
        listed = ", ".join(f"{index}: {word}" for index, word in enumerate(words, 1))
        asked = draw.phrase(_HOW_MANY).format(x=" ".join(words))
        return Exchange(asked, f"{len(words)}", f"{listed}. So {len(words)}.")
    if draw.chance(0.4):
        first, last = 1, draw.random.randint(3, 20)
        asked = draw.phrase(_COUNT).format(b=in_words(last) if draw.chance(0.15) and not draw.held_out else last)
    else:
        while True:
            first = draw.random.randint(2, 30)
            last = first + draw.random.randint(2, 9)
            if draw.allows(first, last):
                break
        asked = draw.phrase(_COUNT_FROM).format(a=first, b=last)
    return Exchange(say(draw, asked), ", ".join(map(str, range(first, last + 1))), f"From {first} to {last}.")


def repeat(draw: Draw) -> Exchange:
    """Ask to repeat words."""
    if draw.chance(0.05):
        return Exchange("Say this is a test.", "This is a test.", "I say it.")
    words = " ".join(draw.word() for _ in range(draw.random.randint(1, 4)))
    if draw.chance(0.2) and not draw.held_out:
        words = f"{draw.random.choice(_SAID)} {words}"
    return Exchange(draw.phrase(_REPEAT).format(x=words), words, f"I repeat: {words}")


def reverse(draw: Draw) -> Exchange:
    """Ask for a word backwards."""
    word = draw.word()
    backwards = word[::-1]
    letters = "-".join(word)
    return Exchange(say(draw, draw.phrase(_REVERSE).format(x=word)), backwards, f"{letters}, backwards.")


def upper(draw: Draw) -> Exchange:
    """Ask for a word in capital letters."""
    word = draw.word()
    return Exchange(say(draw, draw.phrase(_UPPER).format(x=word)), word.upper(), f"{word} in capital letters.")


def sort(draw: Draw) -> Exchange:
    """Ask for three numbers in order."""
    numbers = draw.distinct(3, 99)
    low, middle, high = sorted(numbers)
    asked = draw.phrase(_SORT).format(x=", ".join(map(str, numbers)))
    thought = f"The smallest is {low}, the largest is {high}."
    return Exchange(say(draw, asked), f"{low}, {middle}, {high}", thought)


# Sums take the most practice.
TASKS: tuple[Callable[[Draw], Exchange], ...] = (sum_, sum_, sum_, count, repeat, reverse, upper, sort, sort)


def task(draw: Draw) -> Exchange:
    """Ask for any of the tasks."""
    return draw.random.choice(TASKS)(draw)
