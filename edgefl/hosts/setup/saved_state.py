"""What checkpoints of a run only name, because each process builds it itself."""

from __future__ import annotations

from edgefl.hosts.setup.rundir import OpenRun


def externals(run: OpenRun) -> dict[str, object]:
    """What the process has built for the coordinator of ``run``, by name."""
    strategy = run.coordinator.strategy
    found: dict[str, object] = {
        "strategy": strategy,
        "options": strategy.options,
        "layout": strategy.layout,
        "experiment": run.experiment,
        "recorder": run.record,
    }
    limits = run.coordinator.deadlines.limits
    return found if limits is None else {**found, "limits": limits}
