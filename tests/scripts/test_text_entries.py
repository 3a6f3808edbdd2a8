"""Entries of texts on the edge: plans, verdicts on made-up results, measures, runs in small."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from reproduced import entry_of, part_of
from reproduction import registry, rules
from reproduction.entries import texts
from reproduction.entries._text_measures import above_majority, f1, majority, update_mb
from reproduction.entries.texts_payload import PAYLOAD, PAYLOAD_PART, TARGET
from reproduction.entry import Entry, MethodPlan, Part, Scale, Tuning
from reproduction.plans import PartPlan
from reproduction.results import NUMBERS, RESULT, Results, RunRow
from reproduction.runner import EntryRunner, Work
from reproduction.tables import Tables

from edgefl.errors import UserError
from edgefl.hosts.choices import Power
from edgefl.strategies.base import catalog
from edgefl.strategies.base.buffered import Buffered
from edgefl.sweep.sweep_runs import Did

Numbers = Callable[[str, str, str], float]  # (part, method, column) -> the number
METRICS = "version,emulated_s,accuracy,f1\n0,0.0,0.34,\n2,9.0,0.72,0.81\n"
PER_LABEL = "version,emulated_s,label_0,label_1\n0,0.0,1.0,0.04\n2,9.0,0.3,0.9\n"


# ------------------------------------------------------------------ plans
def test_mrpc_has_every_buffered_method_on_both_clocks() -> None:
    parts = {part.name: part for part in (*texts.MRPC.parts, *texts.MRPC_CLOCKS.parts)}
    assert [name for name, part in parts.items() if part.clock == "wall"] == ["wall", "wall-small"]
    buffered = {
        name for name in catalog.strategy_names() if issubclass(catalog.load(name), Buffered)
    }
    for part in parts.values():
        assert {method.label for method in part.methods} == buffered
    assert all(len(part.seeds) == 3 for part in texts.MRPC.parts)
    for names in texts.CLOCK_PARTS:
        virtual, wall = (replace(parts[name], name="", clock="", title="") for name in names)
        assert virtual == wall


@pytest.mark.parametrize("scale", list(Scale))
def test_a_row_of_the_payload_table_has_its_link_and_its_kind(scale: Scale, tmp_path: Path) -> None:
    plan = PartPlan(PAYLOAD, PAYLOAD_PART, scale, tmp_path)
    plan.check()
    runs = plan.table({method.shown: {} for method in PAYLOAD_PART.methods})
    found = {
        run.method.shown: (
            run.run.experiment.links.profile,
            run.run.experiment.model.options()["train"],
        )
        for run in runs
    }
    assert found == {
        f"{link}-{kind}": (link, kind)
        for link in ("nb-iot", "dsl", "lte")
        for kind in ("all", "lora", "head")
    }
    assert len({run.run.experiment.stop for run in runs}) == 1
    assert len({run.digest for run in runs}) == 9, "a digest counts the changes"


def test_changes_of_one_method_are_refused_where_they_would_be_unfair(tmp_path: Path) -> None:
    def check(*changes: str, **options: Tuning) -> None:
        one = MethodPlan("fedasync", name="one", changes=changes)
        part = replace(part_of(["fedbuff"], **options), methods=(one, MethodPlan("fedbuff")))
        PartPlan(entry_of(part), part, Scale.paper, tmp_path).check()

    check("links.up_mbit_s=1.0")
    with pytest.raises(UserError, match=r"one: stop.versions=9: expected an equal stop"):
        check("stop.versions=9")
    with pytest.raises(UserError, match=r"one: expected no changes in a tuned part"):
        check("links.up_mbit_s=1.0", tuning=Tuning())


# ------------------------------------------------------------------ claims
def made_up(entry: Entry, numbers: Numbers) -> Results:
    """Return results of three seeds, or those of the part, which differ by a thousandth."""
    rows = [
        RunRow(
            Scale.paper,
            part.name,
            method.shown,
            RESULT,
            seed,
            {},
            {
                column: numbers(part.name, method.shown, column) + 0.001 * seed
                for column in (*NUMBERS, *part.measures)
            },
        )
        for part in entry.parts
        for method in part.methods
        for seed in part.seeds
    ]
    return Results(entry, Scale.paper, rows)


def verdict(entry: Entry, words: str, numbers: Numbers) -> str:
    (claim,) = (claim for claim in entry.claims if words in claim.text)
    return str(rules.judged(claim.judge, made_up(entry, numbers)).verdict)


@pytest.mark.parametrize(
    ("gain", "expected"),
    [(0.05, "holds"), (0.0, "does not hold"), (0.0081, "cannot be told at this budget")],
)
def test_the_majority_class_itself_does_not_beat_it(gain: float, expected: str) -> None:
    assert verdict(texts.MRPC, "in whole, with", lambda *_: gain) == expected


def test_one_method_at_the_majority_class_is_enough_to_fail() -> None:
    def numbers(part: str, method: str, column: str) -> float:
        return 0.0 if (part, method) == ("lora", "fadas") else 0.06

    assert verdict(texts.MRPC, "adapters alone", numbers) == "does not hold"
    assert verdict(texts.MRPC, "in whole, with", numbers) == "holds"
    assert verdict(texts.MRPC, "random weights", numbers) == "does not hold"


@pytest.mark.parametrize(("gap", "expected"), [(0.02, "holds"), (-0.04, "does not hold")])
def test_the_clocks_are_compared_seed_by_seed(gap: float, expected: str) -> None:
    def numbers(part: str, method: str, column: str) -> float:
        return 0.7 + (gap if (part, method) == ("wall", "ca2fl") else 0.0)

    assert verdict(texts.MRPC_CLOCKS, "MiniLM", numbers) == expected
    assert verdict(texts.MRPC_CLOCKS, "Two layers", numbers) == "holds"


def test_payload_claims_compare_the_rows_of_one_link() -> None:
    def numbers(part: str, method: str, column: str) -> float:
        light = method.endswith("-lora")
        told = {"update_mb": (1.0, 91.0), "time_to_target_s": (10.0, 99.0)}
        return told.get(column, (5.0, 40.0))[0 if light else 1]

    def slow_lte(part: str, method: str, column: str) -> float:
        return 39.0 if method == "lte-lora" else numbers(part, method, column)

    assert verdict(PAYLOAD, "a twentieth", numbers) == "holds"
    assert verdict(PAYLOAD, "a tenth of the time", numbers) == "does not hold", "an eighth"
    assert verdict(PAYLOAD, "On nb-iot adapters", numbers) == "holds"
    assert verdict(PAYLOAD, "a twentieth", slow_lte) == "does not hold", "on every link"
    (figure,) = PAYLOAD.figures
    panels = figure.lines(made_up(PAYLOAD, numbers))  # type: ignore[attr-defined]  # of LineFigure
    adapters = panels[f"to accuracy {TARGET:g}"]["adapters"]
    assert [point.x for point in adapters] == [25.0, 1000.0, 7600.0]
    assert adapters[0].y == pytest.approx(10.002 / 3600)


# ------------------------------------------------------------------ measures
def left(folder: Path, labels: str = PER_LABEL) -> Path:
    """Write what a run with 660 of 1,000 test pairs of label 1 leaves; return its directory."""
    (folder / "metrics.csv").write_text(METRICS.replace("0.34", str(0.34 + 0.66 * 0.04)))
    (folder / "labels.csv").write_text(labels)
    summary = {"final_accuracy": 0.72, "bytes_up": 3_000_000, "updates_received": 6}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def test_the_majority_class_follows_from_the_accuracies_of_the_labels(tmp_path: Path) -> None:
    run = left(tmp_path)
    assert majority(run) == pytest.approx(0.66)
    assert above_majority(run) == pytest.approx(0.06)
    assert f1(run) == 0.81 and update_mb(run) == 0.5


def test_without_different_labels_the_majority_class_is_not_known(tmp_path: Path) -> None:
    run = left(tmp_path, "version,emulated_s,label_0,label_1\n0,0.0,0.4,0.4\n")
    assert majority(run) is None and above_majority(run) is None


# ------------------------------------------------------------------ runs
@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    from text_rig import text_data

    monkeypatch.setenv("EDGEFL_DATA", str(text_data()))


TINY = (
    "model.path='models/bert'",
    "data.length=24",
    "edges.count=4",
    "training.batches_per_epoch=1",
    "stop.versions=1",
    "unlabelled.size=8",
)


def small_work(folder: Path) -> Work:
    return Work(Scale.small, Power(1), folder / "runs", folder / "data", TINY)


@pytest.mark.usefixtures("tiny", "warm_python")
def test_the_payload_table_counts_what_each_kind_sends(tmp_path: Path) -> None:
    fewer = replace(PAYLOAD_PART, methods=PAYLOAD_PART.methods[:3])
    entry = replace(PAYLOAD, parts=(fewer,))
    work = small_work(tmp_path)
    assert EntryRunner(entry, work).run() == Did()
    rows = {row.method: row.numbers for row in Tables(work.data, entry).rows}
    up = {name: numbers["update_mb"] for name, numbers in rows.items()}
    assert up["nb-iot-all"] > up["nb-iot-lora"] > up["nb-iot-head"] > 0
    times = {name: numbers["emulated_s"] for name, numbers in rows.items()}
    assert times["nb-iot-all"] > times["nb-iot-lora"] > times["nb-iot-head"]
    shares = [numbers["majority"] for numbers in rows.values()]
    assert shares == pytest.approx([2 / 3] * 3, abs=1e-4), "two of three made-up pairs"


def of_part(of: Entry, name: str, methods: int) -> tuple[Entry, Part]:
    part = of.part(name)
    fewer = replace(part, methods=part.methods[:methods])
    return replace(of, parts=(fewer,)), fewer


@pytest.mark.usefixtures("tiny", "warm_python")
@pytest.mark.parametrize("name", ["all", "lora"])
def test_all_buffered_methods_run_in_small(name: str, tmp_path: Path) -> None:
    entry, part = of_part(texts.MRPC, name, 5)
    work = small_work(tmp_path)
    assert EntryRunner(entry, work).run() == Did()
    rows = Tables(work.data, entry).rows
    assert {row.method for row in rows} == {method.shown for method in part.methods}
    assert all(row.numbers["f1"] is not None for row in rows)


@pytest.mark.processes
@pytest.mark.usefixtures("tiny", "warm_python")
def test_the_part_on_the_wall_clock_leaves_a_verdict(tmp_path: Path) -> None:
    entry, _ = of_part(texts.MRPC_CLOCKS, "wall", 1)
    work = small_work(tmp_path)
    assert EntryRunner(entry, work).run() == Did()
    (row,) = Tables(work.data, entry).rows
    assert row.fidelity in ("faithful", "strained") and row.numbers["versions"] == 1


def test_the_entries_are_registered() -> None:
    assert {"seed3-mrpc-minilm", "seed3-mrpc-clocks", "seed3-payload"} <= registry.entries().keys()
