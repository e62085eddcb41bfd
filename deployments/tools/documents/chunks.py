"""Reads a document and cuts it into chunks, which a search returns and the model reads.

`reading` runs `main` in a bounded process. In, on its standard input: a line of JSON with the file's name and the sizes
of chunks, then the document. Out: C and the chunks as JSON, or U or I and why the file is not supported or not valid.
Writes no file.

Tokens are estimated, as models have different tokenizers: a short word, a piece of a long word, three digits, a sign,
or a letter of a script without spaces counts as one token.
"""

import json
import re
import sys
from array import array
from itertools import islice
from typing import NamedTuple

from deployments.tools.documents.readers import TOO_LONG, InvalidFile, UnsupportedFile, read_document

_TOO_COSTLY = "The file takes more memory to read than there is for one. Split it, and upload the parts."
MAX_TOKENS = 5_000_000
"""OpenAI's limit for a file in a vector store."""

_TOKEN = re.compile(r"[A-Za-z]{1,8}|\d{1,3}|_|[^\W\d_A-Za-z]{1,2}|[^\w\s]")
_SENTENCE = re.compile(r"[.!?。！？]\s*$")  # noqa: RUF001 - other scripts end sentences so.


class Chunk(NamedTuple):
    """A piece of a text, and where its passages start: the parts that an embedding model reads one by one."""

    text: str
    starts: list[int]
    num_tokens: int

    def passages(self) -> list[str]:
        """Return the passages, in order; together they are the chunk."""
        ends = [*self.starts[1:], len(self.text)]
        return [self.text[start:end] for start, end in zip(self.starts, ends, strict=True)]


def split(text: str, size_tokens: int, overlap_tokens: int, passage_tokens: int) -> list[Chunk]:
    """Return the chunks of a text: at most `size_tokens` long, each repeats `overlap_tokens` of the chunk before.

    A chunk ends with a paragraph, a line or a sentence, if one ends in its last quarter. At most half of a shorter
    chunk is repeated: all chunks together have at most twice the tokens of the text. Passages have at most
    `passage_tokens`.

    Raises:
        InvalidFile: the text has more than MAX_TOKENS.
    """
    starts = array("Q", (found.start() for found in islice(_TOKEN.finditer(text), MAX_TOKENS + 1)))
    if len(starts) > MAX_TOKENS:
        raise InvalidFile(TOO_LONG)
    chunks = []
    first, num_tokens = 0, len(starts)
    while first < num_tokens:
        last = min(first + size_tokens, num_tokens)
        if last < num_tokens:
            last = _best_end(text, starts, first + (3 * size_tokens + 3) // 4, last)
        begin = 0 if first == 0 else starts[first]
        end = len(text) if last == num_tokens else starts[last]
        piece = text[begin:end].rstrip()
        num_passages = -(-(last - first) // passage_tokens)
        cuts = [first + number * (last - first) // num_passages for number in range(num_passages)]
        chunks.append(Chunk(piece, [0, *(starts[cut] - begin for cut in cuts[1:])], last - first))
        if last == num_tokens:
            break
        first = last - min(overlap_tokens, (last - first) // 2)
    return chunks


def _best_end(text: str, starts: "array[int]", least: int, most: int) -> int:
    """Return the token before which a chunk should end."""
    best, best_rank = most, 0
    for token in range(most, least, -1):
        between = text[starts[token - 1] : starts[token]]
        if "\n\n" in between:
            return token
        rank = 2 if "\n" in between else 1 if _SENTENCE.search(between) else 0
        if rank > best_rank:
            best, best_rank = token, rank
    return best


def main() -> None:
    """Read a document, write its chunks."""
    source = sys.stdin.buffer
    options = json.loads(source.readline())
    try:
        text = read_document(source.read(), options["filename"])
        chunks = split(text, options["size"], options["overlap"], options["passage"])
        answer = b"C" + json.dumps(chunks, ensure_ascii=False).encode("utf-8", "replace")
    except UnsupportedFile as error:
        answer = b"U" + str(error).encode()
    except InvalidFile as error:
        answer = b"I" + str(error).encode()
    except (MemoryError, RecursionError):
        answer = b"I" + _TOO_COSTLY.encode()
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
