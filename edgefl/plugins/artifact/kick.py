"""``kick-the-tires.sh``: a short start of each experiment under the virtual clock, tried at once.

The first seed of each experiment runs for as many emulated seconds as fit into a minute here, so
that ten minutes are enough on slower machines, too. The last evaluated model of each strategy is a
claim: the virtual clock gives the same numbers again. If the runs of the artifact were made under
the virtual clock, they begin with the same numbers; if not, this copy of edgefl computes others.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from edgefl.clocks.choices import VIRTUAL
from edgefl.errors import UserError, printable
from edgefl.plugins.artifact import check
from edgefl.plugins.artifact.contents import KICK, S_PER_H, Study, tolerance
from edgefl.plugins.artifact.users_files import size_bytes
from edgefl.record.files import METRICS
from edgefl.results.read import read_csv

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


def kicked(
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
        took_s = _run(config, folder, data, out)
        if took_s is None:
            cut_s = _short(cut_s / SHORTER)
        elif took_s * LONGER < BUDGET_S and cut_s < whole_s and not _has_learned(study, out):
            cut_s = min(_short(cut_s * LONGER), whole_s)
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


def _run(config: Path, folder: Path, data: Path, out: Path) -> float | None:
    """Run a config as ``kick-the-tires.sh`` does; return its seconds, None: more than LIMIT_S."""
    words = [sys.executable, "-m", "edgefl", "run", str(config.relative_to(folder))]
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
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        said = lines[-1].removeprefix("edgefl: ")
        raise UserError(
            f"the experiment does not run in the artifact: {printable(said, 500)} (--include PATH"
            " adds a file that your code opens)"
        )
    return time.monotonic() - began_s


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
