"""How often the 95 % intervals of `edgefl compare` cover the mean, and p <= 0.05 by chance.

    python scripts/benchmarks/intervals.py [--json FILE] [--samples N] [--seeds 3 --seeds 10]

Values of N experiments are drawn from a normal distribution, and from a skewed one (log-normal, as
times to a target may be). compare uses Student's t for fewer than six seeds, else resampling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

import numpy as np
from table import Row, arguments, host_line, report, run, say

from edgefl.results.statistics import Used, chosen, interval, paired_test
from edgefl.streams import Streams

SEEDS = (3, 5, 6, 10, 20)
SIGMA = 0.5  # of the logarithm of the skewed values
SHAPES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {  # and their mean
    "normal": (lambda z: z, 0.0),
    "skewed": (lambda z: np.exp(SIGMA * z), float(np.exp(SIGMA**2 / 2))),
}
COVERED, BY_CHANCE = (
    ">= 92",
    "<= 6.5",
)  # %, of normal values by what compare uses; 95 and 5, less noise


def main() -> None:
    """Print the shares in percent."""
    parser = arguments(__doc__)
    parser.add_argument("--samples", type=int, default=1000, help="experiments of each kind")
    parser.add_argument("--seeds", type=int, action="append", help="seeds of an experiment")
    given, host = parser.parse_args(), host_line()
    rows = []
    for n in given.seeds or SEEDS:
        say(f"{n} seeds")
        for shape in SHAPES:
            rows += _rows(n, shape, given.samples)
    report("Intervals and tests over seeds", host, rows, given.json)


def _rows(n: int, shape: str, samples: int) -> list[Row]:
    drawn = Streams(1).rng("benchmark", n, shape).normal(size=(samples, 2, n))
    transform, mean = SHAPES[shape]
    values = transform(drawn)
    rows = []
    for method in get_args(Used):
        judged = method == chosen(n) and shape == "normal"
        covering, significant = _shares(values, mean, method)
        head = f"{shape}, {n} seeds, {method}: "
        rows += [
            Row(f"{head}interval covers", covering, "%", COVERED if judged else None),
            Row(f"{head}p <= 0.05 by chance", significant, "%", BY_CHANCE if judged else None),
        ]
    return rows


def _shares(values: Sequence[np.ndarray], mean: float, method: Used) -> tuple[float, float]:
    """Return the percentage of intervals that cover, and that of p <= 0.05 without a difference."""
    covering = significant = 0
    for own, baseline in values:
        found = interval(own.tolist(), method)
        assert found is not None  # there are at least two values
        covering += found.low <= mean <= found.high
        p = paired_test(own.tolist(), baseline.tolist(), method).p
        significant += p is not None and p <= 0.05
    return 100 * covering / len(values), 100 * significant / len(values)


if __name__ == "__main__":
    run(main)
