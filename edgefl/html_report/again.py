"""How to run an experiment again: the commands, the config, and what it needs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tomli_w

from edgefl.errors import listed
from edgefl.html_report import reported_runs, sections
from edgefl.html_report.reported_runs import ReportedRun
from edgefl.loading.file import FACTS
from edgefl.results.summary import VIRTUAL

WALL = "wall"
UNKNOWN = "unknown"  # the commit of an edgefl that is no checkout
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

    title: str
    version: str
    file: str
    command: str
    config: str
    own: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def of_experiments(runs: Sequence[ReportedRun]) -> list[Again]:
    """Return how to repeat the experiments that ``runs`` are of, each once."""
    found = reported_runs.experiments(runs)
    return [_again(config, of, len(found) > 1) for config, of in found if config]


def _again(config: Mapping[str, Any], runs: Sequence[ReportedRun], several: bool) -> Again:
    """Return how to repeat ``runs``; ``several``: there are other experiments, too."""
    facts = config.get(FACTS)
    facts = facts if isinstance(facts, Mapping) else {}
    clock = str(facts.get("clock", runs[0].row.clock or WALL))
    command = str(facts.get("command", "run"))
    name = str(config.get("name", runs[0].name))
    file, titles = f"{name}.toml", list(dict.fromkeys(run.name for run in runs))
    notes = [SAME_BYTES if clock == VIRTUAL else SAME_SPEED]
    notes += {"launch": [INVENTORY], "coordinator": [EDGES]}.get(command, [])
    return Again(
        title=f"{name}: {listed(titles)}" if several else name,
        version=_version(facts, runs),
        file=file,
        command=_command(command, file, clock),
        config=tomli_w.dumps(sections.without_facts(config)),
        own=tuple((str(path), str(digest)) for path, digest in _own(facts).items()),
        notes=tuple(notes),
    )


def _command(command: str, file: str, clock: str) -> str:
    given = shlex.quote(file)
    match command:
        case "launch":
            return f"edgefl launch INVENTORY {given}"
        case "coordinator":
            return f"edgefl coordinator {given}"
    return f"edgefl run {given} --clock {clock}"


def _own(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    found = facts.get("digests", {})
    return found if isinstance(found, Mapping) else {}


def _version(facts: Mapping[str, Any], runs: Sequence[ReportedRun]) -> str:
    """Return "edgefl 0.1.0, commit 68b68a584401", as far as it was noted."""
    version = f"edgefl {facts['edgefl']}" if "edgefl" in facts else "edgefl"
    commits = {str(run.facts.get("git_commit", UNKNOWN)) for run in runs} - {UNKNOWN}
    return version + (f", commit {' and '.join(sorted(commits))}" if commits else "")
