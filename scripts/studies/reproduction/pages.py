"""The pages of docs/results as Markdown, from the result files alone.

The same files give the same bytes. Times are only between TIMES and END: two studies with equal
numbers give pages that are equal without these parts (``without_times``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from edgefl.results.compare import replace_file
from reproduction.book import Book, Judged
from reproduction.entry import Entry, Part, Scale, Verdict
from reproduction.front import CORNERS, END, TIMES, Chosen, front_page
from reproduction.page_parts import (
    CLAIM_HEAD,
    MADE,
    OLD_MEAN,
    cited,
    claim_cells,
    clock_of,
    command,
    judged_claims,
    scale_mark,
    state_of_runs,
    table_row,
)
from reproduction.papers import PAPERS
from reproduction.results import Results
from reproduction.rules import label, number
from reproduction.tables import setting_text

DATA, FIGURES = "data", "figures"
HAND = ("rule", "changes")  # pages of the folder that are written by hand


def write(folder: Path, entries: Iterable[Entry], chosen: Chosen = ()) -> list[Path]:
    """Write all pages and figures; return the pages' paths. UserError for a damaged file.

    ``chosen``: the claims on the front page.
    """
    book = Book(entries, folder / DATA)
    by_hand = [name for name in HAND if (folder / f"{name}.md").is_file()]
    pages = {"index": front_page(book, chosen, by_hand, folder / FIGURES / CORNERS.name)}
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


def _paper(book: Book, key: str, figures: Path) -> str:
    paper = PAPERS[key]
    lines = [
        MADE,
        f"# {paper.title}",
        "",
        f"{cited(key)}. What the verdicts mean: [the rule](rule.md).",
        "",
        OLD_MEAN,
        "",
    ]
    for entry in book.of_paper(key):
        lines += _entry(book, entry, figures)
    return "\n".join(lines)


def _entry(book: Book, entry: Entry, figures: Path) -> list[str]:
    judged = judged_claims(book, entry)
    lines = [f"## {entry.name}", "", f"**{entry.title}** ({entry.source})", ""]
    lines += [f"*Reading.* {entry.reading} {clock_of(book, entry)}", ""]
    lines += [entry.notes, ""] if entry.notes else []
    lines += state_of_runs(book, entry)
    lines += ["```bash", command(entry), "```", ""]
    if judged:
        lines += ["### Claims", "", *_claims(judged), ""]
        lines += [line for each in judged for line in _reasons(each)] + [""]
    for figure in entry.figures:
        drawn = book.figure(entry, figure, figures)
        if drawn is not None:
            path, scale = drawn
            text = f"{figure.title}{scale_mark(scale)}"
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
    lines = [f"- {claim.text}: **{finding.verdict}**{scale_mark(judged.scale)}{why}"]
    if finding.verdict is Verdict.fails and judged.scale is Scale.paper:
        lines.append(f"  *Cause.* {claim.cause or 'Not looked for yet.'}")
    return lines


def _part(results: Results, part: Part) -> list[str]:
    """Return a part's table: a row per method, with its setting and the spread of its columns."""
    head = f"### {part.title or part.name}{scale_mark(results.scale)}"
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
    lines += [table_row(head_cells), "|---" * len(head_cells) + "|"]
    for name in _done(results, part):
        runs = results.runs(name, part.name)
        strained = sum(row.fidelity not in ("", "faithful") for row in runs)
        cells = [name + (f" (strained: {strained} of {len(runs)})" if strained else "")]
        cells += [setting_text(runs[0].setting)] if tuned else []
        cells += [_spread(results, part, name, column) for column in columns]
        lines.append(table_row([*cells, _seeds(results, part, runs)]))
    return [*lines, "", *_tuning(results, part), *_origin(results, part)]


def _origin(results: Results, part: Part) -> list[str]:
    """Return what made the numbers, as digests."""
    lines = [
        "```{dropdown} Digests of what made these numbers",
        "Of the strategy's code (s), of the trainer's (t) and of the config (c).",
        "",
        table_row(["Method", "Digest"]),
        "|---|---|",
    ]
    for name in _done(results, part):
        digests = sorted({row.digest for row in results.runs(name, part.name)})
        lines.append(table_row([name, ", ".join(f"`{digest}`" for digest in digests)]))
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
        table_row(["Method", "Setting", label(plan.metric)]),
        "|---|---|---|",
    ]
    for name, rows in tried.items():
        best = results.setting(name, part.name) if results.has(name, part.name) else {}
        for row in rows:
            score = number(row.numbers.get(plan.metric))
            score = f"**{score}**" if row.setting == best else score
            lines.append(table_row([name, setting_text(row.setting), score]))
    return [*lines, "```", ""]


def _claims(judged: Sequence[Judged]) -> list[str]:
    rows = [table_row(claim_cells(each)) for each in judged]
    return [table_row(CLAIM_HEAD), "|---" * len(CLAIM_HEAD) + "|", *rows]


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


def _plain(text: str) -> str:
    return re.sub(r"[\[\]*`]", "", text)
