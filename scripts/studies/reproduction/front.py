"""The front page of docs/results: the chosen claims of each paper, and what all studies cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from reproduction import figures
from reproduction.book import Book, Judged
from reproduction.entry import CurveFigure, Entry, Scale, Verdict
from reproduction.page_parts import (
    CLAIM_HEAD,
    MADE,
    SMALL,
    cited,
    claim_cells,
    command,
    judged_claims,
    table_row,
)
from reproduction.papers import PAPERS
from reproduction.results import NoResults

# The figure of the README: an entry, its part, the panel's title, and the names of its lines.
BEST_CORNERS = (
    ("seed0-corners", "best", "Timely dissemination", {"without": "without", "with": "with"}),
    ("seed1-corners", "best", "Intentional delay", {"tdma-s1": "without", "idfl-s1": "with"}),
)
CORNERS = CurveFigure(
    "best-corners",
    "Test accuracy over seconds of the wall clock, over real sockets: timely dissemination and"
    " intentional delay, each where its map promises most, with and without",
)
TIMES, END = "<!-- times: begin -->", "<!-- times: end -->"
Chosen = Sequence[tuple[str, str]]  # entry, beginning of a claim's text


def front_page(book: Book, chosen: Chosen, by_hand: Iterable[str], figure: Path) -> str:
    """Return the front page. ``by_hand``: names of the folder's other pages. ``figure``: where the
    figure of the best corners is written, without its suffix.

    KeyError if a chosen claim is not there, or is not the only one.
    """
    judged = {name: judged_claims(book, entry) for name, entry in book.entries.items()}
    shown: dict[str, list[Judged]] = {}
    for name, text in chosen:
        shown.setdefault(name, []).append(_found(judged[name], name, text))
    lines = [
        MADE,
        "# What holds: the papers' claims and our runs",
        "",
        _counted([each for found in judged.values() for each in found]),
        "",
        "Here are the main claims of each paper. They were chosen before the runs; all others are"
        " on the papers' pages, with the figures, the tables and the reasons of each verdict. A"
        " verdict follows a rule that was written down before the runs: [the rule](rule.md). Ours"
        " is the difference to the compared method, paired by seed, with its 95 % interval, or a"
        " mean ± standard deviation over the seeds. A number of a run at the small scale is marked"
        f" *{SMALL}*: it shows that the study works, not what the paper's budget gives. Each study"
        " is one command; its result files are in `docs/results/data`, and runs that they have are"
        " not repeated.",
        "",
    ]
    drawn = _best_corners(book, figure)
    if drawn is not None:
        picture = f"![{CORNERS.title}]({drawn.parent.name}/{drawn.name})"
        lines += [picture, "", f"*{CORNERS.title}.*", ""]
    for key in PAPERS:
        lines += _paper(book, key, shown)
    lines += [TIMES, *_costs(book), END, "", "```{toctree}", ":hidden:", ""]
    lines += [*by_hand, *(paper.page for paper in PAPERS.values()), "```", ""]
    return "\n".join(lines)


def _best_corners(book: Book, path: Path) -> Path | None:
    """Draw the figure if both studies were run at the paper's scale; return its file."""
    panels: dict[str, dict[str, figures.Curves]] = {}
    try:
        for entry, part, title, names in BEST_CORNERS:
            results = book.results(entry, Scale.paper)
            curves: dict[str, figures.Curves] = {
                shown: results.curve(method, CORNERS.column, part)
                for method, shown in names.items()
            }
            if not all(curves.values()):
                return None
            panels[title] = curves
    except NoResults:
        return None
    return figures.write_curves(CORNERS, panels, path)


def _found(judged: Sequence[Judged], entry: str, text: str) -> Judged:
    found = [each for each in judged if each.claim.text.startswith(text)]
    if len(found) != 1:
        raise KeyError(f"{entry}: {len(found)} claims begin with {text!r}")
    return found[0]


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


def _paper(book: Book, key: str, shown: dict[str, list[Judged]]) -> list[str]:
    """Return a paper's section: a row for each chosen claim, and the commands of their studies."""
    paper, entries = PAPERS[key], book.of_paper(key)
    more = sum(len(each.claims) for each in entries) - sum(
        len(shown.get(each.name, ())) for each in entries
    )
    rest = f"[Its tables, figures and {more} further claims]({paper.page}.md)"
    lines = [f"## {paper.title}", "", f"{cited(key)}. {rest}.", ""]
    chosen = [entry for entry in entries if entry.name in shown]
    if not chosen:
        return lines
    head = [CLAIM_HEAD[0], "Study", *CLAIM_HEAD[1:]]
    lines += [table_row(head), "|---" * len(head) + "|"]
    for entry in chosen:
        for each in shown[entry.name]:
            claim, *cells = claim_cells(each)
            lines.append(table_row([claim, _link(entry), *cells]))
    return [*lines, "", "```bash", *map(command, chosen), "```", ""]


def _link(entry: Entry) -> str:
    return f"[{entry.name}]({PAPERS[entry.paper].page}.md#{entry.name})"


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
            runs, hours = book.cpu_h(entry, scale)
            total[scale] += hours
            cells += [_expected(entry, scale), f"{hours:.2f}" if runs else "", str(runs or "")]
        lines.append(table_row(cells))
    lines.append(table_row(["all", "", *_sum(total[Scale.small]), "", *_sum(total[Scale.paper])]))
    lines += ["", "| Machine | What it is |", "|---|---|"]
    for name, facts in sorted(book.machines.items()):
        told = ", ".join(f"{key} {value}" for key, value in facts.items() if value)
        lines.append(table_row([name, told]))
    return [*lines, ""]


def _expected(entry: Entry, scale: Scale) -> str:
    hours = entry.hours.get(scale)
    return "" if hours is None else f"{hours:g}"


def _sum(hours: float) -> tuple[str, str]:
    return f"{hours:.2f}", ""
