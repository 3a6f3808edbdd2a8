"""Trials of a study: a config with changes, run by ``edgefl run`` once.

A trial's config is OUT/configs/TRIAL.toml; it extends the original config and can be run by hand.
The output of edgefl is in OUT/logs/TRIAL.log, results are in OUT/TRIAL/.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import tomli_w
from rich import box
from rich.console import Console
from rich.table import Table
from trial_results import Result, result

from edgefl.config.experiment import Experiment, StrategyEntry
from edgefl.errors import UserError
from edgefl.loading.file import load
from edgefl.results import compare
from edgefl.results.rundirs import seed_name
from emulator.errors import BadValue

CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "fedasmu"
# only a check that everything works; the numbers have no meaning
QUICK = {"stop": {"emulated_s": 150.0}, "evaluation": {"every_s": 150.0}}
PLAIN_WIDTH = 140  # width of a table in a file or a pipe
WORDS = ("method", "setting", "point", "against")  # columns of text
LOG_LINES = 12  # shown after a failed run


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
            if not self._run(trial, missing):
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
        return load(self._write(trial, trial.entries), self.overrides)

    def _done(self, trial: Trial, label: str) -> list[tuple[int, Path]]:
        """Return (seed, run) of a strategy's results of exactly this trial.

        An old run of another config is not one, if a failed run did not replace it.
        """
        whole, runs = self._whole(trial), _runs(self.folder / trial.name / label, self.seeds)
        (entry,) = [entry for entry in whole.strategies if entry.name == label] or [None]
        return [
            (one.seed, run)
            for one, run in zip(whole.by_seed(), runs)
            if entry is not None and _is_result_of(run, one, entry)
        ]

    def _missing(self, trial: Trial) -> tuple[Experiment, list[str]]:
        """Return (the trial as an experiment, labels of the strategies without all results)."""
        whole = self._whole(trial)
        return whole, [
            entry.name
            for entry in whole.strategies
            if not self._is_done(whole, entry, self.folder / trial.name / entry.name)
        ]

    def _is_done(self, whole: Experiment, entry: StrategyEntry, directory: Path) -> bool:
        return all(
            _is_result_of(run, one, entry)
            for run, one in zip(_runs(directory, self.seeds), whole.by_seed())
        )

    def _run(self, trial: Trial, labels: Sequence[str]) -> bool:
        """Call ``edgefl run`` for the strategies ``labels``; return whether it succeeded.

        Ctrl-C also reaches this child process. It ends normally, and then so does the study.
        """
        entries = [entry for entry in trial.entries if _label(entry) in labels]
        words = [
            "run",
            str(self._write(trial, entries)),
            "--clock",
            "virtual",
            "--workers",
            str(self.workers),
            "--out",
            str(self.folder),
            *self.overrides,
        ]
        log = self.folder / "logs" / f"{trial.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        say(f"  edgefl {shlex.join(words)}   (output: {log})")
        with log.open("w", encoding="utf-8") as file:
            child = subprocess.Popen(
                [sys.executable, "-m", "edgefl.cli", *words], stdout=file, stderr=subprocess.STDOUT
            )
            try:
                status = child.wait()
            except KeyboardInterrupt:
                child.wait()
                say("stopped; run the same command again to continue")
                raise SystemExit(130) from None
        self._write(trial, trial.entries)  # the file lists all strategies again
        if status:
            say(f"  failed (exit status {status}):")
            say(
                "\n".join(
                    "    " + line
                    for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[
                        -LOG_LINES:
                    ]
                )
            )
        return status == 0

    def _write(self, trial: Trial, entries: Sequence[Mapping[str, Any]]) -> Path:
        changes = _merged(trial.changes, QUICK) if self.quick else trial.changes
        path = self.folder / "configs" / f"{trial.name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        config = {
            "extends": str(trial.base.resolve()),
            "name": trial.name,
            "seeds": list(self.seeds),
            **changes,
            "strategies": [dict(entry) for entry in entries],
        }
        path.write_text(tomli_w.dumps(config), encoding="utf-8")
        return path


def entries(config: Path, *names: str) -> list[dict[str, Any]]:
    """Return the entries of a config's strategies ``names``, with their options."""
    found = {entry.name: entry.model_dump(exclude_none=True) for entry in load(config).strategies}
    missing = [name for name in names if name not in found]
    if missing:
        raise UserError(f"{config}: no strategy {missing[0]!r} (there are {', '.join(found)})")
    return [found[name] for name in names]


def _label(entry: Mapping[str, Any]) -> str:
    return entry.get("label") or entry["strategy"]


def _runs(directory: Path, seeds: Sequence[int]) -> list[Path]:
    """Return the run directory of each seed.

    A single seed's run may be among those of several seeds, which a new run would remove.
    """
    among = directory / seed_name(seeds[0], True)
    if len(seeds) == 1 and (among / "summary.json").is_file():
        return [among]
    return [directory / seed_name(seed, len(seeds) > 1) for seed in seeds]


def _is_result_of(run: Path, experiment: Experiment, entry: StrategyEntry) -> bool:
    """Return whether ``run`` is a finished run of this experiment, of one seed, with ``entry``."""
    try:
        before, summary = (
            load(run / "config.toml"),
            orjson.loads((run / "summary.json").read_bytes()),
        )
    except (UserError, OSError, orjson.JSONDecodeError):
        return False
    same = before.model_dump(exclude={"strategies"}) == experiment.model_dump(
        exclude={"strategies"}
    )
    return (
        same
        and entry in before.strategies
        and summary.get("label") == entry.name
        and summary.get("finished") != "interrupted"
    )


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
