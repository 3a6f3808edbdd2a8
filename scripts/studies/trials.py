"""Trials of a study: a config with changes, whose runs are done by the machinery of edgefl sweep.

A trial's config is OUT/configs/TRIAL.toml; it extends the original config and can be run by hand.
Results are in OUT/TRIAL/.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import tomli_w
from rich import box
from rich.console import Console
from rich.table import Table
from trial_results import Result, result

from edgefl.commands.sweep import SweepLines
from edgefl.config.experiment import Experiment
from edgefl.errors import Bug, UserError
from edgefl.exit_status import BAD_INPUT, FAILED
from edgefl.hosts.setup.rundir import remove_run
from edgefl.hosts.workers import Power
from edgefl.loading.file import base_of, load
from edgefl.results import compare
from edgefl.results.rundirs import is_run, seed_name
from edgefl.sweep.folder import locked
from edgefl.sweep.sweep_runs import SweepRun, do
from emulator.errors import BadValue

CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "fedasmu"
# only a check that everything works; the numbers have no meaning
QUICK = {"stop": {"emulated_s": 150.0}, "evaluation": {"every_s": 150.0}}
PLAIN_WIDTH = 140  # width of a table in a file or a pipe
WORDS = ("method", "setting", "point", "against")  # columns of text


@dataclass(frozen=True, slots=True)
class Trial:
    """Strategies in one setting: the config ``base`` with ``changes``.

    ``entries`` are entries of a config's strategies, ``changes`` its tables.
    """

    name: str
    base: Path
    entries: Sequence[Mapping[str, Any]]
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Study:
    """The folder of a study's trials and their common options."""

    folder: Path
    seeds: tuple[int, ...]
    workers: int
    quick: bool
    overrides: tuple[str, ...] = ()  # key.path=value of every trial's config

    def results(self, trial: Trial, label: str) -> list[Result]:
        """Return a strategy's results, one per finished seed."""
        return [result(run, seed) for seed, run in self._done(trial, label)]

    def runs(self, trial: Trial, label: str) -> list[Path]:
        """Return the directories of these results; runs of other seeds may be next to them."""
        return [run for _, run in self._done(trial, label)]

    def do(self, trials: Sequence[Trial]) -> bool:
        """Run the missing trials and report progress; return False if a run failed."""
        failed, began_s = [], time.monotonic()
        for number, trial in enumerate(trials, 1):
            whole, missing = self._missing(trial)
            place = f"[{number}/{len(trials)}] {trial.name}"
            if not missing:
                say(f"{place}: done before ({', '.join(entry.name for entry in whole.strategies)})")
                continue
            say(f"{place}: {', '.join(missing)}, seeds {', '.join(map(str, self.seeds))} ...")
            if not self._run(trial, whole):
                failed.append(trial.name)
                say(
                    f"  seeds are missing of: {', '.join(self._missing(trial)[1])}; tables use the"
                    " finished seeds"
                )
            minutes, left = (time.monotonic() - began_s) / 60, len(trials) - number
            say(f"{place}: {minutes:.1f} min so far, {left} of {len(trials)} trials left")
        if failed:
            say(f"failed: {', '.join(failed)}; run the same command again to continue")
        return not failed

    # ------------------------------------------------------------------ one trial
    def _whole(self, trial: Trial) -> Experiment:
        return load(self._write(trial), self.overrides)

    def _all_runs(self, trial: Trial, whole: Experiment) -> list[SweepRun]:
        """Return every run of a trial, seed by seed."""
        base = base_of(self._config(trial))
        places = [
            _runs(self.folder / trial.name / entry.name, self.seeds) for entry in whole.strategies
        ]
        return [
            SweepRun(one, index, runs[number], base)
            for number, one in enumerate(whole.by_seed())
            for index, runs in enumerate(places)
        ]

    def _done(self, trial: Trial, label: str) -> list[tuple[int, Path]]:
        """Return (seed, run) of a strategy's results of exactly this trial.

        An old run of another config is not one, if a failed run did not replace it.
        """
        runs = self._all_runs(trial, self._whole(trial))
        return [
            (run.experiment.seed, run.directory)
            for run in runs
            if run.entry.name == label and run.is_done
        ]

    def _missing(self, trial: Trial) -> tuple[Experiment, list[str]]:
        """Return (the trial as an experiment, labels of the strategies without all results)."""
        whole = self._whole(trial)
        open_runs = [run for run in self._all_runs(trial, whole) if not run.is_done]
        names = {run.entry.name for run in open_runs}
        return whole, [entry.name for entry in whole.strategies if entry.name in names]

    def _run(self, trial: Trial, whole: Experiment) -> bool:
        """Do what is missing; return whether it succeeded. After a Ctrl-C the study ends."""
        lines = StudyLines()
        runs = self._all_runs(trial, whole)
        missing = [run for run in runs if not run.is_done]
        try:
            with locked(self.folder / trial.name):
                for label in self._alone(trial, whole):
                    remove_run(label)
                lines.start(len(runs), len(missing), self.workers)
                did = do(missing, Power(self.workers), lines)
        except KeyboardInterrupt:
            _stop()
        except (UserError, BadValue) as error:
            say(f"  failed (exit status {BAD_INPUT}):\n    {error}")
            return False
        except Bug as bug:
            say(f"  failed (exit status {FAILED}):\n{bug.tell()}\n{bug.blame()}")
            return False
        finally:
            lines.close()
        if did.interrupted:
            _stop()
        return did.whole

    def _alone(self, trial: Trial, whole: Experiment) -> list[Path]:
        """Return the directories with a single seed's run of an earlier command.

        It would be taken for the result of several seeds, which are one level below.
        """
        if len(self.seeds) == 1:
            return []
        places = [self.folder / trial.name / entry.name for entry in whole.strategies]
        return [place for place in places if is_run(place)]

    def _config(self, trial: Trial) -> Path:
        return self.folder / "configs" / f"{trial.name}.toml"

    def _write(self, trial: Trial) -> Path:
        changes = _merged(trial.changes, QUICK) if self.quick else trial.changes
        path = self._config(trial)
        path.parent.mkdir(parents=True, exist_ok=True)
        config = {
            "extends": str(trial.base.resolve()),
            "name": trial.name,
            "seeds": list(self.seeds),
            **changes,
            "strategies": [dict(entry) for entry in trial.entries],
        }
        path.write_text(tomli_w.dumps(config), encoding="utf-8")
        return path


class StudyLines(SweepLines):
    """Progress on stderr: stdout has only the tables."""

    def say(self, text: str) -> None:
        self.close()
        say(text)


def entries(config: Path, *names: str) -> list[dict[str, Any]]:
    """Return the entries of a config's strategies ``names``, with their options."""
    found = {entry.name: entry.model_dump(exclude_none=True) for entry in load(config).strategies}
    missing = [name for name in names if name not in found]
    if missing:
        raise UserError(f"{config}: no strategy {missing[0]!r} (there are {', '.join(found)})")
    return [found[name] for name in names]


def _stop() -> NoReturn:
    say("stopped; run the same command again to continue")
    raise SystemExit(130)


def _runs(directory: Path, seeds: Sequence[int]) -> list[Path]:
    """Return the run directory of each seed.

    A single seed's run may be among those of several seeds, which a new run would remove.
    """
    among = directory / seed_name(seeds[0], True)
    if len(seeds) == 1 and (among / "summary.json").is_file():
        return [among]
    return [directory / seed_name(seed, len(seeds) > 1) for seed in seeds]


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two configs: each table key by key."""
    return {key: {**base.get(key, {}), **value} for key, value in changes.items()} | {
        key: value for key, value in base.items() if key not in changes
    }


# ------------------------------------------------------------------ command line and output
def run(main: Callable[[], None]) -> None:
    """Call the study; print bad input as one line and exit with status 2."""
    try:
        main()
    except (UserError, BadValue) as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def arguments(doc: str | None, name: str, seeds: Sequence[int]) -> argparse.ArgumentParser:
    """Return a parser with the options of every study."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--workers",
        type=_positive,
        default=2,
        metavar="N",
        help="processes that train (default: 2)",
    )
    parser.add_argument(
        "--seeds",
        type=_seeds,
        default=tuple(seeds),
        metavar="1,2",
        help=f"default: {','.join(map(str, seeds))}",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs") / name,
        metavar="DIR",
        help=f"results (default: runs/{name})",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="run only 150 emulated seconds, in DIR-quick, to check that everything works",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a config value, as with edgefl run; may be repeated",
    )
    return parser


def study(options: argparse.Namespace) -> Study:
    folder = options.out.with_name(options.out.name + "-quick") if options.quick else options.out
    return Study(folder, options.seeds, options.workers, options.quick, tuple(options.set))


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, found {text!r}")
    return int(text)


def _seeds(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts) or len(set(parts)) < len(parts):
        raise argparse.ArgumentTypeError(f"expected distinct numbers such as 1,2, found {text!r}")
    return tuple(map(int, parts))


def numbers(text: str) -> tuple[float, ...]:
    """Parse "5,110" as numbers, for argparse."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected numbers such as 5,110, found {text!r}"
        ) from None


def say(text: str) -> None:
    Console(stderr=True).print(text, highlight=False, markup=False, soft_wrap=True)


def end(ours: Study, whole: bool) -> None:
    """Print the next step; exit with status 1 if a run failed."""
    if not whole:
        raise SystemExit(1)
    if ours.quick:
        say("everything works; run without --quick for meaningful numbers")
    else:
        say(f"runs: {ours.folder}; edgefl compare and edgefl plot show more of them")


def tell(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], path: Path) -> None:
    """Print a table without its empty columns, and write it as CSV."""
    kept = [place for place in range(len(columns)) if any(row[place] is not None for row in rows)]
    shown = Table(
        title=title,
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
    )
    for column in (columns[place] for place in kept):
        text = column in WORDS
        shown.add_column(
            column.replace("_", "\n"),
            justify="left" if text else "right",
            no_wrap=text,
            overflow="fold",
        )
    for row in rows:
        shown.add_row(*(_cell(row[place]) for place in kept))
    console = Console()
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    console.print(shown)
    compare.write_table(path, columns, rows)
    say(f"table: {path}")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
