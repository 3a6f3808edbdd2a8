"""A run on the wall clock that has ended goes on with longer stop keys, on the simulated machine of
the fault search: the coordinator is a new process, and the edges come back or were started again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from paths import SUPPORT
from search import scenario
from search.faults import COORDINATOR, Fault
from search.invariants import Invariants
from search.run import AGAIN_NS, Run
from search.scenario import EVENTS_FILE, RUN, Scenario, World, rows_of
from search.story import Story
from search.system import SimulatedSystem

from edgefl.config.experiment import Experiment
from edgefl.record.files import SUMMARY

LOSS = {"metric": "test_loss"}
STOPS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"emulated_s": 4.0}, {"emulated_s": 9.0}),
    ({"versions": 5}, {"versions": 12}),
    ({"updates": 6}, {"updates": 14}),
    ({"target": LOSS | {"value": 1.68}}, {"target": LOSS | {"value": 1.66}}),
]
# the coordinator dies once before the first end, and once after it
KILLS = (
    Fault("kill", 2.0, COORDINATOR, for_s=0.5, way="process", count=40),
    Fault("kill", 7.0, COORDINATOR, for_s=0.5, way="process", count=40),
)


class Stopping(World):
    """The experiments of the fault search, with a strategy that hears of evaluations."""

    stop: dict[str, Any]

    def experiment(self, scenario_: Scenario) -> Experiment:
        own = f"{SUPPORT / 'hearing_strategies.py'}:Adjusting"
        sections = {
            "strategies": [{"strategy": own, "concurrency": 3}],
            "evaluation": {"every_versions": 1, "cost_s": 0.25, "train_samples": 0},
            "record": {"durability": "process", "keep_state": True},
            "stop": self.stop,
        }
        plain = scenario.experiment(scenario_).model_dump(exclude_defaults=True)
        return Experiment.model_validate(plain | sections)


class LongerRun(Run):
    """At its first end the run gets other stop keys, as ``--resume DIR stop.KEY=VALUE`` gives."""

    first: Any = None

    def __init__(self, world: Stopping, story: Story, stop: dict[str, Any]) -> None:
        super().__init__(world, story)
        self.stop = stop

    def _coordinate(self, system: SimulatedSystem) -> None:
        super()._coordinate(system)
        if self.first is None:
            self.first, self.summary = self.summary, None
            system.disk.remove(RUN / SUMMARY)
            self.world.stop = self.stop  # type: ignore[attr-defined]
            self.watch.died(None)
            self.sim.after(AGAIN_NS, self.start_coordinator)

    def _check(self) -> None:
        assert not self.errors and self.summary is not None


@pytest.mark.parametrize("kills", [(), KILLS], ids=["calm", "killed"])
@pytest.mark.parametrize(("short", "longer"), STOPS, ids=[next(iter(each)) for each, _ in STOPS])
@pytest.mark.slow
def test_a_finished_run_goes_on(
    short: Any, longer: Any, kills: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a twin that is not lengthened has another state
    monkeypatch.setattr(Invariants, "_check_state", lambda watch, process: None)
    world = Stopping(tmp_path)
    world.stop = short
    of = Scenario("fedasync", "process", checkpoints=bool(kills))
    run = LongerRun(world, Story(1, of, kills), longer)
    outcome = run.play()
    assert outcome.broken is None, [outcome.broken, *outcome.told]
    first, last = run.first, run.summary
    assert last is not None and first["finished"] == last["finished"] == next(iter(short))
    assert last["emulated_s"] > first["emulated_s"] and last["versions"] > first["versions"]
    rows = rows_of(bytes(run.disk.files[EVENTS_FILE].data))
    assert [row["reason"] for row in rows if row.get("fact") == "finished"] == [last["finished"]]
    assert any(row.get("fact") == "resumed" for row in rows)
    moments = [row["t"] for row in rows if "event" in row]
    assert moments == sorted(moments)
