"""The names of the two clocks, in commands and in files of a run."""

from __future__ import annotations

WALL, VIRTUAL = "wall", "virtual"
