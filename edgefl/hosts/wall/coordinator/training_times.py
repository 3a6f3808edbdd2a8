"""Track what each edge computes, and whether it ends by its emulated moment."""

from __future__ import annotations

from collections.abc import Collection

from edgefl.protocol.messages import Working
from emulator.fidelity import Fidelity


class TrainingTimes:
    """Training times of edges, for the verdict.

    ``stamped``: edges whose training takes an emulated time. The others run on native devices,
    which the verdict does not judge.
    """

    def __init__(self, fidelity: Fidelity, stamped: Collection[str]) -> None:
        self.fidelity, self.stamped = fidelity, stamped
        self.began: dict[str, tuple[int, int]] = {}  # edge -> (task, emulated moment it began)
        self.working: dict[str, Working] = {}  # what each edge computes, and by when it must end

    def begins(self, edge: str, task: int, at_ns: int) -> None:
        self.began[edge] = (task, at_ns)

    def asked(self, edge: str, task: int, at_ns: int, late_ns: int) -> None:
        """The edge stopped at ``at_ns`` to ask for a fresher model.

        The request arrived ``late_ns`` after its emulated moment.
        """
        began = self.began.get(edge)
        if edge in self.stamped and began is not None and began[0] == task:
            self.fidelity.task(late_ns, at_ns - began[1])
            self.began[edge] = (task, at_ns)

    def offered(self, edge: str, task: int) -> int | None:
        """When the training of this update began. The first call removes it."""
        if self.began.get(edge, (None, 0))[0] == task:
            return self.began.pop(edge)[1]
        return None

    def done(self, edge: str, began_ns: int, due_ns: int, now: int) -> None:
        """The update that was due at ``due_ns`` is offered ``now``."""
        if edge in self.stamped:
            self.fidelity.task(now - due_ns, due_ns - began_ns)

    def overdue(self, edge: str, now: int) -> None:
        """Count unfinished work that was due by now: the edge is lost, or the run ends."""
        working = self.working.pop(edge, None)
        if working is None:
            return
        task, began_ns = self.began.get(edge, (None, 0))  # until its update is offered
        if task == working.task and now > working.due_ns:
            self.fidelity.task(now - working.due_ns, working.due_ns - began_ns)
