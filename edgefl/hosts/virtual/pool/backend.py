"""What a crew asks of those who have its workers, and what it hears from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """What went wrong in a worker; ``users``: it is a UserError."""

    text: str
    users: bool


@dataclass(frozen=True, slots=True, eq=False)
class WorkerOrder:
    """Train ``run`` to ``until`` (on from where it stands, if ``stands``), or do ``job``."""

    number: int
    job: Any
    stands: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class WorkerReport:
    """Of worker ``who``: an order's result, ``here``: it can be given orders, or ``gone``: why it
    cannot any more.

    A stretch's result is None if the run stands before its end, else [vectors, numbers,
    remembered]. Every order that is not lost with its worker is reported once, forgotten ones too
    (with any result).
    """

    who: Any
    number: int = -1
    result: Any = None
    here: bool = False
    gone: str | None = None


class WorkerBackend(Protocol):
    """Workers somewhere. A worker is whatever ``wait`` names as ``who``."""

    def hire(self) -> None:
        """One more worker; ``wait`` reports when it is here."""
        ...

    def send(self, who: Any, order: WorkerOrder) -> None: ...

    def forget(self, who: Any, number: int) -> None:
        """Drop an order, at the next chance, or the run that it has left standing."""
        ...

    def wait(self, timeout_s: float | None) -> list[WorkerReport]:
        """What there is to report; None: wait until there is something."""
        ...

    def release(self, array: np.ndarray) -> None:
        """No order to come holds this vector."""
        ...

    def close(self) -> None:
        """End them all."""
        ...
