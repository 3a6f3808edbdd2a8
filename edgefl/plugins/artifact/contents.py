"""What is in an artifact: experiments that can be run again, and what their runs claim.

Start with ``of_runs``. A claim is a table of claims.json; ``check`` explains its keys and reads it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import stdev
from typing import Any

from edgefl.clocks.choices import RUN, VIRTUAL
from edgefl.config.file import FACTS
from edgefl.errors import UserError, listed, nearest
from edgefl.plugins.artifact import check
from edgefl.plugins.artifact.users_files import size_bytes
from edgefl.plugins.html_report.sections import ReportedRun, experiments
from edgefl.results import run_files
from edgefl.results.compare import SeedEstimate, in_words_of, load
from edgefl.results.run_files import RunFiles
from edgefl.results.statistics import PairedEffect, Reached, difference, speed_up
from edgefl.results.summary import INTERRUPTED, STRAINED, UNFINISHED

REPRODUCE, KICK = "reproduce.sh", "kick-the-tires.sh"
BROKEN = (UNFINISHED, INTERRUPTED)
# of the value, where no seeds say how much it varies; and at least, on the wall clock
ASSUMED_SHARE, LEAST_SHARE = 0.1, 0.01
S_PER_H = 3600.0
SECONDS = "emulated s"


@dataclass(frozen=True, slots=True)
class Study:
    """An experiment of an artifact. ``name``: of its folder, and of that of its results.

    ``config``: its tables, of the chosen strategies and seeds alone, without facts about a run.
    ``facts``: how it was begun: clock, command, options, digests. ``base``: the folder to which
    paths in it are relative; None: not known. ``runs``: those that the artifact is about.
    """

    name: str
    config: dict[str, Any]
    facts: Mapping[str, Any]
    base: Path | None
    runs: tuple[ReportedRun, ...] = ()

    @property
    def clock(self) -> str:
        return str(self.facts.get("clock", VIRTUAL))

    @property
    def command(self) -> str:
        """The command of edgefl that began it: run, launch or coordinator."""
        return str(self.facts.get("command", RUN))

    @property
    def options(self) -> list[str]:
        """The options with which it was begun that decide whether it runs, such as --force."""
        return [str(word) for word in self.facts.get("options", ())]

    @property
    def seeds(self) -> list[int]:
        return list(self.config.get("seeds") or [self.config.get("seed", 1)])

    @property
    def labels(self) -> list[str]:
        """The names of the strategies, which are those of the folders of their runs."""
        return [run_files.entry_name(entry) for entry in self.config["strategies"]]

    def runs_of(self, label: str) -> list[ReportedRun]:
        """Return the runs of a strategy, by seed."""
        own = [run for run in self.runs if run.facts.get("strategy") == label]
        return sorted(own, key=lambda run: run.row.seed or 0)


@dataclass(frozen=True, slots=True)
class Contents:
    """An artifact before it is written. ``name``: of its folder. ``subject``: what it is about.

    ``claims``: of ``reproduce.sh``; ``exact`` in them is decided by the runs of
    ``kick-the-tires.sh``. ``commands``: the lines of ``reproduce.sh``; (): those of the studies.
    ``hours``: of all of them, if the claims do not tell. ``files``: more files, path in the
    artifact -> file here. ``warnings``: for the user.
    """

    name: str
    subject: str
    studies: tuple[Study, ...]
    claims: tuple[dict[str, Any], ...]
    commands: tuple[str, ...] = ()
    hours: float | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def of_runs(paths: Sequence[Path], baseline: str | None = None) -> Contents:
    """Return the artifact of all runs in ``paths`` or below.

    ``baseline``: a strategy; what the others gain over it is a claim, too. UserError for a path
    without a run, a run that has not come to its end, or an unknown baseline.
    """
    runs = _all_runs(paths)
    broken = [run.title for run in runs if run.row.mark in BROKEN]
    if broken:
        raise UserError(
            f"{listed(broken)}: expected runs that came to their end (edgefl run --resume goes on"
            " with one that was broken off)"
        )
    found = experiments(runs)
    unread = [run.title for config, of in found for run in of if not config]
    if unread:
        raise UserError(f"{listed(unread)}: no config.toml that can be read: expected whole runs")
    names = _names([str(config.get("name", "run")) for config, _ in found])
    studies = tuple(_study(name, config, of) for name, (config, of) in zip(names, found))
    known = sorted({label for study in studies for label in study.labels})
    if baseline is not None and baseline not in known:
        raise UserError(
            f"--baseline {baseline}: there is no such strategy{nearest(baseline, known)}"
        )
    strained = [run.title for run in runs if run.row.mark == STRAINED]
    claims = [claim for study in studies for claim in claims_of(study, baseline)]
    return Contents(
        name=f"{studies[0].name}-artifact",
        subject=listed(names, 5),
        studies=studies,
        claims=tuple({"id": f"C{place}", **claim} for place, claim in enumerate(claims, 1)),
        warnings=(f"strained, so its times are doubtful: {listed(strained)}",) if strained else (),
    )


def _all_runs(paths: Sequence[Path]) -> list[ReportedRun]:
    rows, found = iter(load(*paths)), []
    for name, directories in run_files.find(paths).items():
        for directory in directories:
            row, files = next(rows), RunFiles(directory)
            title = f"{name} seed {row.seed}" if len(directories) > 1 else name
            found.append(ReportedRun(name, title, directory, row, files.summary, files.config))
    return found


def _names(names: Sequence[str]) -> list[str]:
    """Return different names: a second "quickstart" becomes "quickstart-2"."""
    found: list[str] = []
    for name in names:
        numbered = (f"{name}-{number}" for number in range(2, len(names) + 2))
        found.append(next(each for each in (name, *numbered) if each not in found))
    return found


def _study(name: str, config: Mapping[str, Any], runs: Sequence[ReportedRun]) -> Study:
    """Return the experiment of these runs, with their strategies and seeds alone."""
    facts = {**runs[0].facts, **config.get(FACTS, {})}
    labels = {str(run.facts.get("strategy")) for run in runs}
    entries = [each for each in config["strategies"] if run_files.entry_name(each) in labels]
    if not entries:
        raise UserError(f"{runs[0].directory}: its config.toml has no strategy {sorted(labels)[0]}")
    seeds = sorted({run.row.seed for run in runs if run.row.seed is not None}) or [1]
    own = {key: value for key, value in config.items() if key not in (FACTS, "seed", "seeds")}
    seeded = {"seed": seeds[0]} if len(seeds) == 1 else {"seeds": seeds}
    base = facts.get("base")
    return Study(
        name,
        {**own, "name": name, **seeded, "strategies": entries},
        facts,
        Path(base) if isinstance(base, str) else None,
        tuple(runs),
    )


# ---------------------------------------------------------------------- claims
def claims_of(study: Study, baseline: str | None = None) -> list[dict[str, Any]]:
    """Return what the runs of a study claim, strategy by strategy, without ids."""
    own = [claim for label in study.labels for claim in _of_strategy(study, label)]
    if baseline not in study.labels:
        return own
    others = [label for label in study.labels if label != baseline]
    return own + [claim for each in others for claim in _over(study, each, str(baseline))]


def _of_strategy(study: Study, label: str) -> list[dict[str, Any]]:
    runs = study.runs_of(label)
    rows, head = [run.row for run in runs], _head(study, label, runs)
    name, score, claims = runs[0].name, rows[0].score, []
    converged = [row.convergence_accuracy for row in rows]
    if None not in converged:
        text = f"{name}: {score.title} over the last tenth of the run"
        column = in_words_of("convergence_accuracy", score)
        claims.append(_mean(head, text, column, converged, "", score.largest))
    target = rows[0].target_accuracy
    times = [row.time_to_target_s for row in rows]
    if target is not None and None not in times:
        text = f"{name}: time to {score.title} {target:g}"
        claims.append(_mean(head, text, "time_to_target_s", times, SECONDS))
    elif target is not None:
        reach = float(sum(value is not None for value in times))
        varies = 0 < reach < len(times)  # on the wall clock one more or less may reach it
        claims.append(
            {
                **head,
                "text": f"{name}: runs that reach {score.title} {target:g}, of {len(times)}",
                "how": check.having.__name__,
                "column": "time_to_target_s",
                "unit": "runs",
                "expected": reach,
                "tolerance": 1.0 if varies else 0.0,
            }
        )
    sent = [check.number(run.summary, "megabytes") for run in runs]
    return [*claims, _mean(head, f"{name}: sent in both directions", "megabytes", sent, "MB")]


def _head(study: Study, label: str, runs: Sequence[ReportedRun]) -> dict[str, Any]:
    """Return what the claims about these runs have in common."""
    return {
        "script": REPRODUCE,
        "command": command(study),
        "run": f"{study.name}/{label}",
        "seeds": [run.row.seed for run in runs],
        "exact": study.clock == VIRTUAL,
        "hours": sum(run.row.wall_s or 0.0 for run in runs) / S_PER_H,
        "disk_mb": sum(size_bytes(run.directory) for run in runs) / 1e6,
    }


def _mean(
    head: Mapping[str, Any],
    text: str,
    column: str,
    values: Sequence[float | None],
    unit: str,
    highest: float = math.inf,
) -> dict[str, Any]:
    """Return the claim about a mean over the seeds, with its confidence interval."""
    known = [value for value in values if value is not None]
    around = SeedEstimate.of(known, "auto", highest).interval
    return {
        **head,
        "text": text,
        "how": check.mean.__name__,
        "column": column,
        "unit": unit,
        "expected": math.fsum(known) / len(known),
        "tolerance": tolerance(known),
        "interval": None if around is None else [around.low, around.high],
        "values": known,
    }


def tolerance(values: Sequence[float]) -> float:
    """Return how far the mean of new runs with the same seeds may be away from that of ``values``.

    It is two standard errors of the difference of two such means, 2 s sqrt(2/n), as if the seeds
    were others. They are the same, so the runs vary less. One value alone says nothing: then
    ASSUMED_SHARE of it.
    """
    n, share = len(values), LEAST_SHARE if len(values) > 1 else ASSUMED_SHARE
    least = share * abs(math.fsum(values)) / n
    return max(least, 2 * stdev(values) * math.sqrt(2 / n)) if n > 1 else least


def _over(study: Study, label: str, baseline: str) -> list[dict[str, Any]]:
    """Return what a strategy gains over another one, seed by seed: score and time."""
    base = {run.row.seed: run for run in study.runs_of(baseline)}
    pairs = [(run, base[run.row.seed]) for run in study.runs_of(label) if run.row.seed in base]
    if not pairs:
        return []
    runs, score = [run for run, _ in pairs], pairs[0][0].row.score
    own, others = ([pair[place].row for pair in pairs] for place in (0, 1))
    scores = [row.convergence_accuracy for row in own], [row.convergence_accuracy for row in others]
    times = [row.time_to_target_s for row in own], [row.time_to_target_s for row in others]
    reached = [
        [Reached(row.time_to_target_s, row.emulated_s) for row in of] for of in (own, others)
    ]
    column = in_words_of("convergence_accuracy", score)
    gained = difference(scores[0], scores[1], "auto", score.largest)
    faster = speed_up(reached[0], reached[1], "auto")
    text = f"{label}: gain in {score.title} over {baseline}"
    head = {**_head(study, label, runs), "baseline": f"{study.name}/{baseline}"}
    claims = [
        {**head, "text": text, "how": check.gain.__name__, "column": column}
        | _effect(gained, [a - b for a, b in _known(*scores)]),
        {
            **head,
            "text": f"{label}: times as fast to the target as {baseline}",
            "how": check.speed_up.__name__,
            "column": "time_to_target_s",
        }
        | _effect(faster, [b / a for a, b in _known(*times) if a]),
    ]
    return [claim for claim in claims if claim["expected"] is not None]


def _effect(effect: PairedEffect, values: Sequence[float]) -> dict[str, Any]:
    """Return what a claim says of an effect; ``expected`` is None if not all pairs have it."""
    if effect.size is None or effect.bound or len(values) < effect.pairs:
        return {"expected": None}
    around = effect.interval
    return {
        "unit": "",
        "expected": effect.size,
        "tolerance": tolerance(values),
        "interval": None if around is None else [around.low, around.high],
        "values": list(values),
    }


def _known(own: Sequence[float | None], base: Sequence[float | None]) -> list[tuple[float, float]]:
    return [(a, b) for a, b in zip(own, base) if a is not None and b is not None]


def command(study: Study) -> str:
    """Return the command that runs a study again, as a reader would type it in the artifact."""
    config = f"experiments/{study.name}/experiment.toml"
    if study.command != RUN:
        return f"edgefl launch INVENTORY {config}"
    return f"edgefl run {config} --clock {study.clock} --out results"
