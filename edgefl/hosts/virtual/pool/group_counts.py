"""How the groups of ``training.tasks_at_once`` were trained: for summary.json and for the user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

A_TASK_FAILED = "a task of the group failed"


class GroupCounts:
    """The counts of one run, and of its part before it was broken off.

    ``together``: groups whose steps were merged, by their number of tasks. ``one_by_one``: groups
    that were trained again task by task, because their merged steps failed; by reason.
    """

    def __init__(self) -> None:
        self.begin(lambda line: None)

    def begin(self, say: Callable[[str], None], so_far: Mapping[str, Any] | None = None) -> None:
        """Count a run from here on. ``say`` gets a line about its first failure of merged steps.

        ``so_far``: the section of the run before it was broken off.
        """
        before = so_far or {}
        self._say, self._told = say, False
        self.together = Counter({int(n): count for n, count in before.get("together", {}).items()})
        self.one_by_one = Counter(before.get("one_by_one", {}))

    def failed(self, reason: str, line: str) -> None:
        """Count a group whose merged steps failed; ``line`` tells it.

        A failed task tells its own reason, so it is counted only.
        """
        self.one_by_one[reason] += 1
        if reason != A_TASK_FAILED and not self._told:
            self._told = True
            self._say(line)

    def section(self) -> dict[str, Any]:
        """Return the section of summary.json, plain JSON."""
        return {
            "together": {str(tasks): count for tasks, count in sorted(self.together.items())},
            "one_by_one": dict(sorted(self.one_by_one.items())),
        }
