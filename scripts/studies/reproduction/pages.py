"""The pages of docs/results as Markdown, and the results in the strategies reference.

The same result files and configs give the same bytes. Times are only between TIMES and END: two
studies with equal numbers give pages that are equal without these parts (``without_times``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgefl.errors import UserError
from edgefl.results.run_files import replace_file
from reproduction import figures
from reproduction.book import Book, Judged
from reproduction.entry import MOST_SEEDS, WALL, Entry, Figure, Part, Scale, Verdict
from reproduction.plans import run_command, strategies
from reproduction.registry import papers
from reproduction.results import (
    CONFIRMING,
    OF_RULE,
    RESULT,
    RULE,
    NoResults,
    Results,
    RunRow,
    key_in,
    setting_text,
)
from reproduction.rules import label, mean_of

DATA, FIGURES = "data", "figures"
HAND = ("rule", "changes")  # pages of the folder that are written by hand
MADE = "<!-- Made by scripts/studies/reproduce.py --pages from data/; do not edit. -->"
BOX, BOX_END = "<!-- results: made by scripts/studies/reproduce.py --pages -->", "<!-- end -->"
TIMES, END = "<!-- times: begin -->", "<!-- times: end -->"
OLD_RULE = "These runs were made under [rule 1](rule.md#rule-1)."
MIXED = "Some of these runs were made under [rule 1](rule.md#rule-1)."
SMALL = "small scale"
CLAIM_HEAD = ("", "Claim", "The paper", "Ours", "Verdict")
# The figure of the front page: an entry, its part, the panel's title, and the names of its lines.
BEST_CORNERS = (
    ("seed0-corners", "best", "Timely dissemination", {"without": "without", "with": "with"}),
    ("seed1-corners", "best", "Intentional delay", {"tdma-s1": "without", "idfl-s1": "with"}),
)
CORNERS = Figure(
    name="best-corners",
    title="Test accuracy over seconds of the wall clock, over real sockets: with and without timely"
    " dissemination and intentional delay, each where it was expected to gain most, untuned; the"
    " band is the seeds' range",
)


def write(folder: Path, entries: Iterable[Entry]) -> list[Path]:
    """Write all pages and figures; return the pages' paths. UserError for a damaged file."""
    book = Book(entries, folder / DATA)
    by_hand = [name for name in HAND if (folder / f"{name}.md").is_file()]
    pages = {"index": _front(book, by_hand, folder / FIGURES)}
    for key, paper in papers().items():
        pages[paper.page] = _paper(book, key, folder / FIGURES)
    texts = {folder / f"{name}.md": text for name, text in pages.items()}
    reference = folder.parent / "reference" / "strategies.md"
    if reference.is_file():
        texts[reference] = with_boxes(book, reference.read_text(encoding="utf-8"))
    for path, text in texts.items():
        replace_file(path, text.encode())
    return list(texts)


# ------------------------------------------------------------------ the strategies reference
def with_boxes(book: Book, page: str) -> str:
    """Return the strategies reference with our results at the end of each strategy's section.

    A section of level 3 has the name of its strategy as title. What was there is replaced.
    """
    page = re.sub(f"{BOX}.*?{BOX_END}\n+", "", page, flags=re.DOTALL)
    best = _best_runs(book)
    return (
        "".join(
            f"{text.rstrip()}\n\n{BOX}\n{_box(book, best.get(title[1]))}\n{BOX_END}\n\n"
            if (title := re.match(r"### (\S+)\n", text))
            else text
            for text in re.split(r"(?m)^(?=##)", page)
        ).rstrip()
        + "\n"
    )


@dataclass(frozen=True, slots=True)
class Shown:
    """Table runs of a strategy, "PART/METHOD", and FedAvg's of the same part; "": it has none."""

    strategy: str
    results: Results
    part: Part
    which: str
    fedavg: str

    @property
    def rank(self) -> tuple[bool, bool, bool, bool, bool, float]:
        """Highest at the paper's scale, beside FedAvg, with all seeds of a look, of a "table".

        Then under the strategy's own name, not a variant's; then the most accurate.
        """
        results = self.results
        whole = results.is_complete(self.part.name, (results.looks or (None,))[0])
        accuracy = results.mean(self.which, "convergence_accuracy") or 0.0
        in_table, own = "table" in results.entry.source, self.name == self.strategy
        return results.scale is Scale.paper, bool(self.fedavg), whole, in_table, own, accuracy

    @property
    def name(self) -> str:
        return key_in(self.which)[1]


def _best_runs(book: Book) -> dict[str, Shown]:
    """Return strategy -> its best runs, by their rank; the first ones of equal rank."""
    best: dict[str, Shown] = {}
    for entry in book.entries.values():
        for part in entry.parts:
            results = book.of_part(entry, part)
            if results is None:
                continue
            named = {
                f"{part.name}/{each['label']}": each["strategy"]
                for each in strategies(part.config, part.methods)
                if results.has(f"{part.name}/{each['label']}")
            }
            fedavg = next((which for which in named if named[which] == "fedavg"), "")
            for which, strategy in named.items():
                shown = Shown(strategy, results, part, which, fedavg)
                if strategy not in best or best[strategy].rank < shown.rank:
                    best[strategy] = shown
    return best


def _box(book: Book, shown: Shown | None) -> str:
    """Return what our runs say of a strategy: its best setting beside FedAvg, and its claims."""
    if shown is None:
        return "**Results.** Not run in a study yet."
    results, which, entry = shown.results, shown.which, shown.results.entry
    beside = shown.fedavg if shown.fedavg != which else ""
    numbers = [
        f"{label(column)} {mean_of(results, which, column)}"
        + (f" (FedAvg: {mean_of(results, beside, column)})" if beside else "")
        for column in ("convergence_accuracy", "time_to_target_s")
        if results.spread(which, column).n
    ]
    setting, seeds = setting_text(results.setting(which)), len(results.runs(which))
    numbers += [f"with `{setting}`"] if setting else []
    name = shown.name
    link = f"[{entry.name}](../results/{papers()[entry.paper].page}.md#{entry.name})"
    text = (
        f"**Results.** {'; '.join(numbers)}. As *{name}* of {link},"
        f" {shown.part.title or shown.part.name}: {seeds} seed{'' if seeds == 1 else 's'}"
        f"{_scale_mark(results.scale)}."
    )
    said = Counter(
        each.finding.verdict
        for each in book.judged(entry)
        if each.scale is results.scale and name in _methods_in(each.claim.judge)
    )
    told = ", ".join(f"{verdict}: {said[verdict]}" for verdict in Verdict if said[verdict])
    text += f" Its claims there: {told}." if told else ""
    runs = results.runs(which)
    command = run_command(
        shown.part, shown.part.method(name), runs[0].setting, results.scale, [r.seed for r in runs]
    )
    return f"{text} The same runs, or with seeds of your own:\n\n```sh\n{command}\n```"


def _methods_in(judge: object) -> set[str]:
    """Return the names of methods in a judge, and its other texts."""
    if isinstance(judge, str):
        return {key_in(judge)[1]}
    inner = judge.values() if isinstance(judge, Mapping) else judge
    if not isinstance(inner, Iterable):
        return set()
    return {name for each in inner for name in _methods_in(each)}


def without_times(page: str) -> str:
    """Return a page without the parts that have times."""
    return re.sub(f"{TIMES}.*?{END}", "", page, flags=re.DOTALL)


# ------------------------------------------------------------------ the front page
def _front(book: Book, by_hand: Iterable[str], folder: Path) -> str:
    """Return the front page: the chosen claims of each paper in one picture, and what all cost.

    ``by_hand``: names of the folder's other pages. ``folder``: of the figures. UserError if a
    chosen claim is not there, or not the only one.
    """
    judged = {name: book.judged(entry) for name, entry in book.entries.items()}
    chosen = {key: _chosen(book, key, judged) for key in papers()}
    lines = [
        MADE,
        "# What holds: the papers' claims and our runs",
        "",
        *_forest(chosen, folder / "forest"),
        *(_sentence(key, chosen[key]) for key in papers()),
        "",
        "Claims were chosen before the runs, but where an entry says otherwise, and [the"
        " rule](rule.md) was written before them. A"
        f" sign that is not filled is of the {SMALL}: it shows that the study works, not what the"
        " paper's budget gives. *So far*: not all runs are done.",
        "",
        _counted([each for found in judged.values() for each in found]),
        "",
    ]
    drawn = _best_corners(book, folder / CORNERS.name)
    if drawn is not None:
        picture = f"![{CORNERS.title}]({drawn.parent.name}/{drawn.name})"
        lines += [picture, "", f"*{CORNERS.title}.*", ""]
    lines += [TIMES, *_costs(book), END, "", "```{toctree}", ":hidden:", ""]
    lines += [*by_hand, *(paper.page for paper in papers().values()), "```", ""]
    return "\n".join(lines)


def _chosen(
    book: Book, key: str, judged: Mapping[str, Sequence[Judged]]
) -> list[tuple[Entry, Judged]]:
    """Return a paper's claims of the front page, each with its entry."""
    return [
        (entry, _beginning(judged[entry.name], entry.name, text))
        for entry in book.of_paper(key)
        for text in entry.front
    ]


def _forest(chosen: Mapping[str, Sequence[tuple[Entry, Judged]]], path: Path) -> list[str]:
    """Draw the chosen claims of all papers; return the lines of the figure."""
    groups = {
        papers()[key].title: [
            figures.Tree(
                f"{each.claim.text} ({entry.name})",
                each.finding.verdict,
                each.finding.effects,
                each.claim.theirs,
                each.scale is Scale.small,
            )
            for entry, each in its
        ]
        for key, its in chosen.items()
        if its
    }
    drawn = figures.write_forest(groups, path)
    if drawn is None:
        return []
    title = (
        "The papers' main claims: ours with its interval, the paper's number, and the verdict. A"
        " claim without a line is a count, a closed form or an order"
    )
    return [f"![{title}]({drawn.parent.name}/{drawn.name})", "", f"*{title}.*", ""]


def _sentence(key: str, chosen: Sequence[tuple[Entry, Judged]]) -> str:
    """Return what became of a paper's main claims, in one sentence."""
    paper = papers()[key]
    counts = Counter(each.finding.verdict for _, each in chosen)
    small = sum(each.scale is Scale.small for _, each in chosen)
    said = ", ".join(f"{verdict}: {counts[verdict]}" for verdict in Verdict if counts[verdict])
    only = f" ({small} at the {SMALL} only)" if small else ""
    claims = f"{len(chosen)} main claim{'' if len(chosen) == 1 else 's'}"
    return f"- [{paper.title}]({paper.page}.md), {claims}: {said}{only}."


def _best_corners(book: Book, path: Path) -> Path | None:
    """Draw the figure if both studies were run at the paper's scale; return its file."""
    panels: dict[str, dict[str, figures.Curves]] = {}
    try:
        for entry, part, title, names in BEST_CORNERS:
            results = book.results(entry, Scale.paper)
            panels[title] = {
                shown: results.curve(f"{part}/{method}", CORNERS.column)
                for method, shown in names.items()
            }
    except NoResults:
        return None
    if not all(curve for curves in panels.values() for curve in curves.values()):
        return None
    return figures.write_curves(CORNERS, panels, path)


def _counted(judged: Sequence[Judged]) -> str:
    """Return how many claims have which verdict; those of the small scale are counted apart."""
    told = []
    for scale, where in ((Scale.paper, "at the paper's scale"), (Scale.small, f"at the {SMALL}")):
        counts = Counter(each.finding.verdict for each in judged if each.scale is scale)
        said = ", ".join(f"{verdict}: {counts[verdict]}" for verdict in Verdict if counts[verdict])
        many = sum(each.finding.needed > MOST_SEEDS for each in judged if each.scale is scale)
        said += f", {many} of these would need over {MOST_SEEDS} seeds" if many else ""
        if said:
            told.append(f"{sum(counts.values())} were judged {where} ({said})")
    left = sum(each.scale is None for each in judged)
    told += [f"{left} have no runs yet"] if left else []
    return f"Claims: {len(judged)}. Of these, {'; '.join(told) or 'none was judged'}."


def _beginning(judged: Sequence[Judged], entry: str, text: str) -> Judged:
    found = [each for each in judged if each.claim.text.startswith(text)]
    if len(found) != 1:
        raise UserError(f"{entry}: front: {len(found)} claims begin with {text!r}: expected one")
    return found[0]


def _link(entry: Entry) -> str:
    return f"[{entry.name}]({papers()[entry.paper].page}.md#{entry.name})"


def _costs(book: Book) -> list[str]:
    """Return the table of CPU-hours, and the machines."""
    lines = [
        "## CPU-hours and machines",
        "",
        "Expected on two cores, and used by all runs of the result files, tuning included.",
        "",
        "| Entry | Small: expected | used | runs | Paper: expected | used | runs |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    total = dict.fromkeys(Scale, 0.0)
    for entry in book.entries.values():
        cells = [_link(entry)]
        for scale in Scale:
            rows, expected = book.rows(entry, scale), entry.hours.get(scale)
            hours = sum(row.cpu_s or 0.0 for row in rows) / 3600
            total[scale] += hours
            cells.append("" if expected is None else f"{expected:g}")
            cells += [f"{hours:.2f}", str(len(rows))] if rows else ["", ""]
        lines.append(_row(cells))
    used = [f"{total[scale]:.2f}" for scale in Scale]
    lines.append(_row(["all", "", used[0], "", "", used[1], ""]))
    machines = [
        [name, ", ".join(f"{key} {value}" for key, value in facts.items() if value)]
        for name, facts in sorted(book.machines.items())
    ]
    return [*lines, "", *_table(("Machine", "What it is"), machines), ""]


# ------------------------------------------------------------------ a paper's page
def _paper(book: Book, key: str, figures: Path) -> str:
    lines = [
        MADE,
        f"# {papers()[key].title}",
        "",
        f"{_cited(key)}. What the verdicts mean: [the rule](rule.md). A difference in *Ours* is"
        " positive where the claim's first method is better; times are in seconds.",
        "",
    ]
    for entry in book.of_paper(key):
        lines += _entry(book, entry, figures)
    return "\n".join(lines)


def _cited(key: str) -> str:
    """Return a paper's authors and its address."""
    paper = papers()[key]
    link = f", [arXiv {paper.arxiv}](https://arxiv.org/abs/{paper.arxiv})" if paper.arxiv else ""
    return f"{paper.authors}{link}"


def _entry(book: Book, entry: Entry, figures: Path) -> list[str]:
    """Return an entry's section: what it says in one figure and one table; the rest is folded."""
    judged = book.judged(entry)
    lines = [f"## {entry.name}", "", f"**{entry.title}** ({entry.source}).", ""]
    lines += [f"*Reading.* {entry.reading} {_clock_of(book, entry)}", ""]
    lines += _state_of_runs(book, entry)
    drawn = [
        _picture(figure, *found)
        for figure in entry.figures
        if (found := book.figure(entry, figure, figures)) is not None
    ]
    lines += [line for picture in drawn[:1] for line in picture]
    if judged:
        rows = [[str(place), *_claim_cells(each)] for place, each in enumerate(judged, 1)]
        lines += [*_table(CLAIM_HEAD, rows), ""]
        reasons = [line for place, each in enumerate(judged, 1) for line in _reasons(place, each)]
        lines += _folded("Why: the numbers behind each verdict, and causes", reasons)
    tables = [
        line
        for part in entry.parts
        if (results := book.of_part(entry, part)) is not None
        for line in _part(results, part)
    ]
    more = [entry.notes, ""] if entry.notes else []
    more += [*tables, *(line for picture in drawn[1:] for line in picture)]
    if book.tables[entry.name].path.is_file():
        every = f"[Every run]({DATA}/{entry.name}.csv), those of the tuning included: setting, seed"
        more += [f"{every}, numbers and what made them.", ""]
    more += ["```bash", _command(entry), "```"]
    names = [*(["means"] if tables else []), *(["further figures"] if drawn[1:] else [])]
    return [*lines, *_folded(", ".join([*names, "command"]).capitalize(), more)]


def _picture(figure: Figure, path: Path, scale: Scale) -> list[str]:
    """Return the lines of a figure that was drawn."""
    plain = re.sub(r"[\[\]*`]", "", figure.title)
    text = f"{figure.title}{_scale_mark(scale)}"
    return [f"![{plain}]({FIGURES}/{path.name})", "", f"*{text}*", ""]


def _folded(summary: str, lines: Sequence[str]) -> list[str]:
    """Return lines behind a click. HTML, since a reader of the repository sees no directives."""
    return [f"<details><summary>{summary}</summary>", "", *lines, "", "</details>", ""]


def _clock_of(book: Book, entry: Entry) -> str:
    """Return which clock the entry's runs have, or those of the entries that it uses."""
    of = [entry, *(book.entries[name] for name in entry.uses if name in book.entries)]
    clocks = list(dict.fromkeys(part.clock for each in of for part in each.parts))
    if not clocks:
        return ""
    sockets = " (real sockets)" if WALL in clocks else ""
    return f"Clock: {' and '.join(clocks)}{sockets}."


def _state_of_runs(book: Book, entry: Entry) -> list[str]:
    """Return what a reader must know about the runs; [] if all is as it should be."""
    lines = []
    if entry.parts and not book.rows(entry, Scale.paper):
        hours = entry.hours.get(Scale.paper)
        expected = "" if hours is None else f": expected {hours:g} CPU-hours"
        needs = f" It needs {entry.needs}." if entry.needs else ""
        lines.append(f"Not run at the paper's scale{expected}.{needs}")
    old = {row.rule != RULE for part in entry.parts for row in _shown(book, entry, part)}
    if True in old and entry.depends_on(OF_RULE):
        lines.append(MIXED if False in old else OLD_RULE)
    if book.has_strained(entry):
        lines.append("Some runs on the wall clock were **strained**.")
    return [" ".join(lines), ""] if lines else []


def _shown(book: Book, entry: Entry, part: Part) -> list[RunRow]:
    """Return the rows of the table that the page shows of a part."""
    results = book.of_part(entry, part)
    own = () if results is None else results.rows
    return [row for row in own if row.role == RESULT and row.part == part.name]


def _command(entry: Entry) -> str:
    """Return the command that runs an entry, at the largest scale that needs nothing special."""
    scale = Scale.small if entry.needs else Scale.paper
    return f"python scripts/studies/reproduce.py --entry {entry.name} --scale {scale} --workers 2"


def _claim_cells(judged: Judged) -> list[str]:
    """Return the cells of a claim's row after its number, as CLAIM_HEAD names them."""
    verdict = f"**{judged.finding.verdict}**{_scale_mark(judged.scale)}"
    if judged.scale is not None and not judged.is_complete:
        verdict += " (so far)"
    ours = judged.finding.ours + (_scale_mark(judged.scale) if judged.finding.ours else "")
    return [judged.claim.text, judged.claim.published, ours, verdict]


def _reasons(place: int, judged: Judged) -> list[str]:
    """Return why the claim in this row of the table has its verdict, as a list item."""
    finding, claim = judged.finding, judged.claim
    lines = [f"{place}. {finding.why or f'{finding.verdict}.'}"]
    if finding.verdict is Verdict.fails and judged.scale is Scale.paper:
        lines.append(f"   *Cause.* {claim.cause or 'Not looked for yet.'}")
    return lines


# ------------------------------------------------------------------ a part's table
def _part(results: Results, part: Part) -> list[str]:
    """Return a part's table: a row per method, with its setting and the spread of its columns."""
    lines = [f"**{part.title or part.name}**{_scale_mark(results.scale)}", ""]
    if results.is_strained(part.name):
        lines += [
            "Some of these runs are **strained**: the machine did not keep up, so their times are"
            " not those of the emulated network.",
            "",
        ]
    done = _done(results, part)
    columns = [name for name in part.columns if any(results.spread(each, name).n for each in done)]
    tuned = any(map(results.setting, done))
    rows = []
    for which in done:
        runs = results.runs(which)
        strained = sum(row.fidelity not in ("", "faithful") for row in runs)
        name = runs[0].method + (f" (strained: {strained} of {len(runs)})" if strained else "")
        planned = results.next_look(len(runs), len(part.seeds_at(results.scale)))
        seeds = str(len(runs)) if len(runs) >= planned else f"{len(runs)} of {planned}"
        setting = [setting_text(runs[0].setting)] if tuned else []
        rows.append([name, *setting, *(_spread(results, which, each) for each in columns), seeds])
    head = ["Method", *(["Tuned"] if tuned else []), *map(label, columns), "Seeds"]
    lines += [*_table(head, rows), ""]
    return [*lines, *_tuning(results, part)]


def _done(results: Results, part: Part) -> list[str]:
    """Return the methods that have runs, as "PART/METHOD"."""
    names = [f"{part.name}/{each.shown}" for each in part.methods]
    return [name for name in names if results.has(name)]


def _spread(results: Results, which: str, column: str) -> str:
    found = results.spread(which, column)
    if found.mean is None:
        return f"{found.n} of {found.of} runs" if found.n else "none"
    return mean_of(results, which, column)


def _tuning(results: Results, part: Part) -> list[str]:
    """Return how the part was tuned."""
    plan = part.tuning
    if plan is None:
        from_other = f"The tuned values are those of `{part.settings_of}`."
        return [from_other, ""] if part.settings_of else []
    names = {each.shown: f"{part.name}/{each.shown}" for each in part.methods}
    rules = {row.rule for name in names.values() if results.has(name) for row in results.runs(name)}
    tried = {
        method: [row for row in results.tried(name) if row.rule in rules]
        for method, name in names.items()
    }
    settings = [{setting_text(row.setting) for row in rows} for rows in tried.values()]
    counts = sorted({len(its) for its in settings if its})
    each = " or ".join(map(str, counts)) or "no"
    seeds = sorted({row.seed for rows in tried.values() for row in rows}) or plan.seeds
    told = (
        f"Tuned: {each} settings of each method, {100 * plan.share:g} % of the budget, seeds"
        f" {', '.join(map(str, seeds))}, by {label(plan.metric)}."
    )
    if any(results.tried(f"{part.name}/{each.shown}", CONFIRMING) for each in part.methods):
        told += (
            " The best ones with the two best values of the first knob were run over the whole"
            f" time, too, with seeds {', '.join(map(str, plan.confirm))}."
        )
    return [told, ""]


def _scale_mark(scale: Scale | None) -> str:
    """Return " (small scale)" where it applies."""
    return f" ({SMALL})" if scale is Scale.small else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table."""
    return [_row(head), "|---" * len(head) + "|", *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
