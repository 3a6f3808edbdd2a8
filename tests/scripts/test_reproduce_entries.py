"""Every registered entry: its configs load, its studies are fair, its claims and figures work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest
from paths import ROOT
from reproduction import figures, registry, rules
from reproduction.book import Book
from reproduction.entry import Entry, Part, Scale, Verdict
from reproduction.plans import PartPlan
from reproduction.results import NUMBERS, RESULT, TUNING, CurveRow, Results, RunRow
from reproduction.runner import EntryRunner, Work

from edgefl import catalog
from edgefl.hosts.choices import Power
from edgefl.sweep.sweep_runs import Did

ENTRIES = list(registry.entries().values())
DATA = ROOT / "docs" / "results" / "data"
INSTALLED = {"digits"}
SMALLEST = ("stop={emulated_s=3.0}", "evaluation.every_s=1.0")

each_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


def share(*words: object) -> float:
    """Return a number from .1 to .9 that depends on the words alone."""
    return 0.1 + 0.8 * crc32(repr(words).encode()) / 2**32


def invented(entry: Entry, scale: Scale = Scale.paper) -> Results:
    """Return results of an entry in which every planned run is there."""
    parts = [part for part in entry.parts if scale in part.scales]
    rows = [row for part in parts for row in rows_of(part, scale)]
    curves = [point for part in parts for point in curves_of(part, scale)]
    return Results(entry, scale, rows, curves, lambda name: invented(registry.find(name), scale))


def rows_of(part: Part, scale: Scale) -> Iterator[RunRow]:
    for method in part.methods:
        setting = {name: str(values[0]) for name, values in method.axes.items()}
        for seed in part.seeds_at(scale):
            numbers = {name: share(name, method.shown, seed) for name in (*NUMBERS, *part.measures)}
            numbers["emulated_s"] = 100.0
            yield RunRow(scale, part.name, method.shown, RESULT, seed, setting, numbers)
        if part.tuning is not None:
            score = {part.tuning.metric: 0.5}
            seed = part.tuning.seed
            yield RunRow(scale, part.name, method.shown, TUNING, seed, setting, score)


def curves_of(part: Part, scale: Scale) -> Iterator[CurveRow]:
    for method in part.methods:
        for seed in part.seeds_at(scale):
            for at in range(5):
                values = [share(name, method.shown, seed, at) for name in "abc"]
                yield CurveRow(scale, part.name, method.shown, seed, 25.0 * at, at, *values)


@each_entry
def test_an_entry_is_whole(entry: Entry) -> None:
    assert entry.title and entry.reading and entry.source
    runs_at = {scale for part in entry.parts for scale in part.scales}
    assert set(entry.hours) >= runs_at | {Scale.paper}, "expected CPU-hours of its scales"
    assert set(entry.data) <= set(catalog.names("edgefl.data", "load"))
    names = [part.name for part in entry.parts]
    assert len(set(names)) == len(names) and all(part.methods for part in entry.parts)
    assert all(registry.find(name).parts for name in entry.uses)
    assert entry.parts or entry.uses or entry.needs
    for part in entry.parts:
        if part.settings_of:
            of_entry, slash, of_part = part.settings_of.rpartition("/")
            source = registry.find(of_entry) if slash else entry
            assert source.part(of_part).tuning is not None, part.name
        assert set(part.columns) <= {*NUMBERS, *part.measures}, part.name
        assert part.tuning is None or part.tuning.metric in NUMBERS, part.name


@each_entry
@pytest.mark.parametrize("scale", list(Scale))
def test_the_configs_of_an_entry_load_and_its_parts_are_fair(
    entry: Entry, scale: Scale, tmp_path: Path
) -> None:
    wanted = set()
    for part in entry.parts:
        if scale not in part.scales:
            continue
        plan = PartPlan(entry, part, scale, tmp_path)
        plan.check()
        experiment = plan.experiment()
        wanted |= {experiment.data.name} | (
            {experiment.unlabelled.data} if experiment.unlabelled is not None else set()
        )
        if part.tuning is not None:
            runs = plan.sweep(lambda key: None).runs()
            assert runs and {run.experiment.seed for run in runs} == {part.tuning.seed}
            best = {each.shown: {} for each in part.methods}
            assert len(plan.table(best)) == len(part.methods) * len(part.seeds_at(scale))
    used = {name for other in entry.uses for name in registry.find(other).data}
    assert wanted - {"held_out", *INSTALLED} <= {*entry.data, *used}


@each_entry
@pytest.mark.parametrize("scale", list(Scale))
def test_claims_and_figures_need_only_what_the_entry_has(
    entry: Entry, scale: Scale, tmp_path: Path
) -> None:
    results = invented(entry, scale)
    elsewhere = bool(entry.needs) and not entry.parts  # registered, with nothing to run here
    names = {part.name for part in entry.parts}
    for claim in entry.claims:
        needs = {need.rpartition("/")[2] if "/" in need else need for need in claim.needs}
        of_used = {part.name for name in entry.uses for part in registry.find(name).parts}
        assert needs <= names | of_used | set(entry.uses), claim.text
        finding = rules.judged(claim.judge, results)
        missing = finding.verdict is Verdict.missing
        assert finding.ours or missing, claim.text
        assert not missing or scale is Scale.small or elsewhere, f"{claim.text}: {finding.why}"
        assert claim.text and claim.published
    for figure in entry.figures:
        path = figures.write(figure, results, tmp_path)
        assert path is not None or scale is Scale.small or elsewhere, figure.name


def cheap(entry: Entry) -> bool:
    return bool(entry.parts) and set(entry.data) <= INSTALLED


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize(
    "entry", [entry for entry in ENTRIES if cheap(entry)], ids=lambda entry: entry.name
)
def test_an_entry_without_downloads_runs_for_a_few_emulated_seconds(
    entry: Entry, tmp_path: Path
) -> None:
    parts = [replace(part, small=(), small_seeds=(1,)) for part in entry.parts]
    # a map has a hundred methods that differ in one number
    fewer = [part if part.tuning else replace(part, methods=part.methods[:4]) for part in parts]
    short = replace(entry, parts=tuple(fewer))
    work = Work(Scale.small, Power(1), tmp_path / "runs", tmp_path / "data", SMALLEST)
    assert EntryRunner(short, work).run() == Did()


def test_a_claim_that_does_not_hold_has_a_cause() -> None:
    book = Book(ENTRIES, DATA)
    judged = [book.judged(entry, claim) for entry in ENTRIES for claim in entry.claims]
    assert [
        each.claim.text
        for each in judged
        if each.finding.verdict is Verdict.fails
        and each.scale is Scale.paper
        and each.is_complete
        and not each.claim.cause
    ] == []
