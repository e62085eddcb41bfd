"""Remembering: what was told earlier is asked for later, with other talk between."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.tools.demo_model.exchange import Exchange, say
from tests.tools.demo_model.phrasings import ABOUT_TOLD, ABOUT_TOLD_CLAUSE, cross
from tests.tools.demo_model.words import NOUNS, Draw


@dataclass(frozen=True, slots=True)
class Memory:
    """A thing to remember: sentences that say it and ask for it, the reply to either."""

    tell: tuple[str, ...]
    reply: str
    ask: tuple[str, ...]
    answer: str
    draw: Callable[[Draw], str]


def _number(draw: Draw) -> str:
    return str(draw.numbers(1, 999)[0])


def _asks(nouns: tuple[str, ...], clauses: tuple[str, ...], *direct: str) -> tuple[str, ...]:
    return cross(ABOUT_TOLD, nouns) + cross(ABOUT_TOLD_CLAUSE, clauses) + cross(("{s}", "And {s}", "So {s}"), direct)


def _tells(*statements: str) -> tuple[str, ...]:
    return cross(("{s}", "Hello, {s}", "Hi, {s}", "You should know: {s}", "Good morning, {s}"), statements)


NAME = Memory(
    _tells("my name is {x}.", "I am {x}.", "I am called {x}.", "call me {x}.", "people call me {x}.",
           "my friends call me {x}.", "I go by {x}.", "you can call me {x}.", "they call me {x}.", "it is {x} here.",
           "its {x} here.", "im {x} btw.", "{x} here.", "this is {x}.", "I am {x} by the way.", "the name is {x}.",
           "my name is {x}, nice to meet you.", "I am {x}, nice to meet you.", "just call me {x}.",
           "everyone calls me {x}.", "remember my name: {x}.", "my first name is {x}.", "you are talking to {x}."),
    "Nice to meet you, {x}!",
    _asks(("my name", "my own name", "the name I told you", "my first name"),
          ("who I am", "what I am called", "what my name is", "what people call me", "what I said my name was",
           "which name is mine", "which name I gave you", "what my first name is"),
          "who am I?", "what am I called?", "what do people call me?", "what do my friends call me?",
          "which name did I tell you?", "what did I say my name is?", "how am I called?",
          "what did I tell you my name was?", "do you recall my name?", "can you recall my name?",
          "did you forget my name?", "have you forgotten my name?", "do you still remember my name?",
          "you remember my name?", "my name is what?", "which name is mine?", "who am I again?",
          "have I told you my name?", "what did I call myself?", "how did I introduce myself?"),
    "Your name is {x}.", Draw.name)  # fmt: skip
MEMORIES = (
    NAME,
    Memory(
        _tells("I live in {x}.", "my home is in {x}.", "I am from {x}.", "my city is {x}.", "I come from {x}.",
               "my house is in {x}.", "my home town is {x}.", "I moved to {x}.", "my home is {x}.",
               "I am living in {x}.", "im from {x}.", "im living in {x} btw.", "I live in {x} now.",
               "I am based in {x}.", "I am in {x}.", "I am from {x} by the way.", "I just moved to {x}.",
               "I am at home in {x}.", "greetings from {x}.", "I am writing from {x}."),
        "{x} is a fine city.",
        _asks(("my city", "my home town", "the city I live in", "the city I am from", "my home"),
              ("where I live", "where I am from", "where my home is", "which city I live in", "what city I live in",
               "which city I am from", "where I come from", "which city I told you"),
              "where do I live?", "which city do I live in?", "where is my home?", "where am I from?",
              "what city do I live in?", "which city am I from?", "in which city do I live?",
              "which city did I tell you?", "where do I come from?", "where did I say I live?",
              "where did I say I am from?", "what did I say my city is?", "what city am I from?",
              "what city am I in?", "which city am I in?", "where am I living?", "do you recall where I live?",
              "did you forget where I live?", "what city did I tell you?", "have I told you where I live?",
              "what town do I live in?"),
        "You live in {x}.", Draw.city),
    Memory(
        _tells("my number is {x}.", "remember the number {x}.", "my lucky number is {x}.",
               "keep the number {x} in mind.", "the number is {x}.", "please remember {x}.", "note the number {x}.",
               "store the number {x}.", "keep {x} in mind.", "please note the number {x}.", "remember {x}.",
               "remember this number: {x}.", "can you remember the number {x}?", "please remember the number {x}.",
               "my favorite number is {x}.", "do not forget the number {x}.", "do not forget {x}.",
               "memorize the number {x}.", "here is my number: {x}.", "save the number {x}.",
               "I picked the number {x}."),
        "I will remember {x}.",
        _asks(("my number", "the number", "the number I told you", "my lucky number", "the number I gave you",
               "the number from before"),
              ("which number it was", "what number I told you", "which number is mine", "which number I gave you",
               "what number it was", "what my number is", "what the number was", "which number you keep"),
              "which number did I tell you?", "what number did I give you?", "which number was it?",
              "what number was it?", "what number did I tell you?", "which number is mine?",
              "which number did I give you?", "what number is mine?", "which number did I say?",
              "what number did I say?", "do you recall the number?", "did you forget the number?",
              "do you still have the number?", "what was that number?", "which number do you keep?",
              "which number should you remember?", "what number did I ask you to remember?",
              "which number did I want you to remember?", "have I told you a number?"),
        "The number is {x}.", _number),
    Memory(
        _tells("my dog is called {x}.", "I have a dog, {x}.", "my dog's name is {x}.", "the name of my dog is {x}.",
               "I have a dog called {x}.", "our dog is {x}.", "I walk my dog {x}.", "my dog is {x}.",
               "our dog is called {x}.", "I have a dog named {x}.", "my dog is named {x}.", "I got a dog, {x}.",
               "my dogs name is {x}.", "I call my dog {x}.", "we call our dog {x}.", "I own a dog called {x}.",
               "my puppy is called {x}.", "I just got a dog named {x}.", "{x} is my dog.",
               "{x} is the name of my dog."),
        "{x} is a good name for a dog.",
        _asks(("my dog", "my dog's name", "the name of my dog", "the name of our dog", "the dog's name"),
              ("what my dog is called", "how my dog is called", "which name my dog has", "what my dog's name is",
               "what I call my dog", "who my dog is", "what name my dog has"),
              "what is my dog called?", "how is my dog called?", "which name has my dog?", "who is my dog?",
              "what do I call my dog?", "what did I say my dog is called?", "which name does my dog have?",
              "what name does my dog have?", "what is my dog named?", "what is our dog called?",
              "do you recall my dog's name?", "did you forget my dog's name?",
              "what did I tell you my dog is called?", "have I told you my dog's name?", "what was my dog called?"),
        "Your dog is called {x}.", Draw.name),
    Memory(
        _tells("my friend is {x}.", "I have a friend, {x}.", "my best friend is {x}.", "my friend is called {x}.",
               "the name of my friend is {x}.", "I met my friend {x}.", "my old friend is {x}.", "{x} is my friend.",
               "I have a friend called {x}.", "I have a friend named {x}.", "my friend is named {x}.",
               "my friend's name is {x}.", "my friends name is {x}.", "my best friend is called {x}.",
               "my best friend's name is {x}.", "{x} is my best friend.", "{x} is a friend of mine.",
               "my good friend is {x}.", "a friend of mine is {x}.", "I am friends with {x}."),
        "{x} must be nice.",
        _asks(("my friend", "my friend's name", "the name of my friend", "my best friend", "my best friend's name"),
              ("who my friend is", "what my friend is called", "how my friend is called", "who my best friend is",
               "what my friend's name is", "which name my friend has"),
              "who is my friend?", "what is my friend called?", "who was my friend?", "who is my best friend?",
              "how is my friend called?", "what did I say my friend is called?", "which friend did I tell you about?",
              "which name does my friend have?", "what is my friend named?", "what is my best friend called?",
              "do you recall my friend's name?", "did you forget my friend's name?", "who did I say my friend is?",
              "have I told you my friend's name?"),
        "Your friend is {x}.", Draw.name),
    Memory(
        _tells("the password is {x}.", "the secret word is {x}.", "remember the word {x}.", "the code word is {x}.",
               "the word is {x}.", "please keep the word {x}.", "keep the word {x}.", "my password is {x}.",
               "my secret word is {x}.", "please remember the word {x}.", "remember this word: {x}.",
               "can you remember the word {x}?", "do not forget the word {x}.", "memorize the word {x}.",
               "note the word {x}.", "my code word is {x}.", "our secret word is {x}.", "our password is {x}.",
               "the magic word is {x}.", "keep this word in mind: {x}."),
        "I keep the word {x}.",
        _asks(("the password", "the secret word", "the word", "my secret word", "my password", "the code word",
               "the word I told you"),
              ("which word it was", "what word I told you", "which word I gave you", "what word it was",
               "what the word was", "which word you keep", "what the password is"),
              "which word did I tell you?", "what word did I give you?", "which word was it?", "what word was it?",
              "what word did I tell you?", "which word did I give you?", "which word did I say?",
              "what word did I say?", "do you recall the word?", "did you forget the word?", "what was that word?",
              "which word do you keep?", "which word should you remember?", "what word did I ask you to remember?",
              "do you still have the password?", "did you forget the password?"),
        "The word is {x}.", Draw.word),
)  # fmt: skip


UNTOLD = "You have not told me that."


def _own(draw: Draw) -> Memory:
    """Return something of one's own, of as many kinds as there are nouns."""
    noun = draw.random.choice(("{n}", "{n}", "favorite {n}", "new {n}")).replace("{n}", draw.of(NOUNS))
    return Memory(
        (f"My {noun} is {{x}}.", f"Remember that my {noun} is {{x}}.", f"The name of my {noun} is {{x}}.",
         f"You should know: my {noun} is {{x}}.", f"Remember my {noun}: {{x}}.", f"{{x}} is my {noun}.",
         f"Please remember that my {noun} is {{x}}.", f"By the way, my {noun} is {{x}}."),
        "I will remember that.",
        (f"What is my {noun}?", f"Tell me my {noun}.", f"Do you remember my {noun}?", f"And my {noun}?",
         f"What was my {noun}?", f"What is my {noun} again?", f"What did I say my {noun} is?",
         f"What did I tell you my {noun} was?"),
        f"Your {noun} is {{x}}.", draw.random.choice((Draw.word, Draw.name)))  # fmt: skip


def tell(draw: Draw, memory: Memory, value: str) -> Exchange:
    """Tell the model something."""
    told = say(draw, draw.phrase(memory.tell)).format(x=value)
    return Exchange(told, memory.reply.format(x=value), "The user tells me something. I remember it.")


def ask(draw: Draw, memory: Memory, value: str) -> Exchange:
    """Ask for what was told."""
    asked = say(draw, draw.phrase(memory.ask))
    return Exchange(asked, memory.answer.format(x=value), f"The user told me: {value}.", (value,))


def ask_untold(draw: Draw) -> Exchange:
    """Ask for what was never told."""
    memory = _own(draw) if draw.chance(0.3) else draw.random.choice(MEMORIES)
    return Exchange(say(draw, draw.phrase(memory.ask)), UNTOLD, "The user has not told me that.")


def remembered(draw: Draw, num_things: int, between: Callable[[Draw], Exchange], num_between: int) -> list[Exchange]:
    """Return exchanges that tell things, talk of others, and ask for all of them at the end, in any order."""
    kinds = draw.random.sample(MEMORIES, num_things)
    if draw.chance(0.2):
        kinds[0] = _own(draw)
    memories = [(memory, memory.draw(draw)) for memory in kinds]
    if draw.chance(0.06) and not draw.held_out:
        memories = [(memory, value.lower()) for memory, value in memories]
    exchanges = [tell(draw, memory, value) for memory, value in memories]
    for _ in range(num_between):
        exchanges.insert(draw.random.randint(1, len(exchanges)), between(draw))
    draw.random.shuffle(memories)
    return exchanges + [ask(draw, memory, value) for memory, value in memories]
