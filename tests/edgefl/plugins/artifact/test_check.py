"""The checker of an artifact: how it makes a number, and when a claim passes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgefl.plugins.artifact import check

CLAIM = {
    "id": "C1",
    "text": "a: time",
    "script": "reproduce.sh",
    "how": "mean",
    "run": "study/a",
    "baseline": "study/b",
    "seeds": [1, 2],
    "column": "time_to_target_s",
    "unit": "s",
    "exact": False,
    "expected": 5.0,
    "tolerance": 0.5,
}


def claim(**changes: Any) -> dict[str, Any]:
    return CLAIM | changes


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two strategies with two seeds, and one with a single seed."""
    times = {"a/seed1": 4.0, "a/seed2": 6.0, "b/seed1": 8.0, "b/seed2": 3.0, "c": None}
    for name, time_s in times.items():
        run = tmp_path / "study" / name
        run.mkdir(parents=True)
        facts = {"time_to_target_s": time_s, "bytes_up": 1_000_000, "bytes_down": 500_000}
        verdict = {"fidelity": {"verdict": "strained" if name == "a/seed2" else "faithful"}}
        (run / "summary.json").write_text(json.dumps(facts | verdict))
        (run / "metrics.csv").write_text("version,accuracy\n0,0.1\n7,0.75\n8,\n")
    (tmp_path / "verdicts.csv").write_text("entry,claim,verdict\nfig5,it is so,holds\n")
    (tmp_path / "rows.csv").write_text("method,seed,accuracy\na,1,0.5\na,2,0.7\nb,1,\n")
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, 5.0),
        ({"column": "megabytes"}, 1.5),
        ({"how": "having"}, 2.0),
        ({"how": "having", "run": "study/c", "seeds": [1]}, 0.0),
        ({"how": "gain"}, -0.5),
        ({"how": "speed_up"}, 1.0),
        ({"how": "at_version", "version": "7", "column": "accuracy"}, 0.75),
        ({"how": "cell", "file": "rows.csv", "where": {"method": "a"}, "column": "accuracy"}, 0.6),
    ],
)
def test_a_number_is_made_from_the_results(
    changes: dict[str, Any], found: float, results: Path
) -> None:
    assert check.check(claim(**changes), results, True).found == pytest.approx(found)


@pytest.mark.parametrize(
    ("changes", "same", "passed"),
    [
        ({}, True, True),
        ({"expected": 5.4}, True, True),
        ({"expected": 5.6}, True, False),
        ({"exact": True}, True, True),
        ({"exact": True, "expected": 5.0 + 1e-12}, True, True),
        ({"exact": True, "expected": 5.4}, True, False),
        ({"exact": True, "expected": 5.4}, False, True),  # another kind of processor
        ({"exact": True, "expected": 5.6}, False, False),
    ],
)
def test_exact_or_within_the_tolerance(
    changes: dict[str, Any], same: bool, passed: bool, results: Path
) -> None:
    assert check.check(claim(**changes), results, same).passed is passed


def test_a_word_must_be_equal(results: Path) -> None:
    one = {"how": "cell", "file": "verdicts.csv", "column": "verdict"}
    one |= {"where": {"entry": "fig5", "claim": "it is so"}, "expected": "holds"}
    assert check.check(claim(**one), results, True).passed
    assert not check.check(claim(**{**one, "expected": "equal"}), results, True).passed


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seeds": [1, 2, 3]}, "no finished run in .*study/a, seed 3"),
        ({"run": "study/c", "seeds": [1]}, "time_to_target_s is null"),
        ({"how": "at_version", "version": "8", "column": "accuracy"}, "no accuracy of version 8"),
        ({"how": "cell", "file": "no.csv", "where": {}, "column": "a"}, "no file .*no.csv"),
        (
            {"how": "cell", "file": "rows.csv", "where": {"method": "b"}, "column": "accuracy"},
            "no accuracy for b",
        ),
    ],
)
def test_a_missing_result_fails_and_says_what_is_missing(
    changes: dict[str, Any], told: str, results: Path
) -> None:
    found = check.check(claim(**changes), results, True)
    assert not found.passed and found.found is None
    assert re.search(told, found.note)


def test_a_damaged_summary_fails_in_one_line(results: Path) -> None:
    (results / "study" / "a" / "seed1" / "summary.json").write_text("{")
    found = check.check(claim(), results, True)
    assert not found.passed and "damaged result" in found.note


def test_the_report_says_pass_or_fail_and_whether_the_machine_kept_up(results: Path) -> None:
    claims = [claim(), claim(id="C2", expected=9.0)]
    text = check.report([check.check(each, results, True) for each in claims], True)
    assert text.splitlines() == [
        "C1   pass  a: time: 5, expected 5 +- 0.5 s (1 of 2 runs strained: this machine did not"
        " keep up)",
        "C2   FAIL  a: time: 5, expected 9 +- 0.5 s (1 of 2 runs strained: this machine did not"
        " keep up)",
        "1 of 2 claims pass",
    ]


@pytest.mark.processes
def test_a_copy_of_the_file_needs_nothing_but_python(results: Path, tmp_path: Path) -> None:
    folder = tmp_path / "artifact"
    folder.mkdir()
    (folder / "check.py").write_bytes(Path(str(check.__file__)).read_bytes())
    facts = {"processor": "a PDP-11", "claims": [claim(), claim(script="other.sh", expected=0.0)]}
    (folder / "claims.json").write_text(json.dumps(facts))
    words = [sys.executable, "-I", "-S", str(folder / "check.py"), "--results", str(results)]
    done = subprocess.run([*words, "--script", "reproduce.sh"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and "1 of 1 claims pass" in done.stdout
    assert subprocess.run([*words, "--script", "other.sh"], capture_output=True).returncode == 1
