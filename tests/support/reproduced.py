"""Helpers of the tests of ``reproduce.py``: small entries, and results that are invented."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paths import CONFIGS, ROOT, STUDIES
from reproduction.entry import Entry, MethodPlan, Part, Scale
from reproduction.results import NUMBERS, RESULT, TUNING, CurveRow, Results, RunRow

PATIENCE_S = 300.0
Numbers = Mapping[str, Mapping[int, float | None]]  # method -> seed -> number


def part_of(methods: Sequence[str | MethodPlan], name: str = "main", **options: Any) -> Part:
    """Return a part with these methods, which no config needs to have."""
    plans = [MethodPlan(label=each) if isinstance(each, str) else each for each in methods]
    config = CONFIGS / "quickstart.toml"
    return Part(**{"name": name, "config": config, "methods": plans, **options})


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


def made_up(
    entry: Entry,
    number: Callable[[str, str, str, int], float],
    scale: Scale = Scale.paper,
    find: Callable[[str], Entry] | None = None,
) -> Results:
    """Return results in which every planned run is there.

    ``number``: part, method, column and seed -> the number; also the values of the curves.
    ``find``: the entries that it uses.
    """
    parts = [part for part in entry.parts if scale in part.scales]
    runs = [
        (part, method, seed)
        for part in parts
        for method in part.methods
        for seed in part.seeds_at(scale)
    ]
    rows = [
        RunRow(
            scale,
            part.name,
            method.shown,
            RESULT,
            seed,
            {name: str(values[0]) for name, values in method.axes.items()},
            {
                column: number(part.name, method.shown, column, seed)
                for column in (*NUMBERS, *part.measures)
            },
        )
        for part, method, seed in runs
    ]
    rows += [
        row_of(
            method.shown,
            part.tuning.seeds[0],
            {name: number(part.name, method.shown, name, 0) for name in NUMBERS},
            TUNING,
            part.name,
            scale,
            setting={
                name: str(its[0]) for name, its in {**part.tuning.knobs, **method.axes}.items()
            },
        )
        for part in parts
        if part.tuning is not None
        for method in part.methods
    ]
    curves = [
        CurveRow(
            scale,
            part.name,
            method.shown,
            seed,
            25.0 * at,
            at,
            *(number(part.name, method.shown, f"{name} {at}", seed) for name in "abc"),
        )
        for part, method, seed in runs
        for at in range(5)
    ]
    if find is None:
        return Results(entry, scale, rows, curves)
    return Results(
        entry, scale, rows, curves, lambda name: made_up(find(name), number, scale, find)
    )


def digits_entry(name: str = "digits", **options: Any) -> Entry:
    """Return an entry of two tuned methods on the digits, with a claim and a figure: seconds."""
    part = part_of(
        [
            MethodPlan(label="fedasync", axes={"alpha": (0.3, 0.6)}),
            MethodPlan(label="fedbuff", axes={"server_learning_rate": (0.5, 1.0)}),
        ],
        overrides=("stop={emulated_s=6.0}", "edges.count=4"),
        small=("stop.emulated_s=4.0",),
        seeds=(1, 2),
        tuning={"share": 0.5, "extend": 0},
        measures=("staleness_median",),
        columns=("final_accuracy", "staleness_median"),
    )
    claim = {
        "text": "FedAsync is better than FedBuff",
        "published": "table 1: .9 and .8",
        "judge": {"better": ["fedasync", "fedbuff", "final_accuracy"]},
    }
    given: dict[str, Any] = {
        "claims": [claim],
        "figures": [{"name": "accuracy", "title": "Test accuracy"}],
        "data": ["digits"],
        "hours": {"small": 0.01, "paper": 0.02},
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
