"""Output of all benchmarks: rows with goals, the table, ``--json FILE``, and a line on the machine.

A missed goal is FAIL in the table and in the file, but the exit status stays 0.
"""

from __future__ import annotations

import argparse
import operator
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgefl.errors import UserError
from emulator.errors import BadValue
from emulator.host import host_facts

COMPARE = {"<=": operator.le, ">=": operator.ge}
MARKS = {True: "[green]pass[/green]", False: "[bold red]FAIL[/bold red]", None: ""}
GIB = 1 << 30
TIMES = "x"
PLAIN_WIDTH = 140  # width in a file or a pipe


@dataclass(frozen=True, slots=True)
class Row:
    """One measured number.

    ``goal``: "<= 6" or ">= 0.9" in the row's unit, or None for a number that is only reported. A
    ``value`` of None misses any goal. A ratio to a measurement of the same run (reference.py) has
    the unit TIMES.
    """

    name: str
    value: float | int | str | None
    unit: str = ""
    goal: str | None = None

    @property
    def passed(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        if self.goal is None:
            return None
        sign, bound = self.goal.split()
        return isinstance(self.value, Real) and bool(COMPARE[sign](self.value, float(bound)))

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "goal": self.goal,
            "pass": self.passed,
        }


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--json",
        type=new_file,
        metavar="FILE",
        help="also write the rows to FILE: a list of {name, value, unit, goal, pass}",
    )
    return parser


def new_file(text: str) -> Path:
    """A file to write after the measurement; UserError at once if its folder does not exist."""
    path = Path(text)
    if not path.parent.is_dir():
        raise UserError(f"{path}: cannot be written: {path.parent} is no folder")
    return path


def run(main: Callable[[], None]) -> None:
    """Call the benchmark; print bad input as one line and exit with status 2."""
    try:
        main()
    except (UserError, BadValue) as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def say(text: str) -> None:
    """Print progress to stderr, apart from the results."""
    Console(stderr=True).print(text, highlight=False, markup=False, soft_wrap=True)


def host_line() -> str:
    """Return a line on this machine and its load of the last minute.

    Other work on the machine makes the results worse.
    """
    facts, memory = host_facts(), ""
    if isinstance(facts["memory_bytes"], int):
        memory = f", {facts['memory_bytes'] / GIB:.0f} GiB"
    return (
        f"{facts['cores']} cores of {facts['cpu_model']}{memory}, {facts['kernel']}, Python"
        f" {facts['python']}; load before {load()}"
    )


def load() -> str:
    return f"{os.getloadavg()[0]:.2f}"


def report(title: str, host: str, rows: Sequence[Row], json_file: Path | None) -> None:
    """Print the table under the ``host`` line, and write ``json_file`` if given.

    The ``host`` line must be made before the benchmark itself causes load.
    """
    table = Table(title=title, title_justify="left")
    for heading in ("what", "value", "unit", "goal", ""):
        table.add_column(heading, justify="right" if heading == "value" else "left")
    for row in rows:
        table.add_row(
            escape(row.name), escape(_text(row.value)), row.unit, row.goal or "", MARKS[row.passed]
        )
    console = Console()
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    console.print(host, markup=False, highlight=False, soft_wrap=True)
    console.print(table)
    if json_file is not None:
        json_file.write_bytes(
            orjson.dumps(
                [row.to_json() for row in rows],
                option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY,
            )
            + b"\n"
        )
    _end(rows, json_file)


def _end(rows: Sequence[Row], json_file: Path | None) -> None:
    """Print how many goals were missed, and the next step."""
    judged = [row.passed for row in rows if row.goal is not None]
    if not all(judged):
        say(
            f"{judged.count(False)} of {len(judged)} goals missed: run it again on an idle machine,"
            " then look for changes in the code"
        )
    if json_file is None:
        say("--json FILE writes the rows to a file")
    else:
        say(f"rows: {json_file}")


def _text(value: float | int | str | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
    return str(value)
