"""WKAFL's figure 2: how few gradients the weights of staleness leave, without any training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reproduction import rules
from reproduction.entries._gradient_measures import WEIGHTS, linearity, share_of_few
from reproduction.entries.gradients import FOLDER
from reproduction.entry import Claim, Entry, LineFigure, MethodPlan, Part, Point, Scale
from reproduction.results import Results


def weights_part(name: str, title: str, edges: int, gradients: int) -> Part:
    """Return a part in which nothing is trained: only which gradients meet, and their weights."""
    options = {"buffer_size": gradients, "report_shares": True}
    return Part(
        name,
        FOLDER / "mnist_1000_10.toml",
        tuple(MethodPlan(label, options=options) for label in ("twafl", "k-async")),
        overrides=(
            "training.trainer='none'",
            f"edges.count={edges}",
            "stop.versions=2000",
            "evaluation.every_versions=2000",
        ),
        small=("stop.versions=500",),
        small_seeds=(1, 2),
        measures={
            **{name: WEIGHTS[name] for name in ("tau_ave", "n_ave", "effective")},
            "share_of_few": share_of_few,
            "linearity": linearity,
        },
        columns=("staleness_mean", "tau_ave", "n_ave", "effective", "share_of_few", "linearity"),
        title=title,
    )


def weighed(results: Results) -> Mapping[str, Mapping[str, Sequence[Point]]]:
    """Return weighted staleness over the number of used gradients, a point per seed and part."""
    lines = {}
    for part in FIG_2.parts:
        if results.has("twafl", part.name):
            rows = results.runs("twafl", part.name)
            pairs = [(row.numbers["n_ave"], row.numbers["tau_ave"]) for row in rows]
            lines[part.title] = [Point(x, y) for x, y in pairs if x is not None and y is not None]
    return {"": lines}


POINTS = {"p100": (1000, 10), "p150": (3000, 20), "p300": (3000, 10)}
FIG_2 = Entry(
    "seed4-fig2",
    "seed4",
    "figure 2, appendix D",
    "How few gradients the weights of staleness leave",
    "The weights (e/2)^-staleness depend on the devices' times alone, so nothing is trained; 1000"
    " devices for K = 20 and 50, which the paper does not say.",
    (
        weights_part("main", "K = 20", 1000, 20),
        weights_part("k50", "K = 50", 1000, 50),
        *(weights_part(name, f"P/K = {p}/{k}", p, k) for name, (p, k) in POINTS.items()),
    ),
    claims=(
        Claim(
            "In almost all steps at most five gradients have a weight above .1 (K = 20 and 50)",
            "figure 2a (histogram)",
            lambda r: rules.every(
                {
                    name: rules.at_least(r, (part, "twafl"), "share_of_few", 0.95)
                    for name, part in (("K = 20", "main"), ("K = 50", "k50"))
                }
            ),
            needs=("main", "k50"),
        ),
        Claim(
            "Weighted staleness grows linearly with the number of used gradients",
            "figure 2b (points, no numbers)",
            lambda r: rules.every(
                {
                    name: rules.at_least(r, (part, "twafl"), "linearity", 0.9)
                    for name, part in (("K = 20", "main"), ("K = 50", "k50"))
                }
            ),
            cause="the weights are a function of the gaps alone: a step with more used gradients is"
            " one whose gaps are closer together",
            needs=("main", "k50"),
        ),
        Claim(
            "The mean staleness of all gradients is at least P/2K",
            "theorem D.1: 50, 75 and 150 at P/K = 100, 150 and 300",
            lambda r: rules.every(
                {
                    f"P/K = {p // k}": rules.at_least(
                        r, (part, "k-async"), "staleness_mean", p / (2 * k)
                    )
                    for part, (p, k) in POINTS.items()
                }
            ),
            needs=tuple(POINTS),
        ),
        Claim(
            "At P/K of 100 and more the weights leave fewer than three effective gradients of ten",
            "not in the paper",
            lambda r: rules.every(
                {
                    f"P/K = {part[1:]}": rules.at_most(r, (part, "twafl"), "effective", 3.0)
                    for part in ("p100", "p300")
                }
            ),
            needs=("p100", "p300"),
        ),
    ),
    figures=(
        LineFigure(
            "weights",
            "Weighted staleness over the mean number of used gradients; a point per seed",
            x="used gradients (N ave)",
            y="weighted staleness (versions)",
            lines=weighed,
            joined=False,
        ),
    ),
    data=("mnist",),
    hours={Scale.small: 0.1, Scale.paper: 0.3},
)

ENTRIES = (FIG_2,)
