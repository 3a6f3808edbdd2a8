"""WKAFL (No Staleness): ablation that ignores staleness; the learning rate is eta_0.

Source: arXiv 2203.01214, section 6.2.
"""

from __future__ import annotations

from edgefl.strategies.wkafl import WKAFL


class WKAFLNoStaleness(WKAFL):
    heeds_staleness = False
