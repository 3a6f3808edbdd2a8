"""WKAFL (No Non-IIDness): the last step's estimate is not added to the gradients (alpha = 0)
(ablation of arXiv 2203.01214, section 6.2).
"""

from __future__ import annotations

from edgefl.strategies.wkafl import WKAFL


class WKAFLNoNonIID(WKAFL):
    accumulates = False
