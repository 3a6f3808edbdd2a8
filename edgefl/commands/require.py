"""``--require``: conditions on the runs, for scripts and CI; exit status 3 if one is not met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.errors import UserError, nearest
from edgefl.results.summary import FAITHFUL, VIRTUAL

if TYPE_CHECKING:
    from edgefl.results.compare import Row

ACCURACY = "accuracy"

Require = Annotated[
    list[str] | None,
    typer.Option(
        "--require",
        metavar="faithful|accuracy=X",
        help="Exit with status 3 unless every run is faithful (virtual ones are), or has a final"
        " accuracy >= X.",
    ),
]


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition on every run; ``least`` is the smallest accuracy, as a share of 1."""

    name: str
    least: float = 0.0


def requirements(words: Sequence[str]) -> list[Requirement]:
    """Parse the conditions; UserError for an invalid one."""
    return [_requirement(word) for word in words]


def _requirement(word: str) -> Requirement:
    name, equals, value = word.partition("=")
    if name == FAITHFUL and not equals:
        return Requirement(FAITHFUL)
    if name == ACCURACY:
        try:
            least = float(value)
        except ValueError:
            least = -1.0
        if 0 <= least <= 1:
            return Requirement(ACCURACY, least)
        raise UserError(f"--require {word}: expected a share such as accuracy=0.9")
    raise UserError(
        f"--require {word}: expected faithful or accuracy=0.9{nearest(name, [FAITHFUL, ACCURACY])}"
    )


def unmet(wanted: Sequence[Requirement], rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each condition that one of the runs does not meet."""
    if wanted and not rows:
        return ["--require: there is no run"]
    return [sentence for row in rows for each in wanted for sentence in _misses(each, row)]


def _misses(wanted: Requirement, row: Row) -> list[str]:
    name = row.name if row.seed is None else f"{row.name}, seed {row.seed}"
    if wanted.name == FAITHFUL and row.verdict not in (FAITHFUL, VIRTUAL):
        return [f"--require faithful: {name} is {row.verdict}"]
    accuracy, title = row.final_accuracy, row.score.title
    if wanted.name == ACCURACY and row.score.falls:
        return [f"--require accuracy={wanted.least:g}: {name} has {title} as evaluation.metric"]
    if wanted.name == ACCURACY and (accuracy is None or accuracy < wanted.least):
        found = f"no {title}" if accuracy is None else f"{accuracy:.4f}"
        return [f"--require accuracy={wanted.least:g}: {name} has {found}"]
    return []
