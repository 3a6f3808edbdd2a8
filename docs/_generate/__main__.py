"""python docs/_generate: write the generated pages, so that they agree with the code."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from _generate import everything  # noqa: E402  # the path is set above

everything.write()
