"""Which edges fail in training, and why. Texts from edges are made printable."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgefl.errors import printable
from edgefl.protocol.messages import MOST_REASON

MOST_TRACES = 20  # tracebacks kept in the record, one for each reason


@dataclass(slots=True)
class Failures:
    """Failures of training. ``failing``: the edges whose latest training has failed."""

    failing: set[str] = field(default_factory=set)
    _traced: set[str] = field(default_factory=set)

    def add(self, edge: str, reason: str, trace: str) -> tuple[str, dict[str, str]]:
        """Count a failure. Returns the reason in one line.

        For a new reason it also returns {"trace": the traceback}.
        """
        self.failing.add(edge)
        reason = printable(" ".join(reason.split()), MOST_REASON)
        if reason in self._traced or len(self._traced) >= MOST_TRACES:
            return reason, {}
        self._traced.add(reason)
        return reason, {"trace": "\n".join(map(printable, trace.splitlines()))}

    def over(self, edge: str) -> None:
        """The edge has delivered an update."""
        self.failing.discard(edge)

    def of_most(self, edges: int) -> bool:
        """Whether more than half of ``edges`` edges fail."""
        return 2 * len(self.failing) > edges
