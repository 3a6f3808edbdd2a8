"""When timely dissemination pays: FedASMU against others with unequal devices.

The others are FedASMU-0, FedAsync and FedBuff. The speeds differ by factors of 5, 110 and 440; the
slowest device always takes 200 s. One figure shows the gain in time to target and in accuracy (mean
over the last 500 s) over the median staleness. Finished runs are not repeated.

    python scripts/studies/map_dissemination.py --workers 2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from trial_results import mean, median_staleness, spread
from trials import (
    CONFIGS,
    Study,
    Trial,
    arguments,
    end,
    entries,
    numbers,
    run,
    say,
    study,
    tell,
)

from edgefl.errors import UserError
from edgefl.results.figures.canvas import COLOURS, MARKERS, STYLE
from edgefl.results.figures.output import LEFT, save

MAIN = CONFIGS / "fmnist_lenet.toml"
SLOWEST_S, TASK_SAMPLES = 200.0, 3000.0  # 600 samples, five epochs
SCHEME, OTHERS = "fedasmu", ("fedasmu-0", "fedasync", "fedbuff")
METHODS = (
    "setting",
    "method",
    "median_staleness",
    "target_s",
    "target_dev_s",
    "late_accuracy",
    "accuracy_dev",
    "down_MB",
)
GAINS = ("setting", "against", "median_staleness", "time_saved", "accuracy_gained")


@dataclass(frozen=True, slots=True)
class Gain:
    """The gain of FedASMU against another method in one setting.

    ``time`` is the saved share of the other method's time to target; ``accuracy`` the difference.
    """

    setting: str
    against: str
    staleness: float | None
    time: float | None
    accuracy: float | None


def main() -> None:
    parser = arguments(__doc__, "map-dissemination", (1,))
    parser.add_argument(
        "--ratios",
        type=numbers,
        default=(5.0, 110.0, 440.0),
        metavar="5,110",
        help="task time of the slowest device / fastest device (default: 5,110,440)",
    )
    parser.add_argument(
        "--target", type=float, default=0.60, help="target accuracy (default: 0.60)"
    )
    options = parser.parse_args()
    ours = study(options)
    trials = [trial(ratio, options.target) for ratio in options.ratios]
    whole = ours.do(trials)
    tell(
        "Methods",
        METHODS,
        [row for each in trials for row in methods(ours, each)],
        ours.folder / "methods.csv",
    )
    gains = [gain(ours, each, other) for each in trials for other in OTHERS]
    tell(
        f"Gain of {SCHEME} (target {options.target:g})",
        GAINS,
        [(g.setting, g.against, g.staleness, g.time, g.accuracy) for g in gains],
        ours.folder / "gains.csv",
    )
    say(f"figure: {draw(gains, options.target, ours.folder / 'figures' / 'map.png')}")
    end(ours, whole)


def trial(ratio: float, target: float) -> Trial:
    """All four methods with devices whose tasks take SLOWEST_S / ratio to SLOWEST_S."""
    if ratio < 1:
        raise UserError(f"--ratios: expected 1 or more, found {ratio:g}")
    devices = {"samples_per_s": TASK_SAMPLES / SLOWEST_S * ratio, "slowest_ratio": ratio}
    return Trial(
        f"ratio{ratio:g}",
        MAIN,
        entries(MAIN, SCHEME, *OTHERS),
        {"devices": devices, "evaluation": {"target_accuracy": target}},
    )


def methods(ours: Study, each: Trial) -> list[tuple[object, ...]]:
    """Return a row for each method that has results."""
    found = {label: ours.results(each, label) for label in (SCHEME, *OTHERS)}
    return [
        (
            each.name,
            label,
            median_staleness(results),
            *spread(results, "target_s"),
            *spread(results, "late_accuracy"),
            mean(results, "down_MB"),
        )
        for label, results in found.items()
        if results
    ]


def gain(ours: Study, each: Trial, other: str) -> Gain:
    """Return the gain; None for unknown parts, for example if a method never reached the target."""
    scheme, others = ours.results(each, SCHEME), ours.results(each, other)
    time, other_time = mean(scheme, "target_s"), mean(others, "target_s")
    accuracy, other_accuracy = mean(scheme, "late_accuracy"), mean(others, "late_accuracy")
    return Gain(
        each.name,
        other,
        median_staleness(scheme),
        None if time is None or not other_time else 1 - time / other_time,
        None if accuracy is None or other_accuracy is None else accuracy - other_accuracy,
    )


def draw(gains: Sequence[Gain], target: float, path: Path) -> Path:
    """Draw two panels with a line per other method; each point has its speed ratio next to it."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.0, 3.0), dpi=300, layout="constrained")
        FigureCanvasAgg(figure)
        over_time, over_accuracy = figure.subplots(1, 2)
        for place, other in enumerate(dict.fromkeys(each.against for each in gains)):
            own = sorted(
                (each for each in gains if each.against == other and each.staleness is not None),
                key=lambda each: each.staleness or 0.0,
            )
            line(
                over_time, place, other, [(each.setting, each.staleness, each.time) for each in own]
            )
            line(
                over_accuracy,
                place,
                other,
                [(each.setting, each.staleness, each.accuracy) for each in own],
            )
        for axes, label in (
            (over_time, f"Time to {target:g} saved (share)"),
            (over_accuracy, "Accuracy of the last 500 s gained"),
        ):
            axes.axhline(0.0, color="0.35", linewidth=0.8)
            axes.set_xlabel("Median staleness (numbers: slowest / fastest device)")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.margins(x=0.2)
            axes.set_ylabel(label)
            axes.grid(color="0.9", linewidth=0.5)
            axes.spines[["top", "right"]].set_visible(False)
        figure.legend(
            *over_accuracy.get_legend_handles_labels(),
            loc="outside upper center",
            ncols=3,
            frameon=False,
        )
        return save(figure, path.with_suffix(""), LEFT)[0]


def line(
    axes: Axes, place: int, other: str, points: Sequence[tuple[str, float | None, float | None]]
) -> None:
    known = [(x, y) for _, x, y in points if x is not None and y is not None]
    style = {"color": COLOURS[place], "marker": MARKERS[place], "markersize": 4.5, "linewidth": 1.0}
    axes.plot([x for x, _ in known], [y for _, y in known], label=f"against {other}", **style)
    for setting, x, y in points:
        if x is not None and y is not None:
            beside = ((5, "left"), (-5, "right"))[
                place % 2
            ]  # on different sides, because points of two methods are close
            axes.annotate(
                setting.removeprefix("ratio"),
                (x, y),
                (beside[0], -2),
                textcoords="offset points",
                fontsize=5,
                color="0.3",
                ha=beside[1],
            )


if __name__ == "__main__":
    run(main)
