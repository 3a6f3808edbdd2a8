"""A comparison as a grid of texts, for the terminal and HTML, and as Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from edgefl.errors import UserError, listed, nearest, printable
from edgefl.results import compare
from edgefl.results.compare import Row, byte_unit, note_on_energy
from edgefl.results.comparison import ComparedScheme, Comparison, SeedEstimate
from edgefl.results.differences import told
from edgefl.results.forms import count, probability, seconds, share, three_digits
from edgefl.results.statistics import (
    CONFIDENCE,
    ENOUGH,
    HAS_SCIPY,
    Interval,
    PairedEffect,
    pairs_needed,
    smallest_p,
)
from edgefl.results.summary import FAITHFUL, VIRTUAL

DIFFERS, NOT_FAITHFUL = "*", "†"  # marks behind a scheme's name
PLUS_MINUS, TIMES = "±", "\u00d7"
MISSING = "-"
GOOD = (FAITHFUL, VIRTUAL)
PERCENT = 100 * CONFIDENCE
Form = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class GridColumn:
    """A heading with its unit, the cells, one per scheme, and how they are aligned."""

    heading: str
    cells: tuple[str, ...]
    left: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """Columns by key, and sentences below them. Marks behind names: DIFFERS, NOT_FAITHFUL."""

    columns: dict[str, GridColumn] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def headings(self) -> list[str]:
        return [column.heading for column in self.columns.values()]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells, scheme by scheme."""
        return list(zip(*(column.cells for column in self.columns.values())))


def grid(comparison: Comparison, keys: Sequence[str] = ()) -> Grid:
    """Return the grid with the columns ``keys``, or with those that there is something for.

    UserError for an unknown key.
    """
    made = _columns(comparison)
    for key in keys:
        if key not in made:
            raise UserError(f"--columns {key}: there is no such column{nearest(key, made)}")
    chosen = keys or [key for key in _usual(comparison) if key in made]
    named = dict.fromkeys(("name", *chosen))  # each once, the names first
    shows = comparison.question.accuracy == "convergence" or "convergence_accuracy" in named
    old = notes_on_old_means(comparison.rows) if shows else []
    return Grid({key: made[key] for key in named}, (*notes(comparison), *old))


def _usual(comparison: Comparison) -> list[str]:
    several = any(len(each.rows) > 1 for each in comparison.schemes)
    against = comparison.baseline is not None
    reached = comparison.target is not None
    joules = any(row.joules is not None for row in comparison.rows)
    keys = {
        "seeds": several,
        "accuracy": True,
        "accuracy_interval": several,
        "gain": against,
        "gain_interval": against and several,
        "gain_p": against and several,
        "to_target": reached,
        "to_target_interval": reached and several,
        "speed_up": reached and against,
        "speed_up_interval": reached and against and several,
        "speed_up_p": reached and against and several,
        "joules": joules,
        "verdict": True,
    }
    return [key for key, wanted in keys.items() if wanted]


def _columns(comparison: Comparison) -> dict[str, GridColumn]:
    schemes = comparison.schemes
    target = "target" if comparison.target is None else f"{comparison.target:g}"
    unit, in_unit = _unit(comparison)

    def column(heading: str, cell: Callable[[ComparedScheme], str]) -> GridColumn:
        return GridColumn(heading, tuple(map(cell, schemes)))

    of_baseline = f"vs {comparison.baseline}"
    factor = "speed-up" if comparison.axis.unit == "s" else "factor"
    percent = f"{PERCENT:g} % interval"
    return {
        "name": GridColumn("strategy", tuple(map(marked, schemes)), left=True),
        "seeds": column("seeds", lambda each: str(len(each.rows))),
        "accuracy": column(
            f"{comparison.score.title}, {comparison.question.accuracy}",
            lambda each: value(each.accuracy, share),
        ),
        "accuracy_interval": column(percent, lambda each: bounds(each.accuracy.interval, share)),
        "gain": column(f"points {of_baseline}", lambda each: effect(each.gain, points)),
        "gain_interval": column(percent, lambda each: of_effect(each.gain, points)),
        "gain_p": column("p", lambda each: p_value(each.gain)),
        "to_target": column(f"to {target}{unit}", lambda each: value(each.to_target, in_unit)),
        "to_target_interval": column(
            percent, lambda each: bounds(each.to_target.interval, in_unit)
        ),
        "speed_up": column(f"{factor} {of_baseline}", lambda each: effect(each.speed_up, times)),
        "speed_up_interval": column(percent, lambda each: of_effect(each.speed_up, times)),
        "speed_up_p": column("p", lambda each: p_value(each.speed_up)),
        **{name: _of_rows(comparison, name) for name in compare.QUANTITIES},
        "verdict": GridColumn("verdict", tuple(each.verdict for each in schemes), left=True),
    }


def _of_rows(comparison: Comparison, quantity: str) -> GridColumn:
    """Return the column of a field of ``Row``: mean and deviation."""
    found = [compare.spread_of(each.rows, quantity) for each in comparison.schemes]
    heading = quantity.replace("_", " ")
    form: Form = count
    if quantity.startswith("bytes"):
        size, unit = byte_unit(max((each.mean or 0.0 for each in found), default=0.0))
        heading, form = f"{heading.split()[1]} ({unit})", lambda number: three_digits(number / size)
    elif quantity.endswith("_s"):
        heading, form = f"{quantity.removesuffix('_s').replace('_', ' ')} (s)", seconds
    elif quantity == "joules":
        heading, form = "energy (J)", three_digits
    elif "accuracy" in quantity or quantity == "stability":
        form = share
    return GridColumn(heading, tuple(value(SeedEstimate(each, None), form) for each in found))


def _unit(comparison: Comparison) -> tuple[str, Form]:
    """Return the unit of x behind a heading, and how a value is shown in it."""
    unit = comparison.axis.unit
    if unit == "B":
        reached = [each.x or 0.0 for scheme in comparison.schemes for each in scheme.reached]
        size, unit = byte_unit(max(reached, default=0.0))
        return f" ({unit})", lambda number: three_digits(number / size)
    if unit == "s":
        return " (s)", seconds
    return (f" ({unit})", three_digits) if unit else (f" ({comparison.axis.label})", count)


def marked(scheme: ComparedScheme) -> str:
    """Return the name with the marks of a scheme that differs or is not faithful."""
    marks = (DIFFERS if scheme.differs else "") + (
        NOT_FAITHFUL if scheme.verdict not in GOOD else ""
    )
    return f"{scheme.name} {marks}".rstrip()


def value(estimate: SeedEstimate, form: Form) -> str:
    """Return "0.948 ± 0.019": mean and sample deviation; "2 of 3" if not all runs have it."""
    over = estimate.spread
    if over.mean is None:
        return f"{over.n} of {over.of}" if over.n else MISSING
    if over.deviation is None:
        return form(over.mean)
    shown, deviation = form(over.mean), form(over.deviation)
    with suppress(ValueError):  # no plain numbers, such as 12.3k or <0.01
        float(shown)
        deviation = f"{float(deviation):.{len(shown.partition('.')[2])}f}"
    return f"{shown} {PLUS_MINUS} {deviation}"


def bounds(interval: Interval | None, form: Form) -> str:
    return MISSING if interval is None else f"[{form(interval.low)}, {form(interval.high)}]"


def of_effect(found: PairedEffect | None, form: Form) -> str:
    return MISSING if found is None else bounds(found.interval, form)


def effect(found: PairedEffect | None, form: Form) -> str:
    """Return the size, a bound such as "> 3.11", or "2 of 3" if not all pairs have it."""
    if found is None:
        return MISSING
    if found.size is None:
        return f"{found.having} of {found.pairs}" if found.having else MISSING
    return f"{found.bound} {form(found.size)}".strip()


def p_value(found: PairedEffect | None) -> str:
    return MISSING if found is None or found.adjusted is None else probability(found.adjusted)


def points(difference: float) -> str:
    """Format a difference of accuracies in percentage points, with its sign."""
    return f"{100 * difference:+.1f}"


def times(ratio: float) -> str:
    return f"{ratio:#.3g}".rstrip(".") + TIMES if ratio < 999.5 else f"{ratio:.0f}{TIMES}"


def notes(comparison: Comparison) -> list[str]:
    """Return the sentences below the table: how it was made, and what a reader must know."""
    return [
        *notes_on_statistics(comparison),
        *notes_on_configs(comparison),
        *_of_verdicts(comparison),
        *([energy] if (energy := note_on_energy(comparison.rows)) else []),
    ]


def notes_on_statistics(comparison: Comparison) -> list[str]:
    """Return which intervals and tests the table has, and what limits them."""
    without = comparison.target is None and comparison.baseline is not None
    return [
        *_of_method(comparison),
        *_of_pairs(comparison),
        *(["no target accuracy, so no speed-up: --target 0.9 would give one"] * without),
    ]


def notes_on_configs(comparison: Comparison) -> list[str]:
    """Return which schemes differ in more than the strategy, those that differ alike together."""
    alike: dict[str, list[str]] = {}
    for scheme in comparison.schemes:
        if scheme.differs:
            alike.setdefault(told(scheme.differs), []).append(scheme.name)
    return [
        f"{DIFFERS} {listed(names)} {'differs' if len(names) == 1 else 'differ'}: {what}"
        for what, names in alike.items()
    ]


def notes_on_old_means(rows: Iterable[Row]) -> list[str]:
    """Return which runs have a convergence accuracy that is no mean over time."""
    old = [
        row.name
        for row in rows
        if row.convergence_accuracy is not None and row.convergence_to_s is None
    ]
    names = listed(list(dict.fromkeys(old)))
    return [f"convergence accuracy of {names}: the mean of the last ten evaluations"] if old else []


def _of_verdicts(comparison: Comparison) -> list[str]:
    found = []
    for scheme in comparison.schemes:
        if scheme.verdict not in GOOD:
            reasons = dict.fromkeys(row.reasons for row in scheme.rows if row.reasons)
            why = f": {'; '.join(reasons)}" if reasons else ""
            found.append(f"{NOT_FAITHFUL} {scheme.name}: {scheme.verdict}{why}")
    return found


def _of_method(comparison: Comparison) -> list[str]:
    """Return which intervals and tests the table has, and for how many comparisons p holds."""
    if not HAS_SCIPY and any(len(each.rows) > 1 for each in comparison.schemes):
        return ["no intervals and tests: SciPy is not installed: pip install 'edgefl[lab]'"]
    found = {
        each.interval.method
        for scheme in comparison.schemes
        for each in (scheme.accuracy, scheme.to_target, scheme.gain, scheme.speed_up)
        if each is not None and each.interval is not None
    }
    lines = []
    tested = comparison.baseline is not None
    if "resampling" in found:
        lines.append(
            f"{PERCENT:g} % intervals: bootstrap" + "; p: paired permutation test" * tested
        )
    if "t" in found:
        few = f" (fewer than {ENOUGH} seeds, so normal values are assumed)"
        lines.append(
            f"{PERCENT:g} % intervals: Student's t"
            + "; p: paired t-test" * tested
            + few * (comparison.question.method == "auto")
        )
    others = len(comparison.schemes) - 1
    if tested and lines and others > 1:
        lines.append(f"p is adjusted for {others} comparisons (Holm)")
    return [*lines, *_too_few(comparison)]


def _too_few(comparison: Comparison) -> list[str]:
    """Return how many seeds the permutation tests need before any p can be significant."""
    tests = len(comparison.schemes) - 1
    pairs = {
        each.test.n
        for scheme in comparison.schemes
        for each in (scheme.gain, scheme.speed_up)
        if each is not None and each.test is not None and each.test.method == "resampling"
    }
    needed = pairs_needed(tests)
    if min(pairs, default=needed) >= needed:
        return []
    lowest = probability(smallest_p(min(pairs), tests))
    few = f"with {min(pairs)} seeds no p can be below {lowest}"
    return [f"{few}: at least {needed} seeds are needed, or --method t"]


def _of_pairs(comparison: Comparison) -> list[str]:
    """Return which schemes share only some seeds with the baseline."""
    by_name = {each.name: each for each in comparison.schemes}
    alike: dict[str, list[str]] = {}
    for scheme in comparison.schemes:
        if scheme.gain is not None and comparison.baseline is not None:
            most = max(len(scheme.rows), len(by_name[comparison.baseline].rows))
            if scheme.gain.pairs < most:
                few = f"{scheme.gain.pairs} of {most} seeds in common with {comparison.baseline}"
                alike.setdefault(few, []).append(scheme.name)
    return [f"{listed(names)}: {few}" for few, names in alike.items()]


LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "_": r"\_",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
    "$": r"\$",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    '"': "''",
    PLUS_MINUS: r"$\pm$",
    TIMES: r"$\times$",
}
LATEX_MARKS = {DIFFERS: r"\ast", NOT_FAITHFUL: r"\dagger"}
MARKDOWN = str.maketrans({each: f"\\{each}" for each in "\\`*_[]<>|~#$"})


def markdown(grid: Grid) -> str:
    """Return a table of GitHub's Markdown with its notes below, one per paragraph."""
    aligned = [":--" if column.left else "--:" for column in grid.columns.values()]
    lines = [
        _row([_markdown(heading) for heading in grid.headings]),
        _row(aligned),
        *(_row([_markdown(cell) for cell in cells]) for cells in grid.rows),
    ]
    return "\n".join(lines) + "\n" + "".join(f"\n{_markdown(note)}\n" for note in grid.notes)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(text: str) -> str:
    return text.translate(MARKDOWN)


def latex(grid: Grid, made_by: str = "") -> str:
    r"""Return a ``tabular`` with the rules of booktabs, and its notes below.

    It has no ``table`` around it: caption and label are the paper's. ``made_by``: for a comment.
    """
    aligned = "".join("l" if column.left else "r" for column in grid.columns.values())
    lines = [
        "% \\usepackage{booktabs}" + f"; made by: {printable(made_by)}" * bool(made_by),
        rf"\begin{{tabular}}{{{aligned}}}",
        r"\toprule",
        _latex_row([_latex(heading) for heading in grid.headings]),
        r"\midrule",
        *(_latex_row([_latex_cell(cell) for cell in cells]) for cells in grid.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if grid.notes:
        lines += ["", r"\smallskip", r"{\footnotesize"]
        lines += [f"\\noindent {_latex_note(note)}\\par" for note in grid.notes]
        lines.append("}")
    return "\n".join(lines) + "\n"


def _latex_row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex(text: str) -> str:
    """Return the text with LaTeX's own characters escaped, and a minus in place of a hyphen."""
    escaped = "".join(LATEX.get(each, each) for each in text)
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", escaped)


def _latex_cell(text: str) -> str:
    """Return a cell; the marks behind a name are raised, "-" is a dash.

    The braces keep a cell that begins with [ from being an argument of the line before.
    """
    if text == MISSING:
        return "--"
    name, space, marks = text.rpartition(" ")
    if space and marks and set(marks) <= set(LATEX_MARKS):
        return f"{_latex(name)}${{}}^{{{''.join(LATEX_MARKS[each] for each in marks)}}}$"
    return f"{{{_latex(text)}}}" if text.startswith("[") else _latex(text)


def _latex_note(text: str) -> str:
    mark, _, rest = text.partition(" ")
    if mark in LATEX_MARKS:
        return f"${{}}^{{{LATEX_MARKS[mark]}}}$ {_latex(rest)}"
    return _latex(text)
