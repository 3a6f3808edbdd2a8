"""Figures: a TDMA channel over time, and the rate of a trace.

They use matplotlib's objects, without pyplot and without global state. matplotlib loads slowly, so
only what draws imports this file.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from emulator.capacity.trace import RateStatistics
from emulator.tdma.closed_form import Round, Tdma, simulate
from emulator.units import NS_PER_S

# matplotlib lists each of its keys in a type
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.linewidth": 0.6,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
}
TIMELINE_STYLE = STYLE | {
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "svg.hashsalt": "tdma",
    "hatch.linewidth": 0.5,
}
RATE_STYLE = STYLE | {"svg.hashsalt": "trace"}
MAX_ROWS, MAX_COLUMNS, LEAST_ROUNDS = 40, 240, 8
# (colour, hatch): after the colour-blind-safe palette of Okabe and Ito; distinct in grey, too.
LOOKS = {
    "compute": ("#9CCBEB", ""),
    "wait": ("#F2F2F2", ""),
    "transmit": ("#D55E00", ""),
    "receive": ("#006B50", "////"),
}
LINE, OUTAGE = "#0072B2", "#D55E00"  # of the same palette
Bar = tuple[int, str, int, int]  # device, what it does, from slot, up to slot


def timeline(tdma: Tdma, kind: str) -> bytes:
    """Draw the first rounds of ``tdma``: one row per device, one column per slot.

    Return a file of type ``kind``: "png", "pdf" or "svg".
    """
    with matplotlib.rc_context(TIMELINE_STYLE):
        return _saved(_draw_timeline(tdma, _shown(tdma)), kind)


def rate_figure(numbers: RateStatistics, title: str, kind: str) -> bytes:
    """Draw the rate over time, and how often each rate occurs; return a file of type ``kind``."""
    with matplotlib.rc_context(RATE_STYLE):
        figure = Figure(figsize=(7.0, 2.6), dpi=200, layout="constrained")
        FigureCanvasAgg(figure)
        _draw_rates(figure, numbers, title)
        return _saved(figure, kind)


def _saved(figure: Figure, kind: str) -> bytes:
    """The file, without the moment and the program that made it: equal figures, equal bytes."""
    data = io.BytesIO()
    metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    figure.savefig(data, format=kind, metadata=metadata[kind])
    return data.getvalue()


def bars(rounds: Iterable[Round], rows: int) -> Iterator[Bar]:
    """What each of the first ``rows`` devices does in these rounds.

    In all other slots a device waits.
    """
    for done in rounds:
        for upload in done.uploads:
            if upload.device < rows:
                yield upload.device, "compute", upload.began_slot, upload.finished_slot
                yield (
                    upload.device,
                    "transmit",
                    upload.slot,
                    upload.slot + done.end_slot - done.broadcast_slot,
                )
        for device in done.receivers:
            if device < rows:
                yield device, "receive", done.broadcast_slot, done.end_slot


def _shown(tdma: Tdma) -> list[Round]:
    """The rounds of two turns of all devices, or as many of them as fit."""
    fitting = list(
        takewhile(
            lambda done: done.end_slot <= MAX_COLUMNS, islice(simulate(tdma), 2 * tdma.groups)
        )
    )
    return (
        fitting
        if len(fitting) >= LEAST_ROUNDS
        else list(islice(simulate(tdma), min(LEAST_ROUNDS, 2 * tdma.groups)))
    )


def _until_known(tdma: Tdma, rows: int, last_slot: int) -> Iterator[Round]:
    """Rounds until it is known what the first ``rows`` devices do before ``last_slot``.

    More rounds are needed because a computation appears only with its upload.
    """
    unknown = set(range(rows))
    for done in simulate(tdma):
        yield done
        unknown.difference_update(
            upload.device for upload in done.uploads if upload.slot >= last_slot
        )
        if not unknown:
            return


def _draw_timeline(tdma: Tdma, shown: Sequence[Round]) -> Figure:
    rows, last_slot = min(tdma.devices, MAX_ROWS), shown[-1].end_slot
    figure = Figure(
        figsize=(max(5.0, min(13.0, 1.2 + 0.11 * last_slot)), 1.5 + 0.19 * rows),
        dpi=200,
        layout="constrained",
    )
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.add_patch(_rectangle(axes, "wait", 0, last_slot, -0.5, rows))
    for device, what, begin, end in bars(_until_known(tdma, rows, last_slot), rows):
        if begin < last_slot:
            axes.add_patch(
                _rectangle(axes, what, begin, min(end, last_slot) - begin, device - 0.4, 0.8)
            )
    _finish(axes, tdma, shown, rows, last_slot)
    handles = [
        Patch(
            facecolor=colour,
            hatch=hatch,
            edgecolor="white" if hatch else "0.6",
            linewidth=0.4,
            label=what,
        )
        for what, (colour, hatch) in LOOKS.items()
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False)
    return figure


def _rectangle(axes: Axes, what: str, x: float, width: float, y: float, height: float) -> Patch:
    colour, hatch = LOOKS[what]
    return Rectangle(
        (x, y),
        width,
        height,
        facecolor=colour,
        hatch=hatch,
        edgecolor="white" if hatch else "none",
        linewidth=0,
        zorder=1,
    )


def _finish(axes: Axes, tdma: Tdma, shown: Sequence[Round], rows: int, last_slot: int) -> None:
    axes.set_xlim(0, last_slot)
    axes.set_ylim(rows - 0.5, -0.5)
    if last_slot <= MAX_COLUMNS:
        axes.set_xticks(range(last_slot + 1), minor=True)
        axes.grid(axis="x", which="minor", color="0.6", linewidth=0.4, zorder=2)
        axes.tick_params(axis="x", which="minor", length=0)
    axes.set_axisbelow(False)
    for done in shown:
        axes.axvline(done.end_slot, color="0.25", linewidth=0.7, zorder=3)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=16, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=min(rows, 20), integer=True, min_n_ticks=1))
    axes.set_xlabel("Slot (rounds end at the dark lines; the number above is the round)")
    axes.set_ylabel(
        "Device" if rows == tdma.devices else f"Device (the first {rows} of {tdma.devices})"
    )
    above = axes.secondary_xaxis("top")
    begins = [0, *(done.end_slot for done in shown)]
    every = -(-len(shown) // 40)
    above.set_xticks(
        [(begins[done.number] + done.end_slot) / 2 for done in shown[::every]],
        [str(done.number) for done in shown[::every]],
        fontsize=6,
    )
    above.tick_params(length=0, pad=1)


def _draw_rates(figure: Figure, numbers: RateStatistics, title: str) -> None:
    over_time, shares = figure.subplots(1, 2, sharey=True, width_ratios=[3, 1])
    window_s = numbers.window_ns / NS_PER_S
    rates = [rate / 1e6 for rate in numbers.rates_bit_s]
    edges = [place * window_s for place in range(len(rates) + 1)]
    over_time.stairs(rates, edges, color=LINE, linewidth=0.8)
    over_time.axhline(numbers.mean_bit_s / 1e6, color="0.35", linewidth=0.7, linestyle="--")
    over_time.set(xlabel="Time (s)", ylabel="Rate (Mbit/s)", title=title)
    over_time.set_xlim(0, edges[-1])
    over_time.set_ylim(bottom=0)
    ordered = sorted(rates)
    below = [place / len(ordered) for place in range(1, len(ordered) + 1)]
    shares.step(below, ordered, color=LINE, linewidth=0.8, where="pre")
    shares.set(xlabel=f"Share of {window_s:g} s windows\nwith at most this rate")
    shares.set_xlim(0, 1)
    if numbers.outage_share:
        shares.axvspan(0, numbers.outage_share, color=OUTAGE, alpha=0.2, linewidth=0)
