"""Seed 1: asynchronous learning over TDMA and intentional delay (Song, Hong)."""

from __future__ import annotations

from reproduction.entries import _tdma_figures, _tdma_runs

ENTRIES = (*_tdma_runs.ENTRIES, *_tdma_figures.ENTRIES)
