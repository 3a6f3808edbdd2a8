"""Reproduce the papers' tables and figures: run their entries, and write docs/results.

An entry is a table or figure of a paper with our runs, its claims and a verdict on each of them.
The results are CSV files in docs/results/data. Runs that they have are not repeated, so the same
command goes on after an interruption, also on another machine.

    python scripts/studies/reproduce.py --list
    python scripts/studies/reproduce.py --entry seed1-fig5 --scale small --workers 2
    python scripts/studies/reproduce.py --entry seed1-fig5 --scale paper --workers 2 --max-hours 2
    python scripts/studies/reproduce.py --pages
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from reproduction import pages, registry
from reproduction.book import Book
from reproduction.entry import ROOT, Scale
from reproduction.runner import S_PER_H, Budget, EntryRunner, Work, say

from edgefl.clocks.choices import EngineName, Power
from edgefl.errors import Bug, UserError
from edgefl.exit_status import BAD_INPUT, FAILED, INTERRUPTED
from emulator.errors import BadValue

RESULTS = ROOT / "docs" / "results"


def main() -> None:
    options = arguments().parse_args()
    try:
        status = run(options)
    except (UserError, BadValue) as error:
        print(error, file=sys.stderr)
        status = BAD_INPUT
    except Bug as bug:
        say(f"{bug.tell()}\n{bug.blame()}")
        status = FAILED
    sys.exit(status)


def run(options: argparse.Namespace) -> int:
    """Do what the options say; return the exit status."""
    data, entries = options.results / "data", registry.entries()
    if options.list:
        Book(entries.values(), data).show()
        return 0
    named = [registry.find(name) for name in options.entry]
    if options.part and len(named) != 1:
        raise UserError(f"--part {options.part[0]}: expected one --entry, whose part it is")
    if options.part and options.anew:
        raise UserError(f"--anew forgets all parts of {named[0].name}: expected no --part")
    chosen = named if options.without_used or options.part else registry.with_used(named)
    if not chosen and not options.pages:
        raise UserError("expected --entry NAME, --pages or --list; --list shows the names")
    status = 0
    if not options.pages:
        work = Work(
            Scale(options.scale),
            Power(options.workers, EngineName(options.engine)),
            options.out,
            data,
            tuple(options.set),
            options.anew,
            tuple(options.part),
            Budget(None if options.max_hours is None else options.max_hours * S_PER_H),
        )
        kept = replace(work, anew=False)  # of the entries that the named ones use
        runners = [EntryRunner(each, work if each in named else kept) for each in chosen]
        status = do(runners, work)
    for path in pages.write(options.results, entries.values()):
        say(f"page: {path}")
    if options.verdicts is not None:
        Book(entries.values(), data).write_verdicts(options.verdicts, chosen)
    return status


def do(runners: list[EntryRunner], work: Work) -> int:
    """Run the entries one after another; return the exit status."""
    again = f"the same command {'without --anew ' if work.anew else ''}goes on"
    for runner in runners:
        say(f"{runner.entry.name}, scale {work.scale}: {runner.entry.title}")
        did = runner.run()
        if did.to_the_end:
            continue
        if work.budget.is_spent:
            say(f"--max-hours: {work.budget.used_s / S_PER_H:.2f} CPU-hours are used; {again}")
        elif did.interrupted:
            say(f"stopped; {again}")
        return INTERRUPTED if did.interrupted else FAILED
    return 0


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="show all entries, and what is done")
    parser.add_argument(
        "--entry",
        action="append",
        default=[],
        metavar="NAME",
        help="an entry to run, after those whose runs it uses; may be repeated",
    )
    parser.add_argument(
        "--part",
        action="append",
        default=[],
        metavar="NAME",
        help="run only this part of the entry; may be repeated (default: all)",
    )
    parser.add_argument(
        "--without-used",
        action="store_true",
        help="do not run the entries that the named ones use; read what they have",
    )
    parser.add_argument(
        "--scale",
        choices=[str(scale) for scale in Scale],
        default=str(Scale.small),
        help="small: to see that it works; paper: the paper's budget (default: small)",
    )
    parser.add_argument(
        "--pages", action="store_true", help="run nothing: write the pages from the CSV files"
    )
    parser.add_argument(
        "--anew",
        action="store_true",
        help="forget what the named entries have at this scale, but not those that they use",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a change to the config of all runs; use another --results and --out with it",
    )
    parser.add_argument(
        "--workers", type=_positive, default=1, metavar="N", help="processes (default: 1)"
    )
    parser.add_argument(
        "--engine",
        choices=[str(engine) for engine in EngineName],
        default=str(EngineName.local),
        help="ray: the workers of each run on a Ray cluster (default: local)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs") / "reproduce",
        metavar="DIR",
        help="run directories (default: runs/reproduce)",
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help="pages, and in data/ the CSV files (default: docs/results)",
    )
    parser.add_argument(
        "--verdicts",
        type=Path,
        metavar="FILE.csv",
        help="write the verdict on each claim of the named entries",
    )
    parser.add_argument(
        "--max-hours",
        type=_hours,
        metavar="H",
        help="stop after so many CPU-hours; the same command goes on later",
    )
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, found {text!r}")
    return int(text)


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = -1.0
    if not hours > 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")
    return hours


if __name__ == "__main__":
    main()
