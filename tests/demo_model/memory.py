"""Remembering: what was told earlier is asked for later, with other talk between."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.demo_model.exchange import Exchange, say
from tests.demo_model.words import Draw


@dataclass(frozen=True, slots=True)
class Memory:
    """A thing to remember: how it is told and asked for, what is said to it, what is answered."""

    tell: tuple[str, ...]
    reply: str
    ask: tuple[str, ...]
    answer: str
    draw: Callable[[Draw], str]


def _number(draw: Draw) -> str:
    return str(draw.numbers(1, 999)[0])


MEMORIES = (
    Memory(
        ("My name is {x}.", "I am {x}.", "I am called {x}.", "Call me {x}.", "Hello, my name is {x}.", "Hi, I am {x}!",
         "People call me {x}.", "Hi, my name is {x}.", "Hello, I am {x}.", "My friends call me {x}.",
         "Good morning, my name is {x}.", "I go by {x}."),
        "Nice to meet you, {x}!",
        ("What is my name?", "What am I called?", "Do you remember my name?", "Tell me my name.", "Who am I?",
         "Say my name.", "What was my name?", "Do you know my name?", "Which name did I tell you?", "And my name?",
         "What is my name again?", "Can you tell me my name?", "What did I say my name is?", "Please say my name.",
         "Do you still know my name?", "What do people call me?"),
        "Your name is {x}.", Draw.name),
    Memory(
        ("I live in {x}.", "My home is in {x}.", "I am from {x}.", "My city is {x}.", "I come from {x}.",
         "My house is in {x}.", "My home town is {x}.", "I moved to {x}."),
        "{x} is a fine city.",
        ("Where do I live?", "Which city do I live in?", "What is my city?", "In which city do I live?",
         "Where is my home?", "Where am I from?", "Do you remember where I live?", "Name my city.",
         "Tell me where I live.", "What city do I live in?", "And where do I live?", "Do you know where I live?",
         "Which city did I tell you?", "What is my home town?", "Tell me my city.", "Which city am I from?"),
        "You live in {x}.", Draw.city),
    Memory(
        ("My number is {x}.", "Remember the number {x}.", "My lucky number is {x}.", "Keep the number {x} in mind.",
         "The number is {x}.", "Please remember {x}.", "Note the number {x}.", "Store the number {x}."),
        "I will remember {x}.",
        ("What is my number?", "Which number did I tell you?", "What was the number?", "Tell me my number.",
         "Do you remember the number?", "Say the number.", "Which number was it?", "What number did I give you?",
         "What is the number?", "Tell me the number.", "Do you know my number?", "And the number?",
         "What number did I tell you?", "What was my number?", "Say my number.", "Which number is mine?"),
        "The number is {x}.", _number),
    Memory(
        ("My dog is called {x}.", "I have a dog, {x}.", "My dog's name is {x}.", "The name of my dog is {x}.",
         "I have a dog called {x}.", "Our dog is {x}.", "I walk my dog {x}.", "We have a dog, its name is {x}."),
        "{x} is a good name for a dog.",
        ("What is my dog called?", "What is the name of my dog?", "What is my dog's name?", "Tell me my dog's name.",
         "Do you remember my dog?", "Which name has my dog?", "Name my dog.", "What was my dog's name?",
         "And my dog?", "Do you know my dog's name?", "Say the name of my dog.", "How is my dog called?"),
        "Your dog is called {x}.", Draw.name),
    Memory(
        ("My friend is {x}.", "I have a friend, {x}.", "My best friend is {x}.", "My friend is called {x}.",
         "The name of my friend is {x}.", "I met my friend {x}.", "My old friend is {x}.", "{x} is my friend."),
        "{x} must be nice.",
        ("Who is my friend?", "What is my friend called?", "What is the name of my friend?", "Name my friend.",
         "Do you remember my friend?", "Tell me who my friend is.", "What is my friend's name?", "And my friend?",
         "Who was my friend?", "Do you know my friend?", "Say my friend's name.", "Who is my best friend?"),
        "Your friend is {x}.", Draw.name),
    Memory(
        ("The password is {x}.", "The secret word is {x}.", "Remember the word {x}.", "The code word is {x}.",
         "The word is {x}.", "Please keep the word {x}."),
        "I keep the word {x}.",
        ("What is the password?", "What is the secret word?", "Which word did I tell you?", "What was the word?",
         "Tell me the word.", "What is the word?", "Say the word.", "Do you remember the word?",
         "Tell me the password.", "Do you know the word?", "And the word?", "What was the password?"),
        "The word is {x}.", Draw.word),
)  # fmt: skip


def tell(draw: Draw, memory: Memory, value: str) -> Exchange:
    """Tell the model something."""
    told = say(draw, draw.phrase(memory.tell).format(x=value))
    return Exchange(told, memory.reply.format(x=value), "The user tells me something. I remember it.")


def ask(draw: Draw, memory: Memory, value: str) -> Exchange:
    """Ask for what was told."""
    asked = say(draw, draw.phrase(memory.ask))
    return Exchange(asked, memory.answer.format(x=value), f"The user told me: {value}.", (value,))


def remembered(draw: Draw, num_things: int, between: Callable[[Draw], Exchange], num_between: int) -> list[Exchange]:
    """Return exchanges that tell things, talk of others, and ask for all of them at the end, in any order."""
    memories = [(memory, memory.draw(draw)) for memory in draw.random.sample(MEMORIES, num_things)]
    exchanges = [tell(draw, memory, value) for memory, value in memories]
    for _ in range(num_between):
        exchanges.insert(draw.random.randint(1, len(exchanges)), between(draw))
    draw.random.shuffle(memories)
    return exchanges + [ask(draw, memory, value) for memory, value in memories]
