"""Compare the results of an artifact's scripts with its claims, and say pass or fail for each.

    python check.py --script kick-the-tires.sh
    python check.py --script reproduce.sh

Each artifact has a copy of this file beside its claims.json. It needs Python alone, so that its
reader need not trust edgefl. A claim is a table:

``id``, ``text``: what is claimed. ``script``: which script makes the numbers.
``how``: how the number is made, a name of HOW. ``expected``: the number, or a word.
``tolerance``: how far a number may be away, in the unit of the claim.
``exact``: the runs use the virtual clock: on a processor of the same kind (``processor`` of
claims.json) the number must be equal, on another kind it must be within ``tolerance``.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Claim = Mapping[str, Any]
HERE = Path(__file__).resolve().parent
CLAIMS, RESULTS = "claims.json", "results"
ROUNDING = 1e-9  # relative difference of two means of the same numbers
VECTORS = ("avx512f", "avx2", "asimd")  # what decides in which order a processor sums
FAITHFUL = "faithful"


class Missing(Exception):
    """A result that a claim needs is not there; the text says which."""


@dataclass(frozen=True)
class Checked:
    """A claim and what was found. ``found``: None if a result is missing."""

    claim: Claim
    found: float | str | None
    passed: bool
    note: str


def processor() -> str:
    """Return the kind of processor, as far as it decides the last bits: "x86_64 avx2"."""
    try:
        words = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        words = set()
    widest = next((name for name in VECTORS if name in words), "")
    return f"{platform.machine()} {widest}".strip()


# ---------------------------------------------------------------------- runs
def summary(results: Path, run: str, seed: int | None) -> dict[str, Any]:
    """Return the summary.json of a run. Missing if there is none."""
    path = _folder(results, run, seed) / "summary.json"
    facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return facts


def _folder(results: Path, run: str, seed: int | None) -> Path:
    """Return the folder of a finished run: of a single seed, or of one of several."""
    for folder in (results / run / f"seed{seed}", results / run):
        if (folder / "summary.json").is_file():
            return folder
    raise Missing(f"no finished run in {results / run}, seed {seed}")


def number(facts: Mapping[str, Any], column: str) -> float | None:
    """Return a number of a summary; "megabytes" are those of both directions."""
    if column == "megabytes":
        return float(facts["bytes_up"] + facts["bytes_down"]) / 1e6
    value = facts.get(column)
    return None if value is None else float(value)


def _numbers(results: Path, claim: Claim, run: str) -> list[float]:
    """Return the numbers of all seeds. Missing if a run has none."""
    found = []
    for seed in claim["seeds"]:
        value = number(summary(results, run, seed), claim["column"])
        if value is None:
            raise Missing(f"{run}, seed {seed}: its {claim['column']} is null")
        found.append(value)
    return found


# ---------------------------------------------------------------------- claims
def mean(results: Path, claim: Claim) -> float:
    """The mean of a column of summary.json over the seeds."""
    values = _numbers(results, claim, claim["run"])
    return math.fsum(values) / len(values)


def having(results: Path, claim: Claim) -> float:
    """The number of seeds that have a number in the column, such as a time to the target."""
    all_facts = [summary(results, claim["run"], seed) for seed in claim["seeds"]]
    return float(sum(number(facts, claim["column"]) is not None for facts in all_facts))


def gain(results: Path, claim: Claim) -> float:
    """The mean difference from the baseline, seed by seed."""
    own, base = (_numbers(results, claim, claim[key]) for key in ("run", "baseline"))
    return math.fsum(a - b for a, b in zip(own, base)) / len(own)


def speed_up(results: Path, claim: Claim) -> float:
    """How many times as much the baseline needs: the geometric mean over the seeds."""
    own, base = (_numbers(results, claim, claim[key]) for key in ("run", "baseline"))
    if not all((*own, *base)):
        raise Missing(f"{claim['run']}: a {claim['column']} is 0")
    return math.exp(math.fsum(math.log(b / a) for a, b in zip(own, base)) / len(own))


def at_version(results: Path, claim: Claim) -> float:
    """A column of metrics.csv in the row of one version of the model, of the first seed."""
    path = _folder(results, claim["run"], claim["seeds"][0]) / "metrics.csv"
    for row in _rows(path):
        if row["version"] == str(claim["version"]) and row.get(claim["column"]):
            return float(row[claim["column"]])
    raise Missing(f"{path}: no {claim['column']} of version {claim['version']}")


def cell(results: Path, claim: Claim) -> float | str:
    """The mean of a column over the rows of a CSV file that have the values of ``where``; or the
    word in it, if there is one row with a word.
    """
    path, where = results / claim["file"], claim["where"]
    texts = [
        row[claim["column"]]
        for row in _rows(path)
        if all(row.get(key) == value for key, value in where.items())
    ]
    if not texts or "" in texts:
        raise Missing(f"{path}: no {claim['column']} for {', '.join(where.values())}")
    try:
        values = [float(text) for text in texts]
    except ValueError:
        return texts[0]
    return math.fsum(values) / len(values)


HOW: Mapping[str, Callable[[Path, Claim], float | str]] = {
    function.__name__: function for function in (mean, having, gain, speed_up, at_version, cell)
}


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        raise Missing(f"no file {path}")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# ---------------------------------------------------------------------- checks
def check(claim: Claim, results: Path, same_processor: bool) -> Checked:
    """Compare a claim with the results. ``same_processor``: as where the claim was made."""
    try:
        found = HOW[claim["how"]](results, claim)
    except Missing as error:
        return Checked(claim, None, False, str(error))
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Checked(claim, None, False, f"damaged result ({type(error).__name__}: {error})")
    expected = claim["expected"]
    if isinstance(expected, str) or isinstance(found, str):
        return Checked(claim, found, found == expected, "")
    if claim["exact"]:
        if math.isclose(found, expected, rel_tol=ROUNDING, abs_tol=0.0):
            return Checked(claim, found, True, "")
        if same_processor:
            return Checked(claim, found, False, "expected the exact number on such a processor")
    passed = abs(found - expected) <= claim["tolerance"]
    note = "not exact: another kind of processor" if claim["exact"] else ""
    return Checked(claim, found, passed, note or _verdicts(claim, results))


def _verdicts(claim: Claim, results: Path) -> str:
    """Say if a run of the wall clock was not faithful, which may be why a claim fails."""
    if "run" not in claim:
        return ""
    runs = [summary(results, claim["run"], seed) for seed in claim["seeds"]]
    verdicts = [each.get("fidelity", {}).get("verdict", FAITHFUL) for each in runs]
    bad = [each for each in verdicts if each != FAITHFUL]
    return f"{len(bad)} of {len(runs)} runs {bad[0]}: this machine did not keep up" if bad else ""


def shown(value: float | str | None) -> str:
    """Return a value as the table has it."""
    if isinstance(value, float | int):
        return f"{value:.6g}"
    return "missing" if value is None else value


def expected(claim: Claim, same_processor: bool = True) -> str:
    """Return the expected value with its tolerance and unit: "14.7 +- 0.5 emulated s"."""
    value = claim["expected"]
    if isinstance(value, str):
        return value
    is_exact = claim["exact"] and same_processor
    unit = f" {claim['unit']}" if claim["unit"] else ""
    how = " exactly" if is_exact else ""
    around = "" if is_exact else f" +- {claim['tolerance']:.3g}"
    return f"{shown(value)}{around}{unit}{how}"


def report(checked: Sequence[Checked], same_processor: bool) -> str:
    """Return a line for each claim, and a last line with how many pass."""
    lines = []
    for each in checked:
        note = f" ({each.note})" if each.note else ""
        lines.append(
            f"{each.claim['id']:<4} {'pass' if each.passed else 'FAIL'}  {each.claim['text']}:"
            f" {shown(each.found)}, expected {expected(each.claim, same_processor)}{note}"
        )
    passed = sum(each.passed for each in checked)
    return "\n".join([*lines, f"{passed} of {len(checked)} claims pass"])


def checked(folder: Path, script: str, results: Path | None = None) -> tuple[list[Checked], str]:
    """Check the claims of ``script`` in an artifact; return them, and the report about them."""
    facts = json.loads((folder / CLAIMS).read_text(encoding="utf-8"))
    same = processor() == facts["processor"]
    claims = [claim for claim in facts["claims"] if claim["script"] == script]
    found = [check(claim, results or folder / RESULTS, same) for claim in claims]
    return found, report(found, same)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--script", required=True, help="whose claims are checked")
    parser.add_argument("--results", type=Path, help="the folder of the results")
    options = parser.parse_args()
    found, text = checked(HERE, options.script, options.results)
    print(text)
    sys.exit(not all(each.passed for each in found))


if __name__ == "__main__":
    main()
