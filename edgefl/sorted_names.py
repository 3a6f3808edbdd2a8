"""Many names in order, of which a few come and go at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

MOST = 2000  # names of a part; of 100,000 names, a change moves 1 % of them


class SortedNames:
    """Different names in ascending order, kept in parts, so that a change moves only one part."""

    def __init__(self) -> None:
        self._parts: list[list[str]] = []  # none is empty
        self._lasts: list[str] = []  # the last name of each part

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[str]:
        for part in self._parts:
            yield from part

    def __getitem__(self, index: int) -> str:
        """Return the name at this place, counted from 0. IndexError if there are fewer names."""
        for part in self._parts:
            if 0 <= index < len(part):
                return part[index]
            index -= len(part)
        raise IndexError(index)

    def __contains__(self, name: str) -> bool:
        at = bisect_left(self._lasts, name)
        if at == len(self._lasts):
            return False
        part = self._parts[at]
        return part[bisect_left(part, name)] == name

    def add(self, name: str) -> None:
        """Add a name, unless it is there."""
        if not self._parts:
            self._parts, self._lasts = [[name]], [name]
            return
        if name > self._lasts[-1]:  # 100,000 names come in order at the start of a run
            at = len(self._parts) - 1
            part = self._parts[at]
            part.append(name)
        else:
            at = bisect_left(self._lasts, name)
            part = self._parts[at]
            place = bisect_left(part, name)
            if part[place] == name:
                return
            part.insert(place, name)
        if len(part) > MOST:
            self._parts.insert(at + 1, part[MOST // 2 :])
            self._lasts.insert(at + 1, part[-1])
            del part[MOST // 2 :]
        self._lasts[at] = part[-1]

    def discard(self, name: str) -> None:
        """Remove a name, if it is there."""
        if name not in self:
            return
        at = bisect_left(self._lasts, name)
        part = self._parts[at]
        del part[bisect_left(part, name)]
        if part:
            self._lasts[at] = part[-1]
        else:
            del self._parts[at], self._lasts[at]
