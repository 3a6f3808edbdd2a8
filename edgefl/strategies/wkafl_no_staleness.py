"""WKAFL (No Staleness): fresh and stale gradients count alike, and the learning rate is eta_0
(ablation of arXiv 2203.01214, section 6.2).
"""

from __future__ import annotations

from edgefl.strategies.wkafl import WKAFL


class WKAFLNoStaleness(WKAFL):
    heeds_staleness = False
