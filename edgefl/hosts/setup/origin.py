"""experiment.toml in the folder of an experiment: what the command that began it was given.

A run is resumed from it. The config.toml of each run has what was found out later: the chosen
speed, the port, the digest of the data.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefl import __version__
from edgefl.catalog import source_of
from edgefl.config.experiment import Experiment
from edgefl.config.groups import availability_file, traces
from edgefl.config.toml import parsed
from edgefl.errors import undamaged
from edgefl.flower.app_folder import app_digest, is_flower
from edgefl.loading.file import FACTS, dump
from edgefl.loading.names import own_names
from edgefl.record.files import EXPERIMENT

RUN, COORDINATOR, LAUNCH = "run", "coordinator", "launch"


@dataclass(frozen=True, slots=True)
class Origin:
    """How the runs in a folder were begun.

    ``command``: of RUN, COORDINATOR, LAUNCH. ``clock``: WALL or VIRTUAL. ``base``: the folder of
    the user's code and traces. ``options``: words of the command line that a resumption needs, too.
    ``inventory``: of a launch. ``keys``: the folder of CURVE keys. ``place``: the host of a
    coordinator elsewhere, and the folder of its results there. ``launched``: the name of the
    launch's folders on its hosts. ``digests``: of the files of the
    user's code and traces, by name.
    """

    command: str
    clock: str
    base: Path
    options: tuple[str, ...] = ()
    inventory: Path | None = None
    keys: Path | None = None
    place: str = ""
    launched: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)
    edgefl: str = __version__

    def resumed_by(self, folder: Path) -> str:
        """Return the command that resumes the runs in ``folder``."""
        words = ["edgefl", self.command]
        if self.inventory is not None:
            words.append(_short(self.inventory))
        return shlex.join([*words, "--resume", str(folder), *self.options])

    def text(self, experiment: Experiment) -> str:
        """Return experiment.toml."""
        facts: dict[str, Any] = {
            "command": self.command,
            "clock": self.clock,
            "base": str(self.base.resolve()),
            "options": list(self.options),
            "inventory": _whole(self.inventory),
            "keys": _whole(self.keys),
            "place": self.place or None,
            "launched": self.launched or None,
            "edgefl": self.edgefl,
            "digests": dict(self.digests or digests(experiment, self.base)),
        }
        return dump(experiment, {FACTS: facts})


def origin_of(folder: Path) -> Origin:
    """Read the facts of an experiment.toml. UserError if it is damaged."""
    path = folder / EXPERIMENT
    with undamaged(path):
        facts = parsed(path.read_text(encoding="utf-8"))[FACTS]
        return Origin(
            command=str(facts["command"]),
            clock=str(facts["clock"]),
            base=Path(facts["base"]),
            options=tuple(map(str, facts["options"])),
            inventory=_path(facts.get("inventory")),
            keys=_path(facts.get("keys")),
            place=str(facts.get("place", "")),
            launched=str(facts.get("launched", "")),
            digests={str(name): str(digest) for name, digest in facts["digests"].items()},
            edgefl=str(facts["edgefl"]),
        )


def digests(experiment: Experiment, base: Path) -> dict[str, str]:
    """Return a digest of each file of the user's code, and of each trace, by its name.

    "" if there is no such file now. Files that the code imports are not followed; of a Flower app,
    all its files count.
    """
    named = own_names(experiment)
    files = {
        name.rpartition(":")[0]: source_of(name, base) for name in named if not is_flower(name)
    }
    read = (*traces(experiment), *availability_file(experiment))
    files |= {name: base / Path(name).expanduser() for name in read}
    apps = {name: app_digest(name, (base, Path.cwd())) for name in named if is_flower(name)}
    return {name: _digest(path) for name, path in files.items()} | apps


def _digest(path: Path | None) -> str:
    if path is None or not path.is_file():
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _whole(path: Path | None) -> str | None:
    return None if path is None else str(path.resolve())


def _path(text: Any) -> Path | None:
    return None if text is None else Path(text)


def _short(path: Path) -> str:
    """The path as a user would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
