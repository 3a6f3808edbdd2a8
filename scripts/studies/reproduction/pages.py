"""The pages of docs/results as Markdown, from the result files alone.

The same files give the same bytes. Times are only between TIMES and END: two studies with equal
numbers give pages that are equal without these parts (``without_times``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from edgefl.results.compare import replace_file
from reproduction.book import Book, Judged
from reproduction.entry import WALL, Entry, Part, Scale, Verdict
from reproduction.papers import PAPERS
from reproduction.results import Results
from reproduction.rules import label, number
from reproduction.tables import setting_text

TIMES, END = "<!-- times: begin -->", "<!-- times: end -->"
DATA, FIGURES = "data", "figures"
COMMAND = "python scripts/studies/reproduce.py --entry {name} --scale {scale} --workers 2"
MADE = "<!-- Made by scripts/studies/reproduce.py --pages from data/; do not edit. -->"
SMALL = "small scale"
HAND = ("rule", "changes")  # pages of the folder that are written by hand


def write(folder: Path, entries: Iterable[Entry]) -> list[Path]:
    """Write all pages and figures; return the pages' paths. UserError for a damaged file."""
    book = Book(entries, folder / DATA)
    pages = {"index": _front(book, [name for name in HAND if (folder / f"{name}.md").is_file()])}
    for key in PAPERS:
        pages[PAPERS[key].page] = _paper(book, key, folder / FIGURES)
    paths = []
    for name, text in pages.items():
        paths.append(folder / f"{name}.md")
        replace_file(paths[-1], text.encode())
    return paths


def without_times(page: str) -> str:
    """Return a page without the parts that have times."""
    return re.sub(f"{TIMES}.*?{END}", "", page, flags=re.DOTALL)


# ------------------------------------------------------------------ the front page
def _front(book: Book, by_hand: Sequence[str]) -> str:
    judged = {name: _judged(book, entry) for name, entry in book.entries.items()}
    lines = [
        MADE,
        "# What holds: the papers' claims and our runs",
        "",
        _counted([each for found in judged.values() for each in found]),
        "",
        "A verdict follows a rule that was written down before the runs: [the rule](rule.md). Ours"
        " is the difference to the compared method, paired by seed, with its 95 % interval, or a"
        " mean ± standard deviation over the seeds. A number of a run at the small scale is marked"
        f" *{SMALL}*: it shows that the study works, not what the paper's budget gives. Each study"
        " is one command; its result files are in `docs/results/data`, and runs that they have are"
        " not repeated.",
        "",
    ]
    for key in PAPERS:
        lines += _front_paper(book, key, judged)
    lines += [TIMES, *_costs(book), END, "", "```{toctree}", ":hidden:", ""]
    lines += [*by_hand, *(paper.page for paper in PAPERS.values()), "```", ""]
    return "\n".join(lines)


def _counted(judged: Sequence[Judged]) -> str:
    """Return how many claims have which verdict; those of the small scale are counted apart."""
    told = []
    for scale, where in ((Scale.paper, "at the paper's scale"), (Scale.small, f"at the {SMALL}")):
        counts = Counter(each.finding.verdict for each in judged if each.scale is scale)
        said = ", ".join(f"{verdict}: {counts[verdict]}" for verdict in Verdict if counts[verdict])
        if said:
            told.append(f"{sum(counts.values())} were judged {where} ({said})")
    left = sum(each.scale is None for each in judged)
    told += [f"{left} have no runs yet"] if left else []
    return f"Claims: {len(judged)}. Of these, {'; '.join(told) or 'none was judged'}."


def _front_paper(book: Book, key: str, judged: dict[str, list[Judged]]) -> list[str]:
    paper = PAPERS[key]
    link = f"[Its tables and figures]({paper.page}.md)"
    lines = [f"## {paper.title}", "", f"{_cited(key)}. {link}.", ""]
    for entry in book.of_paper(key):
        lines += [
            f"**[{entry.name}]({paper.page}.md#{entry.name})** ({entry.source}): {entry.title}."
            f" {entry.reading} {_clock(book, entry)}",
            "",
            *_state(book, entry),
            "```bash",
            COMMAND.format(name=entry.name, scale=_scale_of_command(entry)),
            "```",
            "",
        ]
        if judged[entry.name]:
            lines += [*_claims(judged[entry.name]), ""]
    return lines


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
        cells = [f"[{entry.name}]({PAPERS[entry.paper].page}.md#{entry.name})"]
        for scale in Scale:
            runs, hours = book.cpu_h(entry, scale)
            total[scale] += hours
            cells += [_expected(entry, scale), f"{hours:.2f}" if runs else "", str(runs or "")]
        lines.append(_row(cells))
    lines.append(_row(["all", "", *_sum(total[Scale.small]), "", *_sum(total[Scale.paper])]))
    lines += ["", "| Machine | What it is |", "|---|---|"]
    for name, facts in sorted(book.machines.items()):
        told = ", ".join(f"{key} {value}" for key, value in facts.items() if value)
        lines.append(_row([name, told]))
    return [*lines, ""]


def _sum(hours: float) -> tuple[str, str]:
    return f"{hours:.2f}", ""


# ------------------------------------------------------------------ a paper's page
def _paper(book: Book, key: str, figures: Path) -> str:
    paper = PAPERS[key]
    lines = [
        MADE,
        f"# {paper.title}",
        "",
        f"{_cited(key)}. What the verdicts mean: [the rule](rule.md).",
        "",
    ]
    for entry in book.of_paper(key):
        lines += _entry(book, entry, figures)
    return "\n".join(lines)


def _entry(book: Book, entry: Entry, figures: Path) -> list[str]:
    judged = _judged(book, entry)
    lines = [f"## {entry.name}", "", f"**{entry.title}** ({entry.source})", ""]
    lines += [f"*Reading.* {entry.reading} {_clock(book, entry)}", ""]
    lines += [entry.notes, ""] if entry.notes else []
    lines += _state(book, entry)
    lines += ["```bash", COMMAND.format(name=entry.name, scale=_scale_of_command(entry)), "```", ""]
    if judged:
        lines += ["### Claims", "", *_claims(judged), ""]
        lines += [line for each in judged for line in _reasons(each)] + [""]
    for figure in entry.figures:
        drawn = book.figure(entry, figure, figures)
        if drawn is not None:
            path, scale = drawn
            text = f"{figure.title}{_mark(scale)}"
            lines += [f"![{_plain(figure.title)}]({FIGURES}/{path.name})", "", f"*{text}*", ""]
    for part in entry.parts:
        results = book.of_part(entry, part)
        if results is not None:
            lines += _part(results, part)
    return lines


def _reasons(judged: Judged) -> list[str]:
    """Return why a claim has its verdict, as a list item."""
    finding, claim = judged.finding, judged.claim
    why = f": {finding.why}" if finding.why else "."
    lines = [f"- {claim.text}: **{finding.verdict}**{_mark(judged.scale)}{why}"]
    if finding.verdict is Verdict.fails and judged.scale is Scale.paper:
        lines.append(f"  *Cause.* {claim.cause or 'Not looked for yet.'}")
    return lines


def _part(results: Results, part: Part) -> list[str]:
    """Return a part's table: a row per method, with its setting and the spread of its columns."""
    head = f"### {part.title or part.name}{_mark(results.scale)}"
    lines = [head, ""]
    if results.is_strained(part.name):
        lines += [
            "Some of these runs are **strained**: the machine did not keep up, so their times are"
            " not those of the emulated network.",
            "",
        ]
    columns = [column for column in part.columns if _is_told(results, part, column)]
    tuned = any(results.setting(each, part.name) for each in _done(results, part))
    head_cells = ["Method", *(["Tuned"] if tuned else []), *map(label, columns), "Seeds"]
    lines += [_row(head_cells), "|---" * len(head_cells) + "|"]
    for name in _done(results, part):
        runs = results.runs(name, part.name)
        strained = sum(row.fidelity not in ("", "faithful") for row in runs)
        cells = [name + (f" (strained: {strained} of {len(runs)})" if strained else "")]
        cells += [setting_text(runs[0].setting)] if tuned else []
        cells += [_spread(results, part, name, column) for column in columns]
        lines.append(_row([*cells, _seeds(results, part, runs)]))
    return [*lines, "", *_tuning(results, part), *_origin(results, part)]


def _origin(results: Results, part: Part) -> list[str]:
    """Return what made the numbers, as digests."""
    lines = [
        "```{dropdown} Digests of what made these numbers",
        "Of the strategy's code (s), of the trainer's (t) and of the config (c).",
        "",
        _row(["Method", "Digest"]),
        "|---|---|",
    ]
    for name in _done(results, part):
        digests = sorted({row.digest for row in results.runs(name, part.name)})
        lines.append(_row([name, ", ".join(f"`{digest}`" for digest in digests)]))
    return [*lines, "```", ""]


def _tuning(results: Results, part: Part) -> list[str]:
    """Return how the part was tuned, and all that was tried."""
    if part.tuning is None:
        from_other = f"The tuned values are those of `{part.settings_of}`."
        return [from_other, ""] if part.settings_of else []
    plan = part.tuning
    tried = {each.shown: results.tried(each.shown, part.name) for each in part.methods}
    tried = {name: rows for name, rows in tried.items() if rows}
    counts = sorted({len(rows) for rows in tried.values()})
    each = " or ".join(map(str, counts)) or "no"
    lines = [
        f"Tuned: {each} settings of each method, {100 * plan.share:g} % of the budget, seed"
        f" {plan.seed}, by {label(plan.metric)}.",
        "",
        "```{dropdown} All settings that were tried",
        _row(["Method", "Setting", label(plan.metric)]),
        "|---|---|---|",
    ]
    for name, rows in tried.items():
        best = results.setting(name, part.name) if results.has(name, part.name) else {}
        for row in rows:
            score = number(row.numbers.get(plan.metric))
            score = f"**{score}**" if row.setting == best else score
            lines.append(_row([name, setting_text(row.setting), score]))
    return [*lines, "```", ""]


# ------------------------------------------------------------------ both
def _judged(book: Book, entry: Entry) -> list[Judged]:
    return [book.judged(entry, claim) for claim in entry.claims]


def _claims(judged: Sequence[Judged]) -> list[str]:
    lines = [_row(["Claim", "The paper", "Ours", "Verdict"]), "|---|---|---|---|"]
    for each in judged:
        verdict = f"**{each.finding.verdict}**{_mark(each.scale)}"
        if each.scale is not None and not each.is_complete:
            verdict += " (so far: not all runs are done)"
        ours = each.finding.ours + (_mark(each.scale) if each.finding.ours else "")
        lines.append(_row([each.claim.text, each.claim.published, ours, verdict]))
    return lines


def _state(book: Book, entry: Entry) -> list[str]:
    """Return what a reader must know about the runs; [] if all is as it should be."""
    has_paper = any(row.scale is Scale.paper for row in book.rows(entry))
    lines = []
    if entry.parts and not has_paper:
        hours = entry.hours.get(Scale.paper)
        expected = "" if hours is None else f": expected {hours:g} CPU-hours"
        needs = f" It needs {entry.needs}." if entry.needs else ""
        lines.append(f"Not run at the paper's scale{expected}.{needs}")
    if book.has_strained(entry):
        lines.append("Some runs on the wall clock were **strained**.")
    return [" ".join(lines), ""] if lines else []


def _clock(book: Book, entry: Entry) -> str:
    """Return which clock the entry's runs have, or those of the entries that it uses."""
    of = [entry, *(book.entries[name] for name in entry.uses if name in book.entries)]
    clocks = list(dict.fromkeys(part.clock for each in of for part in each.parts))
    if not clocks:
        return ""
    sockets = " (real sockets)" if WALL in clocks else ""
    return f"Clock: {' and '.join(clocks)}{sockets}."


def _scale_of_command(entry: Entry) -> Scale:
    return Scale.small if entry.needs else Scale.paper


def _cited(key: str) -> str:
    paper = PAPERS[key]
    link = f", [arXiv {paper.arxiv}](https://arxiv.org/abs/{paper.arxiv})" if paper.arxiv else ""
    return f"{paper.authors}{link}"


def _mark(scale: Scale | None) -> str:
    return f" ({SMALL})" if scale is Scale.small else ""


def _expected(entry: Entry, scale: Scale) -> str:
    hours = entry.hours.get(scale)
    return "" if hours is None else f"{hours:g}"


def _done(results: Results, part: Part) -> list[str]:
    return [each.shown for each in part.methods if results.has(each.shown, part.name)]


def _is_told(results: Results, part: Part, column: str) -> bool:
    """Return whether any run of the part has the number."""
    return any(
        value is not None
        for name in _done(results, part)
        for value in results.values(name, column, part.name).values()
    )


def _spread(results: Results, part: Part, method: str, column: str) -> str:
    found = results.spread(method, column, part.name)
    if found.mean is None:
        return f"{found.n} of {found.of} runs have it" if found.n else "none"
    return number(found.mean) + ("" if found.deviation is None else f" ± {found.deviation:.2g}")


def _seeds(results: Results, part: Part, runs: Sequence[object]) -> str:
    planned = len(part.seeds_at(results.scale))
    return str(len(runs)) if len(runs) >= planned else f"{len(runs)} of {planned}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _plain(text: str) -> str:
    return re.sub(r"[\[\]*`]", "", text)
