"""One strategy of an experiment under the virtual clock, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

from edgefl.hosts.learning import Learning
from edgefl.hosts.plan import fidelity, latency_ns, network, refuse_native
from edgefl.hosts.rundir import OpenRun
from edgefl.hosts.virtual import VirtualHost

Progress = Callable[[int, OpenRun], None]


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

    try:
        host.run(learned.samples, after_step)
    finally:
        run.record.flush()  # if a bug ends the run here, what led to it can be read
    return run.end("virtual", host.clock.now(), run.wall_s, book.summary())
