"""Descriptions of heavy work. A host does it; the actor that asked gets the result as ``job_done``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Train:
    """Advance an edge's local run to ``until_step``."""

    run: Any = field(repr=False)
    until_step: int


@dataclass(frozen=True, slots=True, eq=False)
class Evaluate:
    """Loss and accuracy of a snapshot of the global model. It has no emulated cost."""

    version: int
    at_ns: int
    weights: np.ndarray = field(repr=False)
    bytes_up: int
    bytes_down: int
