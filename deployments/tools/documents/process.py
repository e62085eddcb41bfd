"""The process in which one document is read and cut into chunks, under limits of memory and time. Writes no file.

In, on its standard input: a line of JSON with the limits and sizes, then the document. Out: a letter and what belongs
to it: C and chunks as JSON, U or I and why the file is not supported or not valid.
"""

import json
import resource
import signal
import sys

from deployments.tools.documents.chunks import split
from deployments.tools.documents.readers import InvalidFile, UnsupportedFile, read_document

MAX_OUTPUT_BYTES = 512 * 1024 * 1024
TOO_COSTLY = "The file takes more memory to read than there is for one. Split it, and upload the parts."


def main() -> None:
    """Do what this process is for."""
    source = sys.stdin.buffer
    told = json.loads(source.readline())
    _limit(told["memory_bytes"], told["time_s"])
    try:
        text = read_document(source.read(), told["filename"])
        chunks = split(text, told["size_tokens"], told["overlap_tokens"], told["passage_tokens"])
        answer = b"C" + json.dumps(chunks, ensure_ascii=False).encode("utf-8", "replace")
    except UnsupportedFile as error:
        answer = b"U" + str(error).encode()
    except InvalidFile as error:
        answer = b"I" + str(error).encode()
    except (MemoryError, RecursionError):
        answer = b"I" + TOO_COSTLY.encode()
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()


def _limit(memory_bytes: int, time_s: int) -> None:
    signal.alarm(time_s)  # Ends this process also where whoever started it is gone.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (time_s, time_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_OUTPUT_BYTES, MAX_OUTPUT_BYTES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
