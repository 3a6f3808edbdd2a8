"""Run `edgefl WORDS` in this process; runs under the virtual clock are saved every ten steps.

A step takes at least a millisecond, so that a run lasts long enough to be killed.
"""

from __future__ import annotations

import time
from typing import Any

from edgefl.cli import main
from edgefl.clocks.virtual import run
from edgefl.clocks.virtual.run import SavedRun, Saving

STEP_S = 0.001


class OftenSaved(SavedRun):
    def __init__(self, directory: Any, saving: Saving) -> None:
        super().__init__(directory, Saving(every_steps=10, say=saving.say))

    def now_and_then(self, host: Any) -> None:
        time.sleep(STEP_S)
        super().now_and_then(host)


if __name__ == "__main__":
    run.SavedRun = OftenSaved  # type: ignore[misc]  # that is the point
    main()
