"""What ``edgefl launch`` is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.hosts.choices import LAUNCH, WALL
from edgefl.hosts.setup.resumption import Origin
from edgefl.loading.file import base_of

if TYPE_CHECKING:
    from edgefl.config.experiment import Experiment
    from edgefl.hosts.setup.resumption import Resumption
    from edgefl.launch.inventory import Inventory


@dataclass(frozen=True, slots=True)
class Launch:
    """What is launched: the checked input of the command."""

    inventory: Inventory
    experiment: Experiment
    config: Path
    folder: Path
    keys: Path
    sync: bool
    restarts: int
    partial: bool
    accept: bool
    found: Resumption | None = None  # what is resumed, if anything
    overwrite: bool = False  # new runs replace finished ones

    def text(self, run: str, results: str = "") -> str:
        """Return experiment.toml. ``run``: the name of the launch's folders on its hosts.

        ``results``: of a coordinator on another host, the folder there.
        """
        place = self.inventory.coordinator.host.name
        origin = Origin(
            LAUNCH,
            WALL,
            self.base,
            options=("--partial",) if self.partial else (),
            inventory=self.inventory.path,
            keys=self.keys,
            place=f"{place} ({results})" if results else "",
            launched=run,
        )
        return origin.text(self.experiment if self.found is None else self.found.asked)

    @property
    def base(self) -> Path:
        return base_of(self.config)

    def code(self) -> dict[str, Path]:
        """The files of the user's code, by name."""
        from edgefl.loading.names import own_names

        folders = (self.base, Path.cwd())
        return {
            name: next(path for path in paths if path.is_file())
            for name in own_names(self.experiment)
            if (place := name.rpartition(":")[0]).endswith(".py")
            and (paths := [folder / Path(place).expanduser() for folder in folders])
        }

    def traces(self) -> dict[str, Path]:
        """The files with traces of links, which only the coordinator reads."""
        from edgefl.config.groups import traces

        return {name: self.base / Path(name).expanduser() for name in traces(self.experiment)}
