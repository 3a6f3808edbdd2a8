"""What a command line chooses for its runs: command, clock, engine. It imports next to nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

RUN, COORDINATOR, LAUNCH = "run", "coordinator", "launch"


WALL, VIRTUAL = "wall", "virtual"


class EngineName(StrEnum):
    local = "local"
    ray = "ray"


@dataclass(frozen=True, slots=True)
class Power:
    """The number of worker processes, and where they are.

    ``ray_address``: the Ray cluster; None: start one for the runs.
    """

    workers: int = 1
    engine: EngineName = EngineName.local
    ray_address: str | None = None
