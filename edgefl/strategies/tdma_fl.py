"""TDMA-FL: S edges send in TDMA slots and get the new model; the others compute (Song, Hong).

Source: Song, Hong, algorithm 1.
"""

from __future__ import annotations

from edgefl.strategies.base.slotted import Slotted


class TdmaFL(Slotted):
    """All start from w_0 at slot 0. w_{k+1} goes to S_k; its next updates are G - 1 rounds old."""
