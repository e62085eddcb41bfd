"""Reads one document and cuts it into chunks; `reading` runs it in a bounded process. Writes no file.

In, on its standard input: a line of JSON with the file's name and the sizes of chunks, then the document. Out: C and
the chunks as JSON, or U or I and why the file is not supported or not valid.
"""

import json
import sys

from deployments.tools.documents.chunks import split
from deployments.tools.documents.readers import InvalidFile, UnsupportedFile, read_document

TOO_COSTLY = "The file takes more memory to read than there is for one. Split it, and upload the parts."


def main() -> None:
    """Read a document, write its chunks."""
    source = sys.stdin.buffer
    options = json.loads(source.readline())
    try:
        text = read_document(source.read(), options["filename"])
        chunks = split(text, options["size_tokens"], options["overlap_tokens"], options["passage_tokens"])
        answer = b"C" + json.dumps(chunks, ensure_ascii=False).encode("utf-8", "replace")
    except UnsupportedFile as error:
        answer = b"U" + str(error).encode()
    except InvalidFile as error:
        answer = b"I" + str(error).encode()
    except (MemoryError, RecursionError):
        answer = b"I" + TOO_COSTLY.encode()
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
