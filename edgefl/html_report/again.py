"""How to run an experiment again: the commands, the config, and what it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from edgefl import __version__
from edgefl.html_report import reported_runs, sections
from edgefl.html_report.reported_runs import ReportedRun
from edgefl.loading.file import FACTS

VIRTUAL, WALL = "virtual", "wall"
SAME_BYTES = "Under the virtual clock the same version and seed write the same bytes on any host."
SAME_SPEED = (
    "On the wall clock the times of a second run are close but not equal; the verdict says whether"
    " the host kept up."
)
INVENTORY = "INVENTORY is the file with your own hosts."
EDGES = "Start the edges on their machines with edgefl edge --connect tcp://HOST:PORT --id NAME."


@dataclass(frozen=True, slots=True)
class Again:
    """How to run one experiment again.

    ``config``: the TOML text to save as ``file``. ``own``: the user's own code and traces, (name,
    digest). ``notes``: sentences.
    """

    name: str
    version: str
    file: str
    command: str
    config: str
    own: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def again(folder: Path, runs: Sequence[ReportedRun]) -> Again | None:
    """Return how to repeat ``runs``, which are of the experiment in ``folder``.

    Without its experiment.toml (an old run, or one that was copied alone) the config of the first
    run is used. None if that is damaged, too.
    """
    config = reported_runs.asked(folder) or runs[0].config
    if not config:
        return None
    facts = config.get(FACTS)
    facts = facts if isinstance(facts, Mapping) else {}
    clock = str(facts.get("clock", runs[0].row.clock or WALL))
    command = str(facts.get("command", "run"))
    name = str(config.get("name", runs[0].name))
    file = f"{name}.toml"
    notes = [SAME_BYTES if clock == VIRTUAL else SAME_SPEED]
    notes += {"launch": [INVENTORY], "coordinator": [EDGES]}.get(command, [])
    return Again(
        name=name,
        version=_version(facts, runs),
        file=file,
        command=_command(command, file, clock),
        config=tomli_w.dumps(sections.without_facts(config)),
        own=tuple((str(path), str(digest)) for path, digest in _own(facts).items()),
        notes=tuple(notes),
    )


def _command(command: str, file: str, clock: str) -> str:
    words = {
        "launch": f"edgefl launch INVENTORY {file}",
        "coordinator": f"edgefl coordinator {file}",
    }
    return words.get(command, f"edgefl run {file} --clock {clock}")


def _own(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    found = facts.get("digests", {})
    return found if isinstance(found, Mapping) else {}


def _version(facts: Mapping[str, Any], runs: Sequence[ReportedRun]) -> str:
    commits = {str(run.facts.get("git_commit", "unknown")) for run in runs} - {"unknown"}
    commit = f", commit {' and '.join(sorted(commits))}" if commits else ""
    return f"edgefl {facts.get('edgefl', __version__)}{commit}"
