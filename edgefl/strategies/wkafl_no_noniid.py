"""WKAFL (No Non-IIDness): ablation that adds no former estimate to the gradients (alpha = 0).

Source: arXiv 2203.01214, section 6.2.
"""

from __future__ import annotations

from edgefl.strategies.wkafl import WKAFL


class WKAFLNoNonIID(WKAFL):
    accumulates = False
