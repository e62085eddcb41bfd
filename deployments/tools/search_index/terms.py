"""The words of a text as the index keeps them: as codes that only the store's key creates, so that none can be read.

The full-text index counts and compares codes instead of words. It reveals how often codes occur, and which occur
together, but no word.
"""

import base64
import hmac
import re
import unicodedata
from collections.abc import Iterable, Iterator

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[぀-ヿ㐀-鿿가-힯฀-๿]")
_CODE_BYTES = 6


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a text as a search compares them: in lower case, English plurals as singulars.

    Scripts without spaces come letter by letter.
    """
    for found in _WORD.finditer(unicodedata.normalize("NFKC", text).casefold()):
        word = found[0]
        if _UNSPACED.search(word):
            yield from word
        else:
            yield _singular(word)


def _singular(word: str) -> str:
    """Return a word without the ending of an English plural (Harman's "S" stemmer)."""
    if len(word) < 4 or not word.endswith("s"):
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return word[:-3] + "y"
    if word.endswith("es") and not word.endswith(("aes", "ees", "oes")):
        return word[:-1]
    return word if word.endswith(("us", "ss")) else word[:-1]


_QUESTION_WORDS = (
    "a an and are as at be by can could do does did for from had has have how i if in is it its may me my of on or our "
    "shall should so than that the their them then there these they this those to under was we were what when where "
    "which while who whom whose why will with would you your"
)
_OF_QUESTIONS = frozenset(words_of(_QUESTION_WORDS))
"""Words that only form a question: documents rarely contain them, so they would weigh too much."""


class TermCoder:
    """Turns words into codes under the key of one store."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known: dict[str, str] = {}

    def code(self, text: str) -> str:
        """Return the codes of all words of a text, in order, with spaces between them."""
        return " ".join(self._codes(words_of(text)))

    def code_query(self, text: str) -> str:
        """Return the codes of a query's words, each once, without the words that only form a question."""
        words = list(dict.fromkeys(words_of(text)))
        telling = [word for word in words if word not in _OF_QUESTIONS]
        return " ".join(self._codes(telling or words))

    def _codes(self, words: Iterable[str]) -> Iterator[str]:
        for word in words:
            code = self._known.get(word)
            if code is None:
                digest = hmac.digest(self._key, word.encode(), "sha256")[:_CODE_BYTES]
                code = self._known[word] = base64.b16encode(digest).decode()
            yield code
