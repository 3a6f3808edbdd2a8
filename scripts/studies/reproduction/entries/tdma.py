"""Seed 1: asynchronous learning over TDMA and intentional delay (Song, Hong)."""

from __future__ import annotations

from reproduction.entries import _tdma_causes, _tdma_figures, _tdma_map, _tdma_runs

ENTRIES = (
    *_tdma_runs.ENTRIES,
    *_tdma_figures.ENTRIES,
    *_tdma_causes.ENTRIES,
    *_tdma_map.ENTRIES,
)
