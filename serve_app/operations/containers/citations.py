"""Citations of the files that code wrote in containers: where the text of a message links to them."""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from deployments.tools.code_interpreter.messages import ContainerFile
from deployments.tools.sandbox.root import WORK_FOLDER
from serve_app.operations.responses.events.writer import Item

_FOLDER = re.compile(rf"(?:sandbox:)?{re.escape(WORK_FOLDER)}/")
_GOES_ON = re.compile(r"[\w/-]|\.\w")


class WrittenFiles:
    """The files that the code of one response wrote, by path, and those that no message has cited yet."""

    def __init__(self) -> None:
        self._written: dict[str, tuple[str, ContainerFile]] = {}
        self._uncited: dict[str, None] = {}

    def add(self, container_id: str, files: Iterable[ContainerFile]) -> None:
        """Add the files that a call wrote."""
        for file in files:
            self._written[file.path] = (container_id, file)
            self._uncited[file.path] = None

    def clear(self) -> None:
        """Forget every file: the container has ended."""
        self._written.clear()
        self._uncited.clear()

    def to_json(self) -> dict[str, Any]:
        """Return the state that `recall` restores in another process."""
        written = [(container_id, asdict(file)) for container_id, file in self._written.values()]
        return {"written": written, "uncited": list(self._uncited)}

    def recall(self, cites: dict[str, Any]) -> None:
        """Restore the files of another process."""
        files = [(container_id, ContainerFile(**file)) for container_id, file in cites["written"]]
        self._written = {file.path: (container_id, file) for container_id, file in files}
        self._uncited = dict.fromkeys(cites["uncited"])

    def cite(self, text: str) -> list[Item]:
        """Return citations of the files that a message links to, and, once, of others that were written.

        The others are cited at 0, as the text has no place for them.
        """
        found = list(_links(text, self._written))
        linked = {path for path, _, _ in found}
        if text:
            found = [(path, 0, 0) for path in self._uncited if path not in linked] + found
            self._uncited.clear()
        return [_citation(*self._written[path], start, end) for path, start, end in found]


def _links(text: str, paths: Collection[str]) -> Iterator[tuple[str, int, int]]:
    """Yield the places where a text names files of the work folder, the longest name that matches."""
    lengths = sorted({len(path) for path in paths}, reverse=True)
    for begun in _FOLDER.finditer(text):
        start = begun.end()
        for length in lengths:
            path = text[start : start + length]
            end = start + len(path)
            if path in paths and _GOES_ON.match(text, end) is None:
                yield path, begun.start(), end
                break


def _citation(container_id: str, file: ContainerFile, start: int, end: int) -> Item:
    return {
        "type": "container_file_citation",
        "container_id": container_id,
        "file_id": file.file_id,
        "filename": file.path.rpartition("/")[2],
        "start_index": start,
        "end_index": end,
    }
