"""The resources for runs under the virtual clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
