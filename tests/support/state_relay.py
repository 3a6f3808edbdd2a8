"""A strategy that is replaced during a run by new instances, each with the state of the former."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import orjson
from safetensors.numpy import load_file

from edgefl.checkpoints.codec import OBJECTS, decode, encode
from edgefl.checkpoints.files import Checkpoints
from edgefl.clocks.setup.plan import strategy
from edgefl.config.file import load
from edgefl.config.toml import parsed
from edgefl.disk import OwnDisk
from edgefl.strategies.base.events_and_decisions import Decision, Event
from edgefl.strategies.base.strategy import Strategy
from edgefl.vectors import Layout, aligned_copy


class Relay:
    """Passes events on. Before each it writes a checkpoint into ``folder``, and goes on with a
    ``new`` instance that gets what the files have.
    """

    def __init__(
        self, new: Callable[[], Strategy], folder: Path, own: Collection[str] = ()
    ) -> None:
        self.new, self.own = new, own
        self.checkpoints = Checkpoints(OwnDisk(), folder)
        self.strategy, self.instances = new(), 1

    @property
    def weights(self) -> np.ndarray:
        return self.strategy.weights

    def handle(self, event: Event, now: int) -> list[Decision]:
        self._replace()
        return self.strategy.handle(event, now)

    def _replace(self) -> None:
        encoded = encode(self.strategy, {"strategy": self.strategy}, self.own)
        self.checkpoints.write(self.instances, encoded, {})
        self.strategy.weights = np.empty(0)  # nothing may depend on the former instance
        found = self.checkpoints.latest(print)
        assert found is not None and found.number == self.instances
        self.strategy = self.new()
        decode(found.encoded, {"strategy": self.strategy}, self.own)
        again = encode(self.strategy, {"strategy": self.strategy}, self.own)
        assert again.arrays.keys() == encoded.arrays.keys()
        for name, array in encoded.arrays.items():  # the pickle tells which equal texts are one
            assert name == OBJECTS or (again.arrays[name] == array).all()
        self.instances += 1


def begun(directory: Path) -> Strategy:
    """The strategy of a recorded run at its start."""
    experiment = load(directory / "config.toml")
    facts = parsed((directory / "config.toml").read_text(encoding="utf-8"))["run"]
    entry = next(entry for entry in experiment.strategies if entry.name == facts["strategy"])
    journal = directory / "journal"
    layout = Layout.from_json(orjson.loads((journal / "layout.json").read_bytes()))
    weights = aligned_copy(load_file(journal / "initial.safetensors")["weights"])
    base = Path(facts["base"]) if "base" in facts else None
    return strategy(experiment, entry, base, weights, layout)
