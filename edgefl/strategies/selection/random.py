"""Idle edges at random, without replacement: every one is equally likely.

McMahan et al. 2017 (arXiv 1602.05629), algorithm 1: S_t, a random set of m clients.
"""

from __future__ import annotations

from edgefl.strategies.selection.selector import RandomSelector

build = RandomSelector
