"""A figure of a trace: its rate over time, and how often each rate occurs.

It uses matplotlib's objects, without pyplot and without global state.
"""

from __future__ import annotations

import io
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from emulator.traces.rate_statistics import RateStatistics
from emulator.units import NS_PER_S

# matplotlib lists each of its keys in a type
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.linewidth": 0.6,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "trace",
}
LINE, OUTAGE = "#0072B2", "#D55E00"  # after the colour-blind-safe palette of Okabe and Ito


def rate_figure(numbers: RateStatistics, title: str, kind: str) -> bytes:
    """Draw the windows of ``numbers``; return a file of type ``kind``: "png", "pdf" or "svg"."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.0, 2.6), dpi=200, layout="constrained")
        FigureCanvasAgg(figure)
        _draw(figure, numbers, title)
        data = io.BytesIO()
        metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
        figure.savefig(data, format=kind, metadata=metadata[kind])
    return data.getvalue()


def _draw(figure: Figure, numbers: RateStatistics, title: str) -> None:
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
