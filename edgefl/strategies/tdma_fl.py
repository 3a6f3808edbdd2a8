"""TDMA-FL: S edges send one after another, the server steps and broadcasts to them, the others
compute in the meantime (Song, Hong, algorithm 1).
"""

from __future__ import annotations

from edgefl.strategies.base.slotted import Slotted


class TdmaFL(Slotted):
    """All start from w_0 at slot 0; w_{k+1} goes to S_k, whose next updates are G - 1 rounds
    old.
    """
