"""What the dialogues talk about: names, cities, words and numbers, each in a part for training and a part held out.

What is held out is never trained on: the evaluation asks about nothing else. Numbers and invented words are
split by a rule instead of a list, because there are too many to write down.
"""

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pool:
    """Things of one kind, in the two parts."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]


def _pool(train: str, held_out: str) -> Pool:
    return Pool(tuple(train.split()), tuple(held_out.split()))


NAMES = _pool(
    "Anna Boris Clara David Emma Felix Greta Hugo Irene Jonas Karla Leon Maria Nadia Oscar Paula Quentin Rosa Simon "
    "Tilda Ursula Viktor Wanda Xenia Yusuf Zora Amir Bella Chen Dora Elias Fatima Goran Hana Ivan Jana Kofi Lena "
    "Milan Nora Olga Pedro Ravi Sofia Tomas Uma Vera Walter Yara Zeno Alice Bruno Cecil Diego Edith Frank Gloria",
    "Agnes Bastian Carmen Dmitri Esther Florian Giulia Henrik Ines Jakob Keiko Lars Miriam Nils Ottilie Piotr",
)
CITIES = _pool(
    "Paris Berlin Madrid Rome Vienna Lisbon Dublin Athens Prague Warsaw Oslo Helsinki Cairo Lagos Nairobi Delhi "
    "Mumbai Tokyo Osaka Seoul Beijing Hanoi Manila Sydney Perth Boston Chicago Denver Dallas Lima Bogota Quito "
    "Geneva Zurich Munich Hamburg Lyon Turin Naples Porto Seville Tunis Accra Dakar Tehran Baku Riga Vilnius",
    "Krakow Tallinn Valencia Toulouse Kyoto Montreal Havana Santiago Ankara Jakarta Bergen Leipzig",
)
THINGS = _pool(
    "planet garden river silver castle window orange basket candle forest guitar hammer island jacket kitten ladder "
    "marble needle pencil rabbit saddle tunnel velvet wagon yellow zebra bottle carpet dragon engine falcon ginger "
    "bread cloud drum eagle flute grape horse ivory lemon mango onion piano queen robot stone tiger violin whale",
    "anchor button cherry dolphin ember feather glacier helmet jungle kettle lantern mirror nutmeg pebble shadow",
)
TOPICS = _pool(
    "tea chess jazz rain bees ships maps salt glass wool bridges owls clocks kites volcanoes comets coral tigers",
    "windmills lighthouses glaciers falcons pottery beavers",
)
NOUNS = _pool(
    "address age birthday colour status score rating salary team height weight owner author language currency flag "
    "mayor temperature stock balance deadline title rank speed size hobby job office manager seat room plan",
    "altitude budget nickname department discount warranty mileage",
)
_SYLLABLES = [
    "ba",
    "co",
    "di",
    "fu",
    "ga",
    "he",
    "ji",
    "ka",
    "lo",
    "mi",
    "nu",
    "pe",
    "qui",
    "ra",
    "so",
    "ta",
    "ve",
    "wo",
    "xi",
    "ya",
    "zu",
    "bra",
    "cle",
    "dro",
    "fri",
    "gle",
    "tram",
    "sto",
    "plin",
    "mer",
]
_LETTERS = "etaoinshrdlcumwfgypbvkjxqz"
_FREQUENCIES = (12, 9, 8, 8, 7, 7, 6, 6, 6, 5, 5, 4, 4, 4, 3, 3, 3, 3, 3, 3, 2, 2, 1, 1, 1, 1)
_ENDINGS = ("", "n", "r", "s", "l", "t", "x", "nd", "m")


def invented_words() -> set[str]:
    """Return every word that may be invented from one or two syllables."""
    starts = [*_SYLLABLES, *(first + second for first in _SYLLABLES for second in _SYLLABLES)]
    return {start + ending for start in starts for ending in _ENDINGS}


def is_held_out(*values: object) -> bool:
    """Return whether numbers belong to the held-out part: about one in ten does."""
    return zlib.crc32("/".join(map(str, values)).encode()) % 10 == 0


class Draw:
    """A source of random choices that keeps to one part of everything."""

    def __init__(self, seed: int, *, held_out: bool) -> None:
        self.random = random.Random(seed)
        self.held_out = held_out

    def of(self, pool: Pool) -> str:
        """Return one thing of a pool."""
        return self.random.choice(pool.held_out if self.held_out else pool.train)

    def phrase(self, phrasings: Sequence[T]) -> T:
        """Return one of several ways to say the same; the last of every four is held out."""
        num_held_out = len(phrasings) // 4
        if self.held_out:
            return phrasings[self.random.randrange(num_held_out) * 4 + 3]
        index = self.random.randrange(len(phrasings) - num_held_out)
        return phrasings[index + index // 3]

    def name(self) -> str:
        """Return a person's name; in training often an invented one, so that letters are copied and not recalled."""
        if self.held_out or self.random.random() < 0.5:
            return self.of(NAMES)
        return self._invented(NAMES).capitalize()

    def city(self) -> str:
        """Return a city; in training often an invented one."""
        if self.held_out or self.random.random() < 0.5:
            return self.of(CITIES)
        return self._invented(CITIES).capitalize()

    def word(self) -> str:
        """Return a word in lower case; in training often an invented one."""
        if self.held_out or self.random.random() < 0.3:
            return self.of(THINGS)
        return self._invented(THINGS)

    def _invented(self, pool: Pool) -> str:
        while True:
            if self.chance(0.6):  # Without rhyme or reason, so that nothing but the letters themselves can be learned.
                word = "".join(self.random.choices(_LETTERS, _FREQUENCIES, k=self.random.randint(3, 9)))
            else:
                syllables = self.random.choices(_SYLLABLES, k=self.random.randint(1, 3))
                word = "".join(syllables) + self.random.choice(_ENDINGS)
            if self.chance(0.25):  # Doubled letters are the hardest to copy.
                doubled = self.random.randrange(len(word))
                word = word[: doubled + 1] + word[doubled:]
            if 3 <= len(word) <= 9 and word.capitalize() not in pool.held_out and word not in pool.held_out:
                return word

    def allows(self, *numbers: int) -> bool:
        """Return whether numbers are of this part."""
        return is_held_out(*numbers) == self.held_out

    def numbers(self, count: int, highest: int) -> tuple[int, ...]:
        """Return numbers from 1 to `highest` that are held out together, or trained on together."""
        while True:
            numbers = tuple(self._number(highest) for _ in range(count))
            if self.allows(*numbers):
                return numbers

    def _number(self, highest: int) -> int:
        number = self.random.randint(1, highest)
        if highest < 99 or self.held_out:
            return number
        if self.chance(0.15):  # In training small numbers come more often among large ones than chance has it.
            return self.random.randint(1, 9)
        if not self.chance(0.15):
            return number
        digits = str(number)  # In training doubled digits come more often: they are the hardest to copy.
        place = self.random.randrange(len(digits))
        doubled = int(digits[: place + 1] + digits[place] + digits[place + 2 :])
        return doubled if doubled <= highest else number

    def distinct(self, count: int, highest: int) -> tuple[int, ...]:
        """Return numbers as `numbers` does, no two the same."""
        while True:
            numbers = self.numbers(count, highest)
            if len(set(numbers)) == count:
                return numbers

    def chance(self, probability: float) -> bool:
        """Return true with a probability."""
        return self.random.random() < probability
