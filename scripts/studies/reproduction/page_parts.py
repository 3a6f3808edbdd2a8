"""What the front page and the papers' pages share: tables of claims, and facts about an entry."""

from __future__ import annotations

from collections.abc import Sequence

from reproduction.book import Book, Judged
from reproduction.entry import WALL, Entry, Scale
from reproduction.papers import PAPERS

MADE = "<!-- Made by scripts/studies/reproduce.py --pages from data/; do not edit. -->"
OLD_MEAN = (
    "Convergence accuracies of stored runs are the mean of the last ten evaluations, whatever share"
    " of the run these are. Settings were chosen by the same number. Runs of today's version have"
    " the mean over the last tenth of the emulated time."
)
SMALL = "small scale"
CLAIM_HEAD = ("Claim", "The paper", "Ours", "Verdict")


def judged_claims(book: Book, entry: Entry) -> list[Judged]:
    """Return all claims of an entry with what the runs say."""
    return [book.judged(entry, claim) for claim in entry.claims]


def claim_cells(judged: Judged) -> list[str]:
    """Return the cells of a claim's row, as CLAIM_HEAD names them."""
    verdict = f"**{judged.finding.verdict}**{scale_mark(judged.scale)}"
    if judged.scale is not None and not judged.is_complete:
        verdict += " (so far: not all runs are done)"
    ours = judged.finding.ours + (scale_mark(judged.scale) if judged.finding.ours else "")
    return [judged.claim.text, judged.claim.published, ours, verdict]


def command(entry: Entry) -> str:
    """Return the command that runs an entry, at the largest scale that needs nothing special."""
    scale = Scale.small if entry.needs else Scale.paper
    return f"python scripts/studies/reproduce.py --entry {entry.name} --scale {scale} --workers 2"


def state_of_runs(book: Book, entry: Entry) -> list[str]:
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


def clock_of(book: Book, entry: Entry) -> str:
    """Return which clock the entry's runs have, or those of the entries that it uses."""
    of = [entry, *(book.entries[name] for name in entry.uses if name in book.entries)]
    clocks = list(dict.fromkeys(part.clock for each in of for part in each.parts))
    if not clocks:
        return ""
    sockets = " (real sockets)" if WALL in clocks else ""
    return f"Clock: {' and '.join(clocks)}{sockets}."


def cited(key: str) -> str:
    """Return a paper's authors and its address."""
    paper = PAPERS[key]
    link = f", [arXiv {paper.arxiv}](https://arxiv.org/abs/{paper.arxiv})" if paper.arxiv else ""
    return f"{paper.authors}{link}"


def scale_mark(scale: Scale | None) -> str:
    """Return " (small scale)" where it applies."""
    return f" ({SMALL})" if scale is Scale.small else ""


def table_row(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
