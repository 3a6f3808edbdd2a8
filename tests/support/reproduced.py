"""Helpers of the tests of ``reproduce.py``: small entries, and results that are invented."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paths import CONFIGS, ROOT, STUDIES
from reproduction.entry import Claim, CurveFigure, Entry, MethodPlan, Part, Scale, Tuning
from reproduction.results import NUMBERS, RESULT, CurveRow, Results, RunRow
from reproduction.rules import better

PATIENCE_S = 300.0
Numbers = Mapping[str, Mapping[int, float | None]]  # method -> seed -> number


def part_of(methods: Sequence[str], name: str = "main", **options: Any) -> Part:
    """Return a part with these methods, which no config needs to have."""
    plans = tuple(MethodPlan(method) for method in methods)
    return Part(name, CONFIGS / "quickstart.toml", plans, **options)


def entry_of(*parts: Part, **options: Any) -> Entry:
    """Return an entry of the first paper."""
    texts = {"source": "table 1", "title": "A study", "reading": "As it is."}
    return Entry(**{"name": "study", "paper": "seed0", "parts": parts, **texts, **options})


def row_of(
    method: str,
    seed: int,
    numbers: Mapping[str, float | None] | None = None,
    role: str = RESULT,
    part: str = "main",
    scale: Scale = Scale.paper,
    **facts: Any,
) -> RunRow:
    """Return the row of a run; numbers that are not given are None."""
    all_numbers = {**dict.fromkeys(NUMBERS), **(numbers or {})}
    setting = facts.pop("setting", {})
    return RunRow(scale, part, method, role, seed, setting, all_numbers, **facts)


def curve_rows(
    method: str, seed: int, scale: Scale = Scale.paper, part: str = "main"
) -> list[CurveRow]:
    """Return three evaluations of a run: accuracy .1, .2 and .3 plus a hundredth of the seed."""
    return [
        CurveRow(
            scale, part, method, seed, 10.0 * at, at, round(0.1 * at + 0.01 * seed, 9), 1.0, None
        )
        for at in (1, 2, 3)
    ]


def results_of(
    column: str, numbers: Numbers, ends_s: float = 100.0, scale: Scale = Scale.paper
) -> Results:
    """Return results of one part "main" in which runs have ``column`` alone, and their end."""
    entry = entry_of(part_of(list(numbers)))
    rows = [
        row_of(method, seed, {column: value, "emulated_s": ends_s}, scale=scale)
        for method, by_seed in numbers.items()
        for seed, value in by_seed.items()
    ]
    return Results(entry, scale, rows)


def digits_entry(name: str = "digits", **options: Any) -> Entry:
    """Return an entry of two tuned methods on the digits, with a claim and a figure: seconds."""
    part = Part(
        "main",
        CONFIGS / "quickstart.toml",
        (
            MethodPlan("fedasync", {"alpha": (0.3, 0.6)}),
            MethodPlan("fedbuff", {"server_learning_rate": (0.5, 1.0)}),
        ),
        overrides=("stop={emulated_s=6.0}", "edges.count=4"),
        small=("stop.emulated_s=4.0",),
        seeds=(1, 2),
        tuning=Tuning(share=0.5, extend=0),
        measures={"twice": lambda run: 2.0},
        columns=("final_accuracy", "twice"),
    )
    claim = Claim(
        "FedAsync is better than FedBuff",
        "table 1: .9 and .8",
        lambda results: better(results, "fedasync", "fedbuff", "final_accuracy"),
    )
    given: dict[str, Any] = {
        "claims": (claim,),
        "figures": (CurveFigure("accuracy", "Test accuracy"),),
        "data": ("digits",),
        "hours": {Scale.small: 0.01, Scale.paper: 0.02},
    }
    return entry_of(part, **{"name": name, **given, **options})


def reproduced(words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the program as a user does."""
    return subprocess.run(
        [sys.executable, str(STUDIES / "reproduce.py"), *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
