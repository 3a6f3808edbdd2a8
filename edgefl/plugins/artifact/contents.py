"""What is in an artifact: experiments that can be run again, and what their runs claim.

Start with ``of_runs``. A claim is a table of claims.json; ``check`` explains its keys and reads it.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import stdev
from typing import Any

import tomli_w

from edgefl.clocks.choices import RUN, VIRTUAL
from edgefl.config.file import FACTS
from edgefl.errors import UserError, listed, nearest, printable
from edgefl.exit_status import FAILED
from edgefl.plugins.artifact import check
from edgefl.plugins.artifact.users_files import size_bytes
from edgefl.plugins.html_report.sections import ReportedRun, experiments
from edgefl.record.files import METRICS
from edgefl.results import run_files
from edgefl.results.compare import SeedEstimate, in_words_of, load
from edgefl.results.read import read_csv
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
    known = _known(*scores)
    ratios = [b / a for a, b in _known(*times) if a]
    faster = speed_up(reached[0], reached[1], "auto")
    text = f"{label}: gain in {score.title} over {baseline}"
    head = {**_head(study, label, runs), "baseline": f"{study.name}/{baseline}"}
    claims = [
        {**head, "text": text, "how": check.gain.__name__, "column": column}
        | _effect(gained, [a - b for a, b in known], tuple(zip(*known))),
        {
            **head,
            "text": f"{label}: times as fast to the target as {baseline}",
            "how": check.speed_up.__name__,
            "column": "time_to_target_s",
        }
        | _effect(faster, ratios, (ratios, ratios)),  # the shares of both times add up
    ]
    return [claim for claim in claims if claim["expected"] is not None]


def _effect(
    effect: PairedEffect, values: Sequence[float], both: Sequence[Sequence[float]]
) -> dict[str, Any]:
    """Return what a claim says of an effect; ``expected`` is None if not all pairs have it.

    ``both``: of a single pair, what the tolerances of its two runs are those of.
    """
    if effect.size is None or effect.bound or len(values) < effect.pairs:
        return {"expected": None}
    around = effect.interval
    return {
        "unit": "",
        "expected": effect.size,
        "tolerance": tolerance(values) if len(values) > 1 else sum(map(tolerance, both)),
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


# ---------------------------------------------------------------------- the trial
# ``kick-the-tires.sh``: a short start of each experiment under the virtual clock, tried at once.
#
# The first seed of each experiment runs for as many emulated seconds as fit into a minute here, so
# that ten minutes are enough on slower machines, too. The last evaluated model of each strategy is
# a claim: the virtual clock gives the same numbers again. If the runs of the artifact were made
# under the virtual clock, they begin with the same numbers; if not, this copy of edgefl computes
# others.

BUDGET_S, LIMIT_S = 60.0, 300.0  # of all experiments; after LIMIT_S of one, less of it is tried
MOST_STUDIES, MOST_TRIES = 10, 6
SHORTER, LONGER = 4.0, 4.0  # by how much the next try is shorter, or longer
UNKNOWN_SHARE = 0.02  # of the emulated time, where nothing tells how long a run takes
COMPARED = ("emulated_s", "accuracy", "test_loss")  # columns of metrics.csv


@dataclass(frozen=True, slots=True)
class Kicked:
    """``claims``: without ids. ``seconds``, ``megabytes``: what the runs took here.

    ``differs``: experiment -> where its runs have other numbers than these; "" if nowhere.
    """

    claims: tuple[dict[str, Any], ...]
    seconds: float
    megabytes: float
    differs: Mapping[str, str]


def config_of(study: Study, emulated_s: float) -> dict[str, Any]:
    """Return the config of the short runs: one seed, emulated links and devices."""
    config = {key: value for key, value in study.config.items() if key not in ("seed", "seeds")}
    config |= {"name": f"kick-{study.name}", "seed": study.seeds[0]}
    config["stop"] = {**study.config["stop"], "emulated_s": emulated_s}
    for part in (config, *(config.get("groups") or ())):
        for table in ("links", "devices"):
            if isinstance(part.get(table), dict) and part[table].get("kind") == "native":
                part[table] = {**part[table], "kind": "emulated"}
    return config


def trial(
    studies: Sequence[Study], folder: Path, data: Mapping[str, Path], say: Callable[[str], None]
) -> Kicked:
    """Write each ``kick.toml`` below ``folder``, and run it.

    ``data``: name of a study -> its folder of data sets here. UserError with the last line of
    edgefl if an experiment does not run in the artifact.
    """
    claims, seconds, megabytes, differs = [], 0.0, 0.0, {}
    for study in studies[:MOST_STUDIES]:
        with tempfile.TemporaryDirectory(prefix="edgefl-kick-") as scratch:
            took_s = _tried(study, folder, data[study.name], Path(scratch), len(studies), say)
            results = Path(scratch) / f"kick-{study.name}"
            seconds, megabytes = seconds + took_s, megabytes + size_bytes(results) / 1e6
            claims += _claims(study, results, took_s)
            differs[study.name] = _difference(study, results)
    return Kicked(tuple(claims), seconds, megabytes, differs)


def _tried(
    study: Study, folder: Path, data: Path, out: Path, studies: int, say: Callable[[str], None]
) -> float:
    """Run a study's ``kick.toml`` with a length that fits; return the seconds it took."""
    whole_s, cut_s = _lengths(study, BUDGET_S / min(studies, MOST_STUDIES))
    for _ in range(MOST_TRIES):
        config = folder / "experiments" / study.name / "kick.toml"
        config.write_text(tomli_w.dumps(config_of(study, cut_s)), encoding="utf-8")
        say(f"{study.name}: trying its first {cut_s:g} emulated s under the virtual clock")
        took_s = _run(study, folder, data, out)
        if took_s is None:
            cut_s = _short(cut_s / SHORTER)
            continue
        idle = _without_model(study, out)
        most_s = LIMIT_S if idle else BUDGET_S
        if took_s * LONGER < most_s and cut_s < whole_s and not _has_learned(study, out):
            cut_s = min(_short(cut_s * LONGER), whole_s)
        elif idle:
            raise UserError(
                f"{study.name}: no new model of {listed(idle)} in the first {cut_s:g} emulated s,"
                f" and {KICK} needs one: give the runs of the other strategies alone"
            )
        else:
            return took_s
    raise UserError(
        f"{study.name}: takes more than {LIMIT_S:g} s for {cut_s:g} emulated s: no"
        f" {KICK} of ten minutes can be made of it"
    )


def _lengths(study: Study, budget_s: float) -> tuple[float, float]:
    """Return the emulated seconds of whole runs, and those that probably take ``budget_s``."""
    first = [run.row for run in study.runs if run.row.seed == study.seeds[0]]
    stop_s = study.config["stop"].get("emulated_s")
    whole_s = max((row.emulated_s or 0.0 for row in first), default=0.0) or stop_s or math.inf
    if not first:
        return whole_s, _short(min(whole_s, 1e5) * UNKNOWN_SHARE)
    # on the wall clock, where nothing else is known: computed no faster than emulated
    taken_s = sum(
        (row.wall_s if study.clock == VIRTUAL else row.emulated_s) or 0.0 for row in first
    )
    share = min(1.0, budget_s / taken_s) if taken_s else 1.0
    return whole_s, whole_s if share == 1.0 else _short(whole_s * share)


def _short(seconds: float) -> float:
    """Return a number of seconds with two digits, as one would write it."""
    return float(f"{seconds:.2g}")


def _run(study: Study, folder: Path, data: Path, out: Path) -> float | None:
    """Run ``kick.toml`` as ``kick-the-tires.sh`` does; return its seconds, None: over LIMIT_S.

    UserError if it fails, unless only because a strategy makes no new model.
    """
    words = [sys.executable, "-m", "edgefl", "run", f"experiments/{study.name}/kick.toml"]
    words += ["--clock", VIRTUAL, "--out", str(out), "--overwrite"]
    began_s = time.monotonic()
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=os.environ | {"EDGEFL_DATA": str(data)},
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode and not (done.returncode == FAILED and _without_model(study, out)):
        lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        told = next((line for line in reversed(lines) if "warning: " not in line), lines[-1])
        said = told.removeprefix("edgefl: ")
        raise UserError(
            f"the experiment does not run in the artifact: {printable(said, 500)} (--include PATH"
            " adds a file that your code opens)"
        )
    return time.monotonic() - began_s


def _without_model(study: Study, out: Path) -> list[str]:
    """The strategies that have ended without a new model; [] unless all have ended."""
    folder = out / f"kick-{study.name}"
    made = {each: run_files.read_summary(folder / each).get("versions") for each in study.labels}
    return [] if None in made.values() else [each for each, count in made.items() if not count]


def _has_learned(study: Study, out: Path) -> bool:
    """Whether each strategy has evaluated a model later than the first one."""
    folder = out / f"kick-{study.name}"
    return all(len(read_csv(folder / label / METRICS)) > 1 for label in study.labels)


def _claims(study: Study, results: Path, took_s: float) -> list[dict[str, Any]]:
    found, config = [], f"experiments/{study.name}/kick.toml"
    for label in study.labels:
        row = _last(study, label, results)
        accuracy = float(row["accuracy"])
        found.append(
            {
                "script": KICK,
                "command": f"edgefl run {config} --clock {VIRTUAL} --out results",
                "text": f"{label} of {study.name}: accuracy of version {row['version']}",
                "how": check.at_version.__name__,
                "run": f"{results.name}/{label}",
                "seeds": study.seeds[:1],
                "version": row["version"],
                "column": "accuracy",
                "unit": "",
                "exact": True,
                "expected": accuracy,
                "tolerance": tolerance([accuracy]),
                "hours": took_s / len(study.labels) / S_PER_H,
                "disk_mb": size_bytes(results / label) / 1e6,
            }
        )
    return found


def _last(study: Study, label: str, results: Path) -> dict[str, str]:
    """Return the last evaluation that also the run of the artifact has, if it has any."""
    rows = [row for row in read_csv(results / label / METRICS) if row["accuracy"]]
    known = {row["version"] for row in _rows_of(study, label)}
    return next((row for row in reversed(rows) if row["version"] in known), rows[-1])


def _rows_of(study: Study, label: str) -> list[dict[str, str]]:
    """Return the evaluations of the first seed's run."""
    runs = study.runs_of(label)
    return read_csv(runs[0].directory / METRICS) if runs else []


def _difference(study: Study, results: Path) -> str:
    """Return the first number in which the runs differ from the short ones; "" if in none."""
    if study.clock != VIRTUAL:
        return ""
    for label in study.labels:
        of_runs = {row["version"]: row for row in _rows_of(study, label)}
        for row in read_csv(results / label / METRICS):
            then = of_runs.get(row["version"], row)
            column = next((each for each in COMPARED if row[each] != then[each]), None)
            if column is not None:
                return (
                    f"{label}, version {row['version']}: {column} {then[column]} in the runs,"
                    f" {row[column]} now"
                )
    return ""
