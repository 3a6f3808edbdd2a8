"""A grid as Markdown and as LaTeX."""

from __future__ import annotations

import re

from edgefl.errors import printable
from edgefl.results.grid import DIFFERS, MISSING, NOT_FAITHFUL, PLUS_MINUS, TIMES, Grid

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
