"""WKAFL (No Grad-Sel): the estimated global gradient itself is the step (ablation of arXiv
2203.01214, section 6.2).
"""

from __future__ import annotations

from edgefl.strategies.wkafl import WKAFL


class WKAFLNoSelection(WKAFL):
    selects = False
