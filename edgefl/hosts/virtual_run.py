"""One strategy of an experiment under the virtual clock, in this process."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any, Callable

from edgefl.hosts.learning import Learning
from edgefl.hosts.plan import fidelity, latency_ns, network, refuse_native
from edgefl.hosts.rundir import OpenRun
from edgefl.hosts.virtual import VirtualHost

Progress = Callable[[int, OpenRun], None]


class Interrupt:
    """Holds a Ctrl-C back until the step at hand is done, so that no event is left half decided or half recorded; a second one does not wait."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> "Interrupt":
        self._main = threading.current_thread() is threading.main_thread()  # no other thread may set a handler, or is interrupted
        if self._main:
            self._former = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._former)

    def _ask(self, number: int, frame: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def run_virtual(learned: Learning, index: int, directory: Path, progress: Progress | None = None) -> dict[str, Any]:
    """Run strategy ``index``; returns the summary. ``progress(now_ns, run)`` is called after every step."""
    experiment = learned.experiment
    refuse_native(experiment)
    run = OpenRun(experiment, index, directory, learned.base, learned.initial_weights(), learned.layout)
    book = fidelity(experiment)
    host = VirtualHost(run.coordinator, learned.edges(index), network(experiment), latency_ns(experiment), learned.evaluate)
    run.begin("virtual", book)

    def after_step(now: int) -> None:
        run.flush_now_and_then()
        if progress is not None:
            progress(now, run)
        if interrupt.asked:
            raise KeyboardInterrupt

    try:
        with Interrupt() as interrupt:
            host.run(learned.samples, after_step)
    finally:
        run.record.flush()  # if a bug ends the run here, what led to it can be read
    return run.end("virtual", host.clock.now(), run.wall_s, book.summary())
