"""From what the user asks for to an engine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from edgefl.errors import UserError
from edgefl.hosts.setup.learning import Learning
from edgefl.hosts.setup.plan import options
from edgefl.hosts.virtual.pool.engine import Engine, Here
from edgefl.hosts.virtual.pool.forked import Forked
from edgefl.hosts.virtual.pool.scheduler import WorkerPool
from edgefl.hosts.virtual.pool.shared_memory import NoRoom


@contextmanager
def open_pool(
    learned: Learning,
    workers: int,
    engine: Literal["local", "ray"] = "local",
    ray_address: str | None = None,
) -> Iterator[Engine]:
    """An engine for the runs of this experiment, one after the other; nothing of it is left behind.

    ``local``: forked workers, with 0 or 1 this process. ``ray``: actors on the cluster at
    ``ray_address`` ("auto": the one of this machine; None: one of their own, for as long as the
    pool is open).
    """
    if workers < 0:
        raise UserError(f"--workers {workers}: expected 1 or more")
    if engine == "local" and workers <= 1:
        yield Here(learned)
        return
    if engine == "ray":
        from edgefl.hosts.virtual.pool.ray import (
            OnRay,  # which not everybody has installed
        )

        crew = WorkerPool(OnRay(learned, max(workers, 1), ray_address), max(workers, 1))
    else:
        try:
            crew = _forked(learned, workers)
        except NoRoom as reason:
            yield Here(learned, f"no workers: {reason}; training in this process")
            return
    try:
        crew.note = _idle(learned, crew.workers)
        yield crew
    finally:
        crew.close()


def _forked(learned: Learning, workers: int) -> WorkerPool:
    if not sys.platform.startswith("linux"):
        raise NoRoom(f"they need Linux, this is {sys.platform}")
    return WorkerPool(Forked(learned, workers), workers)


def _idle(learned: Learning, workers: int) -> str | None:
    """What to say if there are more workers than any strategy has devices training."""
    edges = len(learned.shards)
    chosen = [options(entry, learned.base) for entry in learned.experiment.strategies]
    most = max(found.concurrency(values, edges) for found, values in chosen)
    return (
        f"{workers} workers, but at most {most} devices train at one time: the others have little"
        " to do"
        if workers > most
        else None
    )
