"""What a user may choose about a figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

WIDTHS = {"column": 3.33, "page": 7.0}  # inches: a column and the text of an ACM or IEEE page
FORMATS = ("png", "pdf", "svg")

Limits = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class PlotStyle:
    """What a user may choose about a figure; each default is the figure's own choice.

    ``width``: a key of WIDTHS. ``x``: one of the figure's ``X``. ``xlim`` and ``ylim``: in the
    units that the axes show. ``log``: "", "x", "y" or "xy". ``target``: an accuracy from 0 to 1.
    ``labels``: texts in place of the names of schemes, and of the axes "x" and "y".
    """

    width: str = ""
    x: str = ""
    xlim: Limits | None = None
    ylim: Limits | None = None
    log: str = ""
    title: str = ""
    target: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
