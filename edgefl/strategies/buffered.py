"""The buffered frame: updates are gathered, and every K of them make one server step."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from edgefl.strategies.asynchronous import Asynchronous, AsynchronousOptions
from edgefl.strategies.decisions import Decision
from edgefl.strategies.events import UpdateArrived


class BufferedOptions(AsynchronousOptions):
    buffer_size: int = Field(10, ge=1)  # K
    dispatch_before_step: bool = False  # True: the edge that fills the buffer is replaced with the old model (FedEcho's listing)


class Buffered(Asynchronous):
    """A subclass gathers in ``add`` and steps in ``step``."""

    Options = BufferedOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.buffered = 0

    def add(self, update: UpdateArrived, gap: int) -> None:
        """Put one update into the buffer."""
        raise TypeError(f"{type(self).__name__} must define add")

    def step(self) -> np.ndarray:
        """The next global model from a full buffer, which is emptied."""
        raise TypeError(f"{type(self).__name__} must define step")

    def apply(self, update: UpdateArrived, gap: int) -> np.ndarray | None:
        self.add(update, gap)
        self.buffered += 1
        if self.buffered < self.options.buffer_size:
            return None
        self.buffered = 0
        return self.step()

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        early = self._refill() if self.options.dispatch_before_step else []
        return early + super().arrived(update, now)
