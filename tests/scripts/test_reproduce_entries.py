"""Every registered entry: its configs load, its studies are fair, its claims and figures work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from zlib import crc32

import pytest
from paths import ROOT
from reproduced import made_up
from reproduction import figures, pages, registry
from reproduction.book import Book
from reproduction.drawings import lines_of
from reproduction.entry import Entry, Figure, Scale, Verdict
from reproduction.judges import judged
from reproduction.measures import MEASURES
from reproduction.plans import PartPlan, config_digest
from reproduction.results import NUMBERS, RESULT, NoResults, Results, Tables, key_of
from reproduction.runner import EntryRunner, Work

from edgefl import catalog
from edgefl.clocks.choices import Power
from edgefl.config.file import load
from edgefl.errors import UserError
from edgefl.plugins.sweep.sweep_runs import Did

ENTRIES = list(registry.entries().values())
RESULTS = ROOT / "docs" / "results"
INSTALLED = {"digits"}
CLOCK = ("--clock", "virtual")
SMALLEST = ("stop={emulated_s=3.0}", "evaluation.every_s=1.0")

each_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


def share(*words: object) -> float:
    """Return a number from .1 to .9 that depends on the words alone."""
    return 0.1 + 0.8 * crc32(repr(words).encode()) / 2**32


def invented(entry: Entry, scale: Scale = Scale.paper) -> Results:
    return made_up(entry, share, scale, registry.find)


def is_drawn(figure: Figure, results: Results) -> bool:
    """Return whether a figure has anything to draw."""
    if not figure.lines:
        return any(figures.curves_of(figure, results).values())
    try:
        panels = lines_of(figure.lines, results)
    except NoResults:
        return False
    return any(points for lines in panels.values() for points in lines.values())


@each_entry
@pytest.mark.slow
def test_an_entry_is_whole(entry: Entry) -> None:
    assert entry.title and entry.reading.endswith(".") and entry.source
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
        assert set(part.measures) <= MEASURES.keys(), part.name
        assert set(part.columns) <= {*NUMBERS, *part.measures}, part.name
        assert part.tuning is None or part.tuning.metric in NUMBERS, part.name


@pytest.mark.rest
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
            assert runs and {run.experiment.seed for run in runs} == {*part.tuning.seeds}
    used = {name for other in entry.uses for name in registry.find(other).data}
    assert wanted - {"held_out", *INSTALLED} <= {*entry.data, *used}


@each_entry
@pytest.mark.parametrize("scale", list(Scale))
def test_claims_and_figures_need_only_what_the_entry_has(entry: Entry, scale: Scale) -> None:
    results = invented(entry, scale)
    elsewhere = bool(entry.needs) and not entry.parts  # registered, with nothing to run here
    used = {f"{name}/{part.name}" for name in entry.uses for part in registry.find(name).parts}
    names = {part.name for part in entry.parts} | set(entry.uses) | used
    for claim in entry.claims:
        assert claim.text and not claim.text.endswith("."), "the page ends the sentence"
        assert claim.published and set(claim.needs) <= names, claim.text
        finding = judged(claim.judge, results)
        missing = finding.verdict is Verdict.missing
        assert finding.ours or missing, claim.text
        assert not missing or scale is Scale.small or elsewhere, f"{claim.text}: {finding.why}"
        without = judged(claim.judge, Results(entry, scale))
        assert without.verdict is Verdict.missing, claim.text
    for figure in entry.figures:
        drawn = is_drawn(figure, results)
        assert drawn or scale is Scale.small or elsewhere, figure.name


@pytest.mark.usefixtures("warm_python")
@pytest.mark.rest
@pytest.mark.parametrize(
    "entry",
    [entry for entry in ENTRIES if entry.parts and set(entry.data) <= INSTALLED],
    ids=lambda entry: entry.name,
)
def test_an_entry_without_downloads_runs_for_a_few_emulated_seconds(
    entry: Entry, tmp_path: Path
) -> None:
    # a map has a hundred methods that differ in one number
    short = [
        part.model_copy(
            update={
                "small": (),
                "small_seeds": (1,),
                "methods": part.methods if part.tuning else part.methods[:4],
            }
        )
        for part in entry.parts
    ]
    work = Work(Scale.small, Power(1), tmp_path / "runs", tmp_path / "data", SMALLEST)
    assert EntryRunner(entry.model_copy(update={"parts": short}), work).run() == Did()


@pytest.mark.slow
def test_a_claim_that_does_not_hold_has_a_cause() -> None:
    book = Book(ENTRIES, RESULTS / "data")
    assert [
        each.claim.text
        for entry in ENTRIES
        for each in book.judged(entry)
        if each.finding.verdict is Verdict.fails
        and each.scale is Scale.paper
        and each.is_complete
        and not each.claim.cause
    ] == []


def results_folder(folder: Path) -> Path:
    """Return a folder with the result files and the pages by hand."""
    for name in ("data", "rule.md", "changes.md"):
        (folder / name).symlink_to(RESULTS / name)
    return folder


@pytest.mark.slow
def test_the_pages_are_those_of_the_result_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(figure: Figure, results: Results, folder: Path) -> Path | None:
        path = folder / f"{results.entry.name}-{figure.name}.svg"
        return path if is_drawn(figure, results) else None

    monkeypatch.setattr(figures, "write", drawn)
    for path in pages.write(results_folder(tmp_path), ENTRIES):
        assert path.read_text() == (RESULTS / path.name).read_text(), path.name


@pytest.mark.rest
def test_the_strategies_reference_has_the_results_of_the_result_files() -> None:
    reference = (RESULTS.parent / "reference" / "strategies.md").read_text()
    assert pages.with_boxes(Book(ENTRIES, RESULTS / "data"), reference) == reference


@pytest.mark.rest
def test_the_commands_of_the_boxes_repeat_the_runs_of_the_result_files() -> None:
    reference = (RESULTS.parent / "reference" / "strategies.md").read_text()
    boxes = re.findall(r"As \*(\S+)\* of \[(\S+)\].*\n\n```sh\nedgefl run (.*)\n```", reference)
    for name, of, words in boxes:
        config, *changes = [each for each in shlex.split(words) if each not in CLOCK]
        experiment = load(ROOT / config, changes)
        assert [each.name for each in experiment.strategies] == [name]
        digests = {
            row.digest.rpartition("-")[2]
            for row in Tables(RESULTS / "data", registry.find(of)).rows
            if (row.method, row.role) == (name, RESULT)
        }
        assert config_digest(experiment) in digests, (name, of)
    assert len(boxes) > 20


@pytest.mark.rest
def test_the_figures_are_those_of_the_result_files(tmp_path: Path) -> None:
    pages.write(results_folder(tmp_path), ENTRIES)
    made, stored = (folder / "figures" for folder in (tmp_path, RESULTS))
    assert sorted(path.name for path in made.iterdir()) == sorted(
        path.name for path in stored.iterdir()
    )


@pytest.mark.rest
@pytest.mark.parametrize("name", ["seed1-map", "seed1-mnist-a", "seed4-fig2"])
def test_stored_rows_are_of_todays_configs(name: str, tmp_path: Path) -> None:
    """An equal number in another form, 1 in place of 1.0, would make all of them foreign."""
    entry = registry.find(name)
    rows = {key_of(row): row.digest for row in Tables(RESULTS / "data", entry).rows}
    for part in entry.parts:
        few = part.model_copy(update={"methods": part.methods[:2]})
        for run in PartPlan(entry, few, Scale.paper, tmp_path).table({}):
            if run.seed <= entry.looks[0]:
                assert rows[run.key].rpartition("-")[2] == run.config_digest


# ------------------------------------------------------------------ the registry
PAPER = """
[paper]
key = "seed9"
title = "A paper"
authors = "A. Author"
[names]
COLUMNS = ["final_accuracy", "versions"]
BETTER = {better = ["{one}", "b", "final_accuracy"]}
[templates.base]
config = "quickstart.toml"
methods = ["fedavg"]
overrides = ["edges.count={edges}"]
[[entries]]
each = {size = [3, 5]}
name = "study{size}"
source = "ours"
title = "Of {size}, as {unknown}"
reading = "As it is."
[[entries.parts]]
like = "base"
each = [{edges = 4}]
name = "main"
columns = ["*{COLUMNS}", "stability"]
[[entries.parts]]
like = "main"
name = "more"
methods = [{each = {a = [1, 2], b = [{n = "x"}, {n = "y"}]}, label = "fedavg", name = "m{a}{n}"}]
more = ["seed={size}"]
[[entries.claims]]
each = [{one = "a"}]
text = "{one} is better"
published = "ours"
judge = "{BETTER}"
"""


def test_a_file_of_a_paper_is_filled_in(tmp_path: Path) -> None:
    (tmp_path / "paper.toml").write_text(PAPER)
    found = registry.entries(tmp_path)
    assert list(found) == ["study3", "study5"]
    entry = found["study5"]
    assert (entry.paper, entry.title) == ("seed9", "Of 5, as {unknown}")
    main, more = entry.parts
    assert main.columns == ("final_accuracy", "versions", "stability")
    assert main.overrides == ("edges.count=4",) and more.overrides == ("edges.count=4", "seed=5")
    assert [each.shown for each in main.methods] == ["fedavg"]
    assert [each.shown for each in more.methods] == ["m1x", "m1y", "m2x", "m2y"]
    assert entry.claims[0].judge == {"better": ["a", "b", "final_accuracy"]}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('source = "ours"', 'sorce = "ours"', "paper.toml: entries.study3.sorce: unknown key"),
        ('like = "base"', 'like = "bese"', "expected a template or a part, found 'bese'"),
        ("study{size}", "study", "two entries have the name 'study'"),
        ("[paper]", "[paper", "paper.toml: is damaged"),
    ],
)
def test_a_file_that_is_wrong_is_one_line(old: str, new: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "paper.toml").write_text(PAPER.replace(old, new, 1))
    with pytest.raises(UserError) as error:
        registry.entries(tmp_path)
    assert told in str(error.value) and len(str(error.value).splitlines()) == 1


def test_entries_are_found_with_those_that_they_use() -> None:
    assert [entry.paper for entry in ENTRIES] == sorted(entry.paper for entry in ENTRIES)
    chosen = [registry.find("seed4-fig5"), registry.find("seed4-table3")]
    names = [entry.name for entry in registry.with_used(chosen)]
    assert names == ["seed4-table3", "seed4-fig5"]
    with pytest.raises(UserError, match=r"--entry seed4-fig6: unknown entry \(nearest: 'seed4-fi"):
        registry.find("seed4-fig6")
