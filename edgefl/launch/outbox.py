"""Messages to a reader that may be slow or away; no I/O."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

MOST_PENDING = 1 << 20  # bytes of lines that may be dropped
MOST_UNREAD = 1000
Item = TypeVar("Item")


class Unread(Generic[Item]):
    """The last MOST_UNREAD items for another thread: a host must not fill this machine's memory."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque(maxlen=MOST_UNREAD)

    def put(self, item: Item) -> None:
        self._items.append(item)

    def take(self) -> list[Item]:
        """Return the items since the last call; for one reader."""
        return [self._items.popleft() for _ in range(len(self._items))]


class Outbox:
    """Messages that wait for their reader. Lines of text are dropped if too many wait."""

    def __init__(self, most_bytes: int = MOST_PENDING) -> None:
        self.most_bytes = most_bytes
        self.dropped = 0
        self._waiting: deque[tuple[bytes, bool]] = deque()  # (message, may be dropped)
        self._droppable = 0  # bytes of them
        self._begun = 0  # bytes of the first message that are sent

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, message: bytes, may_drop: bool = False, first: bool = False) -> None:
        """Add a message. ``first``: before all others, which works only between two messages."""
        if may_drop:
            if self._droppable + len(message) > self.most_bytes:
                self.dropped += 1
                return
            self._droppable += len(message)
        if first:
            assert not self._begun
            self._waiting.appendleft((message, may_drop))
        else:
            self._waiting.append((message, may_drop))

    def next(self) -> bytes:
        """The bytes to be sent next."""
        return self._waiting[0][0][self._begun :]

    def sent(self, size_bytes: int) -> None:
        """This many of them were sent."""
        self._begun += size_bytes
        message, may_drop = self._waiting[0]
        if self._begun >= len(message):
            self._waiting.popleft()
            self._begun = 0
            self._droppable -= len(message) if may_drop else 0

    def rewind(self) -> None:
        """There is a new reader: the first message is sent again from its beginning."""
        self._begun = 0
