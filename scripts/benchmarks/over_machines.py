"""Two schemes over machines: FedASMU's requests, and the slots of a TDMA channel.

    python scripts/benchmarks/over_machines.py [--page FILE] [--json FILE]    # 20 minutes

``configs/fedasmu/wallclock.toml`` and ``configs/tdma/wallclock.toml`` run under the virtual clock,
by ``edgefl run`` on loopback, and by ``edgefl launch`` on four hosts: network namespaces of a lab
whose links are ten times faster than the emulated ones (needs root), else local hosts. Each has
schemes with and without what is studied. Runs stay in --out; --judge reads them again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import orjson
from agreement import moments, trace
from machines_judge import (
    Answers,
    Pieces,
    RunTimes,
    answers,
    overlaps,
    pieces_down,
    pieces_up,
    slots_of,
    staleness,
)
from machines_lab import PLACES, ROOT, VIRTUAL, Plan, Study, link_mbit_s, summary
from machines_page import REQUESTS, SLOTS, Agreement, Facts, Result, page
from packet_watch import read
from table import Row, arguments, host_line, load, report, run, say

from edgefl.config.experiment import Experiment
from edgefl.errors import UserError
from edgefl.hosts.setup.plan import devices, options
from edgefl.loading.file import load as load_config
from edgefl.results.tail import read_csv

CONFIGS = ROOT / "configs"
PLANS = (
    Plan(
        REQUESTS,
        CONFIGS / "fedasmu" / "wallclock.toml",
        ("fedasmu", "fedasmu-0", "fedssmu", "fedavg"),
        {"stop": {"emulated_s": 90.0}},
    ),
    Plan(
        SLOTS,
        CONFIGS / "tdma" / "wallclock.toml",
        ("tdma-s3", "idfl-s3", "tdma-s12"),
        {"stop": {"emulated_s": 40.0}},
    ),
)
SMALL = {"data": {"name": "digits"}, "model": {"name": "mlp", "hidden": [32]}}
TINY_PLANS = (
    Plan(
        REQUESTS,
        PLANS[0].base,
        ("fedasmu",),
        SMALL
        | {
            "edges": {"count": 4},
            "devices": {"samples_per_s": 5000.0},
            "stop": {"emulated_s": 4.0},
            "evaluation": {"every_s": 2.0},
        },
        hosts=2,
    ),
    Plan(
        SLOTS,
        PLANS[1].base,
        ("idfl-s1",),
        SMALL
        | {
            "partition": {"name": "one_label", "samples": 50},
            "edges": {"count": 4},
            "stop": {"emulated_s": 4.0},
            "evaluation": {"every_s": 2.0, "train_samples": 100},
        },
        hosts=2,
    ),
)
NONE_GOAL = "<= 0"
MS_PER_S = 1000.0
FACTS = "facts.json"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/over-machines"), metavar="DIR")
    parser.add_argument("--page", type=Path, metavar="FILE", help="also write a page in Markdown")
    parser.add_argument("--judge", action="store_true", help="only judge the runs in --out")
    parser.add_argument("--local", action="store_true", help="local hosts instead of a lab")
    parser.add_argument("--tiny", action="store_true", help="a few seconds; ignore the goals")
    parser.add_argument("--only", choices=[plan.name for plan in PLANS], help="one of the configs")
    chosen, host = parser.parse_args(), host_line()
    root = os.geteuid() == 0
    every = TINY_PLANS if chosen.tiny else PLANS
    plans = [plan for plan in every if chosen.only in (None, plan.name)]
    study = Study(chosen.out, root and not chosen.local)
    if not chosen.judge:
        study.folder.mkdir(parents=True, exist_ok=True)
        facts = facts_of(host, study, every)
        (study.folder / FACTS).write_bytes(orjson.dumps(asdict(facts)))
        for plan in plans:
            study.do(plan, watched=root and plan.name == SLOTS)
    facts = read_facts(study.folder)
    results = [each for plan in plans for each in results_of(study, plan)]
    rows = [row for each in results for row in rows_of(each)]
    if chosen.page is not None:
        chosen.page.write_text(page(facts, results), encoding="utf-8")
        say(f"page: {chosen.page}")
    report(
        "Two schemes over machines",
        facts.host,
        [*rows, Row("load after", float(load()))],
        chosen.json,
    )


def facts_of(host: str, study: Study, plans: Sequence[Plan]) -> Facts:
    """What the page says about all runs, from the configs alone."""
    found = {plan.name: load_config(plan.write(study.folder)) for plan in plans}
    return Facts(
        host,
        study.in_lab,
        {plan.name: plan.hosts for plan in plans},
        {plan.name: link_mbit_s(plan, found[plan.name]) for plan in plans},
        {name: len(experiment.edges.ids()) for name, experiment in found.items()},
        {name: most_samples_per_s(experiment) for name, experiment in found.items()},
    )


def most_samples_per_s(experiment: Experiment) -> float | None:
    """What the fastest devices that may train at one time train together, in the first scheme.

    None with slots, where a device's speed is a number of slots.
    """
    if experiment.medium.kind == "tdma":
        return None
    rates = sorted((each.samples_per_s for each in devices(experiment).values()), reverse=True)
    strategy, values = options(experiment.strategies[0], None)
    return sum(rates[: strategy.concurrency(values, len(rates))])


def read_facts(folder: Path) -> Facts:
    try:
        return Facts(**orjson.loads((folder / FACTS).read_bytes()))
    except OSError as error:
        raise UserError(f"{folder}: no runs of this benchmark ({error.strerror})") from error


# ------------------------------------------------------------------ reading the runs
def results_of(study: Study, plan: Plan) -> Iterator[Result]:
    for method in plan.methods:
        virtual = study.runs(plan, VIRTUAL) / method
        for place in PLACES:
            directory = study.runs(plan, place) / method
            facts = summary(directory)
            yield Result(
                plan.name,
                method,
                place,
                facts,
                staleness(facts),
                None if place == VIRTUAL else agreement(directory, virtual, facts["speed"]),
                answers(read_csv(directory / "links.csv")) if "dissemination" in facts else None,
                *pieces_of(study, plan, place, directory, facts),
            )


def agreement(directory: Path, virtual: Path, speed: float) -> Agreement:
    """Compare a run in real time with the virtual clock."""
    real, ideal = trace(directory), trace(virtual)
    percent = [each.between_percent for each in moments(real, ideal, speed)]
    return Agreement(
        min(len(real.selections), len(ideal.selections)),
        sum(ours != theirs for ours, theirs in zip(real.selections, ideal.selections)),
        (median(percent), max(percent)) if percent else (None, None),
        bool(np.array_equal(real.weights, ideal.weights)),
    )


def pieces_of(
    study: Study, plan: Plan, place: str, directory: Path, facts: dict[str, Any]
) -> tuple[Pieces | None, Pieces | None, int | None]:
    """(Uploads, broadcasts, slots that overlap) of a run on a TDMA channel."""
    if plan.name != SLOTS:
        return None, None, None
    rows, packets = read_csv(directory / "slots.csv"), study.packets(plan, place)
    if place == VIRTUAL or not packets.exists():
        return None, None, overlaps(rows)
    guard_s = load_config(directory / "config.toml").medium.guard_ms / MS_PER_S
    times = RunTimes(facts["began_unix_s"], facts["speed"], facts["emulated_s"])
    passed = read(packets)
    return (
        pieces_up(passed, slots_of(rows, "up", guard_s), times),
        pieces_down(passed, slots_of(rows, "down", guard_s), times),
        overlaps(rows),
    )


# ------------------------------------------------------------------ rows
def rows_of(result: Result) -> Iterator[Row]:
    facts, name = result.summary, f"{result.method}, {result.place}"
    real = result.place != VIRTUAL
    if real:
        yield Row(f"{name}: strained", int(result.strained), "", NONE_GOAL)
        yield Row(f"{name}: speed", facts["speed"])
    yield Row(f"{name}: versions", facts["versions"])
    yield Row(f"{name}: staleness, mean", result.staleness[0], "versions")
    yield Row(f"{name}: final accuracy", facts["final_accuracy"])
    if facts["target_accuracy"] is not None:
        yield Row(f"{name}: time to {facts['target_accuracy']:g}", facts["time_to_target_s"], "s")
    if result.agreement is not None:
        yield from agreement_rows(name, result.agreement)
    if result.answers is not None:
        yield from answer_rows(name, facts["dissemination"], result.answers)
    for what, pieces in (("up", result.up), ("down", result.down)):
        if pieces is not None:
            yield from piece_rows(f"{name}, {what}", pieces)
    if result.overlaps is not None:
        yield Row(f"{name}: slots that overlap", result.overlaps, "", NONE_GOAL)


def agreement_rows(name: str, found: Agreement) -> Iterator[Row]:
    """Rows without goals: events that are close together may happen in another order."""
    yield Row(f"{name}: selections that differ from virtual, of {found.selections}", found.differ)
    yield Row(f"{name}: moment of a version, median from virtual", found.moment_percent[0], "%")
    yield Row(f"{name}: moment of a version, worst from virtual", found.moment_percent[1], "%")


def answer_rows(name: str, asked: dict[str, Any], found: Answers) -> Iterator[Row]:
    yield Row(f"{name}: requests", asked["requests"])
    yield Row(f"{name}: of these, for which a newer model existed", asked["newer"])
    yield Row(f"{name}: fresher models that went down", found.sent)
    yield Row(f"{name}: of these, on a busy downlink", found.sent - found.idle, "", NONE_GOAL)
    yield Row(f"{name}: too late", found.stopped)
    yield Row(f"{name}: assignments delayed by one", found.delayed, "", NONE_GOAL)
    for key in ("before", "after"):
        middle = asked[f"staleness_{key}"]
        value = None if middle is None else middle["mean"]
        yield Row(f"{name}: staleness {key} the merge, mean", value, "versions")


def piece_rows(name: str, pieces: Pieces) -> Iterator[Row]:
    yield Row(f"{name}: pieces", pieces.pieces)
    yield Row(f"{name}: pieces outside their slot", pieces.outside, "", NONE_GOAL)
    yield Row(f"{name}: pieces in the guard time", pieces.in_guard)
    yield Row(f"{name}: least time to the slot's end", pieces.margin_ms, "ms")
    yield Row(f"{name}: least time from the slot's begin", pieces.lead_ms, "ms")


if __name__ == "__main__":
    run(main)
