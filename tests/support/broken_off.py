"""Folders of experiments as crashes and Ctrl-C leave them, made without a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from builders import layout, vector

from edgefl.clocks.choices import RUN, WALL
from edgefl.clocks.setup.plan import fidelity
from edgefl.clocks.setup.resumption import Origin, RunFolder
from edgefl.clocks.setup.rundir import OpenRun
from edgefl.config.experiment import Experiment
from edgefl.results.run_files import seed_name


def begin_folder(folder: Path, given: Experiment, origin: Origin | None = None) -> Origin:
    """Write experiment.toml as a command does. Returns its facts."""
    origin = origin or Origin(RUN, WALL, folder.parent)
    claim = RunFolder(folder, origin.text(given))
    claim.claim()
    claim.begin()
    claim.release()
    return origin


def begin_run(
    folder: Path,
    given: Experiment,
    index: int = 0,
    finished: str = "",
    facts: Mapping[str, Any] | None = None,
) -> Path:
    """Write the files of a run that was broken off, or of one that ended for ``finished``.

    ``given`` has the run's seed in ``seed``, below ``seeds`` if the experiment has several.
    """
    several, one = given.seeds is not None, given.model_copy(update={"seeds": None})
    directory = folder / given.strategies[index].name / seed_name(given.seed, several)
    run = OpenRun(one, index, directory, folder.parent, vector(0, 0, 0), layout())
    run.begin("wall", fidelity(given), facts or {})
    run.record.fact(0, {"fact": "edge_waits", "edge": "a"})
    run.record.flush()
    if finished:
        (directory / "summary.json").write_bytes(orjson.dumps({"finished": finished}))
    return directory
