"""``edgefl data get | plot | shard``: download data sets, draw partitions, write shards."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.commands import completion, look, show
from edgefl.commands.options import Config, Overrides, OverwriteFiles, kept_aside
from edgefl.errors import UserError, nearest

if TYPE_CHECKING:
    from edgefl.clocks.setup.learning import Learning
    from edgefl.config.experiment import Experiment

LINE_EVERY_S = 0.2

app = typer.Typer(
    no_args_is_help=True,
    help="Data sets: download them, draw the partition, write a file for each edge.",
)


@app.callback()
def data() -> None:
    """Data sets: download them, draw the partition, write a file for each edge."""


@app.command()
def get(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="One of `edgefl datasets`.",
            autocompletion=completion.names_of("data"),
        ),
    ],
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="DIR", help="Target directory (else $EDGEFL_DATA, else data/)."
        ),
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option("--from", metavar="URL|DIR", help="Another source of the published files."),
    ] = None,
) -> None:
    """Download a data set from its authors' address, verify its checksum, and unpack it."""
    from edgefl import catalog
    from edgefl.data.dataset import data_dir
    from edgefl.data.download import fetch

    if ":" in name:
        raise UserError(
            f"data get {name}: only the data sets of `edgefl datasets` have published addresses"
        )
    sets = catalog.names("edgefl.data", "load")
    if name not in sets:
        raise UserError(f"data get {name}: no such data set{nearest(name, sets, most=3)}")
    module = sys.modules[catalog.find("edgefl.data", name, "load", None, "data set").__module__]
    downloads = getattr(module, "DOWNLOADS", ())
    if not downloads:
        raise UserError(
            f"data get {name}: not available by this command;"
            f" {catalog.one_line('edgefl.data', name)}"
        )
    place = directory or data_dir(None, os.environ)
    ticker = _Ticker()
    paths = fetch(downloads, place, module.FOLDERS[0], origin, ticker.tick)
    ticker.end()
    for path in paths:
        show.line(str(path))
    show.hint(f"edgefl run CONFIG data.name={name} data.dir={place}")


@app.command()
def plot(
    config: Config,
    overrides: Overrides = None,
    out: look.Out = None,
    formats: look.Formats = None,
    width: look.Width = "",
    title: look.Title = "",
    numbers: look.Numbers = None,
    overwrite: OverwriteFiles = False,
) -> None:
    """Draw how many samples of each label every edge has."""
    import numpy as np

    from edgefl.results.figures import edges
    from edgefl.results.figures.base import PlotStyle, drawn, save
    from edgefl.results.run_files import replace_file

    out, forms = look.files(out or Path("labels.png"), formats)
    style = PlotStyle(width=width, title=title)
    learned = _learned(config, overrides)
    targets, shares = learned.train[1].numpy(), learned.whole_shares
    counts = [
        np.bincount(targets[rows], minlength=learned.task.dataset.classes).tolist()
        for rows in shares.values()
    ]
    found = edges.of_counts(dict(zip(shares, counts)))
    with kept_aside(look.written(out, forms, numbers), overwrite):
        if numbers is not None:
            replace_file(numbers, found.csv().encode())
        paths = save(drawn(edges.PLOTS["labels"], found, style), out, forms)
    for path in paths:
        show.line(str(path))
    sizes, kinds = (
        sorted(sum(count) for count in counts),
        sorted(sum(number > 0 for number in count) for count in counts),
    )
    show.line(
        f"samples per edge: {sizes[0]} to {sizes[-1]}, median {sizes[len(sizes) // 2]}; labels per"
        f" edge: {kinds[0]} to {kinds[-1]}"
    )
    show.hint(f"edgefl run {config}, or edgefl data shard {config} --out DIR")


@app.command()
def shard(
    config: Config,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="A new directory for the files.")
    ],
    overrides: Overrides = None,
) -> None:
    """Write each edge's samples to its own file, for edges on other machines."""
    from edgefl.data import edge_data, shards

    # the files have raw pixels, the mean and the deviation; each run scales them by its config
    learned = _learned(config, [*(overrides or ()), "data.scale=standard"])
    experiment = learned.experiment
    if experiment.data.source != "partition" or experiment.task is not None:
        raise UserError(
            'data shard: expected a data set of [data] with source = "partition", found'
            f" {_other(experiment)}"
        )
    whole, shares = learned.task.dataset, learned.whole_shares
    digests = edge_data.digests(whole, {"": shares.indices})
    paths = shards.write(out, experiment.data.name, whole, shares, digests)
    sizes = [path.stat().st_size for path in paths[:-1]]
    smallest, largest = min(sizes) / 1e6, max(sizes) / 1e6
    show.line(
        f"{paths[0]} ... {paths[-2].name}: {len(sizes)} files of {smallest:.3g} to {largest:.3g}"
        f" MB; {paths[-1].name} is the coordinator's"
    )
    show.hint(
        f"edgefl coordinator {config} data.source=shard data.dir={out}, and on each edge, with its"
        " own file in DIR: edgefl edge --data DIR ..."
    )


def _learned(config: Path, overrides: list[str] | None) -> Learning:
    """Return the data of the experiment's first seed, divided among the edges."""
    from edgefl.clocks.setup.learning import learning
    from edgefl.config.file import base_of, load

    return learning(load(config, overrides or ()).by_seed()[0], base_of(config))


def _other(experiment: Experiment) -> str:
    return (
        "your own task" if experiment.task is not None else f'source = "{experiment.data.source}"'
    )


class _Ticker:
    """Prints the progress of a download.

    On a terminal it rewrites one line. Elsewhere it prints a line at the start of a file, and one
    at its end.
    """

    def __init__(self) -> None:
        self._file = self._text = ""
        self._said_s = 0.0

    def tick(self, file: str, done: int, total: int) -> None:
        share = f" of {total / 1e6:.1f} MB ({100 * done // total} %)" if total else " MB"
        if file != self._file:
            self.end()
            self._file, self._said_s = file, 0.0
        self._text = f"{file}: {done / 1e6:.1f}{share}"
        terminal = sys.stderr.isatty()
        if not self._said_s or (terminal and time.monotonic() - self._said_s >= LINE_EVERY_S):
            self._said_s = time.monotonic()
            print(self._text, end="\r" if terminal else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Print the last line for a file."""
        if self._file:
            print(self._text, file=sys.stderr, flush=True)
