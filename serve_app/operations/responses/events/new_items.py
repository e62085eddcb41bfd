"""The id of a new item, and the seal of a thought, which no event of the engine has.

`state` asks for them. In a response that `resume` replays, each item gets those of the first time.
"""

from collections import deque
from collections.abc import Callable, Iterable

from serve_app.operations.responses.events.writer import Item, new_id

MODELS_OWN = ("message", "reasoning", "function_call")
"""The types of the items that the model writes; all others belong to tools of the service."""


class NewItems:
    """Gives items new ids. Thoughts are sealed with `seal`, if there is one."""

    def __init__(self, seal: Callable[[str], str] | None = None) -> None:
        self._seal = seal

    def new_id(self, prefix: str) -> str:
        """Return the id of the next item of the model's own."""
        return new_id(prefix)

    def seal_reasoning(self, text: str) -> str | None:
        """Return the `encrypted_content` of the next thought, None if it has none."""
        return self._seal(text) if self._seal is not None else None

    def begin_tool(self, item: Item) -> None:
        """Make the next item of a tool the one that was shown before, where there is one."""


class RecordedItems(NewItems):
    """Gives items the ids and seals that the first ones of the response had, then new ones.

    `begun` are those items as they began, `sealed` the seals of those that had one, both in order.
    """

    def __init__(self, begun: Iterable[Item], sealed: Iterable[str], seal: Callable[[str], str] | None = None) -> None:
        super().__init__(seal)
        begun = list(begun)
        self._ids = deque(item["id"] for item in begun if item["type"] in MODELS_OWN)
        self._tools = deque(item for item in begun if item["type"] not in MODELS_OWN)
        self._sealed = deque(sealed)

    def new_id(self, prefix: str) -> str:
        """Return the recorded id of the item, or a new one."""
        return self._ids.popleft() if self._ids else super().new_id(prefix)

    def seal_reasoning(self, text: str) -> str | None:
        """Return the recorded seal of the thought, or a new one."""
        return self._sealed.popleft() if self._sealed else super().seal_reasoning(text)

    def begin_tool(self, item: Item) -> None:
        """Make the item of a tool the recorded one."""
        if self._tools:
            item.clear()
            item.update(self._tools.popleft())
