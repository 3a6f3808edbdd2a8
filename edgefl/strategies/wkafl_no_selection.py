"""WKAFL (No Grad-Sel): ablation whose step is the estimated global gradient itself.

Source: arXiv 2203.01214, section 6.2.
"""

from __future__ import annotations

from edgefl.strategies.wkafl import WKAFL


class WKAFLNoSelection(WKAFL):
    selects = False
