"""Figures 3, 4 and 5 of the TDMA paper on MNIST: each claim under each reading of the local steps.

These entries have no runs of their own: they read those of seed1-mnist-a, -b and -b-unit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from reproduction import rules
from reproduction.entries import _tdma_judges as judges
from reproduction.entries._tdma_runs import MNIST_DELAYED, MNIST_PLAIN
from reproduction.entries._tdma_shared import READINGS
from reproduction.entry import Claim, Entry, Finding, LineFigure, Point, Scale
from reproduction.results import NoResults, Results

LOSS = judges.LOSS
FIG_3, FIG_4, FIG_5 = "seed1-fig3", "seed1-fig4", "seed1-fig5"
HOURS = {Scale.small: 4.5, Scale.paper: 24.1}  # of the runs that they use
ALL = "Readings A, B and B with pixels from 0 to 1, each by itself."


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of the paper on MNIST, judged with the runs of one reading.

    ``short``: its name in lists. ``figure``: the entry that has it.
    """

    short: str
    figure: str
    text: str
    published: str
    judge: Callable[[Results], Finding]


def _rounds(results: Results) -> float:
    """Return the number of rounds that every S has without delay."""
    found = [results.mean(label, "versions") for label in MNIST_PLAIN.values()]
    return min(each for each in found if each is not None)


STATEMENTS = (
    Statement(
        "best S without delay is 50",
        FIG_3,
        "Without delay the loss is lowest at S = 50",
        "fig. 3 (a): S = 50, d = 1",
        lambda r: rules.optimum_at(r, MNIST_PLAIN, LOSS, (50.0,)),
    ),
    Statement(
        "S = 100 is behind S = 50",
        FIG_3,
        "Updates without staleness (S = 100) have a higher loss than S = 50",
        "fig. 3 (a): fewer rounds",
        lambda r: rules.better(r, "tdma-s50", "tdma-s100", LOSS),
    ),
    Statement(
        "large S is faster per round",
        FIG_3,
        "Counted in rounds, the loss falls faster the larger S is",
        "fig. 3 (c)",
        lambda r: judges.faster_per_round(r, MNIST_PLAIN, _rounds(r)),
    ),
    Statement(
        "large S is steadier",
        FIG_3,
        "The loss fluctuates less as S grows",
        "fig. 3 (a) and (b)",
        lambda r: judges.steadier(r, MNIST_PLAIN),
    ),
    Statement(
        "best S with delay is 10",
        FIG_4,
        "With intentional delay the loss is lowest at S = 10",
        "fig. 4 (a)",
        lambda r: rules.optimum_at(r, MNIST_DELAYED, LOSS, (10.0,)),
    ),
    Statement(
        "best S becomes smaller",
        FIG_4,
        "Intentional delay makes the best S smaller",
        "figs. 3 and 4: from 50 to 10",
        lambda r: rules.optimum_falls(r, MNIST_PLAIN, MNIST_DELAYED, LOSS),
    ),
    Statement(
        "S = 1 with delay is ahead of S = 100",
        FIG_4,
        "With intentional delay the loss at S = 1 is below that at S = 100",
        "fig. 4 (a)",
        lambda r: rules.better(r, "idfl-s1", "tdma-s100", LOSS),
    ),
    Statement(
        "delay lowers the loss",
        FIG_5,
        "Intentional delay lowers the loss at S = 1, 5, 10 and 25",
        "figs. 4 (a) and 5 (a)",
        lambda r: judges.gains(r, MNIST_PLAIN, MNIST_DELAYED),
    ),
    Statement(
        "delay helps most at small S",
        FIG_5,
        "The smaller S, the more intentional delay lowers the loss",
        "fig. 5 (a)",
        lambda r: judges.gain_falls(r, MNIST_PLAIN, MNIST_DELAYED),
    ),
)
# (statement, reading) -> the experiment that shows why it does not hold; filled in after the runs
CAUSES: dict[tuple[str, str], str] = {
    ("best S without delay is 50", "A"): (
        "With one gradient per turn updates that are 9 rounds old (S = 10) still help, so the"
        " number of rounds counts: 4,541 with S = 10 against 979 with S = 50. At equal numbers of"
        " rounds S = 50 is ahead of S = 10 (fig. 3 (c), above). Only S = 1, 99 rounds old, hardly"
        " learns. `seed1-bound` measures where old updates begin to harm, and `seed1-mnist-b` has"
        " the reading in which a turn moves the model five times as far."
    ),
    ("best S with delay is 10", "A"): (
        "With delay the updates of S = 1 are 25 rounds old in place of 99, and help: a late train"
        " loss of .035 in place of 2.0. Then the smallest S has the most rounds (24,975) and the"
        " lowest loss. `seed1-mnist-b` has the reading in which a turn moves the model five times"
        " as far."
    ),
    ("S = 1 with delay is ahead of S = 100", "B"): (
        "With delay the updates of S = 1 are 25 rounds old, for which the linear bound is .062."
        " `seed1-bound` measures a curvature of 2.1 after 500 slots. So one step of eta = 0.01"
        " gives eta H lambda = .021, below the bound, and S = 1 learns in reading A (.035); five"
        " steps give .107, above it, and in reading B its loss stays at that of a guess. S = 5 with"
        " delay, 9 rounds old (bound .165), learns in both."
    ),
}


def in_reading(judge: Callable[[Results], Finding], letter: str, results: Results) -> Finding:
    """Judge with the runs of a reading. NoResults if there are none."""
    return judge(results.of(READINGS[letter]))


def claims(figure: str) -> tuple[Claim, ...]:
    """Return the claims of a figure: each statement under each reading."""
    return tuple(
        Claim(
            f"{each.text} (reading {letter})",
            each.published,
            partial(in_reading, each.judge, letter),
            cause=CAUSES.get((each.short, letter), ""),
            needs=(READINGS[letter],),
        )
        for each in STATEMENTS
        if each.figure == figure
        for letter in READINGS
    )


def one_for_all(results: Results) -> Finding:
    """Judge "one reading gives all statements"; NoResults if no reading has runs."""
    found, missing = {}, []
    for letter, name in READINGS.items():
        try:
            runs = results.of(name)
        except NoResults:
            missing.append(letter)
        else:
            found[letter] = {each.short: rules.judged(each.judge, runs) for each in STATEMENTS}
    if not found:
        raise NoResults("no reading has runs")
    return judges.one_for_all(found, missing)


def panels(
    results: Results, lines: Callable[[Results], dict[str, list[Point]]]
) -> dict[str, dict[str, list[Point]]]:
    """Return a panel for each reading that has runs."""
    found = {}
    for letter, name in READINGS.items():
        try:
            found[f"reading {letter}"] = lines(results.of(name))
        except NoResults:
            continue
    return found


def over_sizes(results: Results) -> dict[str, dict[str, list[Point]]]:
    """Return the late loss over S, without and with delay."""
    families = {"without delay": MNIST_PLAIN, "with delay": MNIST_DELAYED}
    return panels(results, lambda runs: judges.over_sizes(runs, families))


def over_rounds(results: Results) -> dict[str, dict[str, list[Point]]]:
    """Return the loss over rounds without delay, as fig. 3 (c)."""
    names = {f"S = {x:g}": label for x, label in MNIST_PLAIN.items()}
    return panels(results, lambda runs: judges.curves(runs, names, x="version"))


def figure_entry(name: str, source: str, title: str, *figures: LineFigure) -> Entry:
    """Return the entry of a figure."""
    return Entry(
        name,
        "seed1",
        source,
        title,
        ALL,
        (),
        claims=claims(name),
        figures=figures,
        data=("mnist",),
        hours=HOURS,
        uses=tuple(READINGS.values()),
    )


ENTRIES = (
    figure_entry(
        FIG_3,
        "fig. 3",
        "Without delay: the best S, and what a large S brings",
        LineFigure(
            "rounds",
            "Loss over rounds, without delay",
            x="rounds",
            y="train loss",
            lines=over_rounds,
            log="xy",
        ),
    ),
    figure_entry(FIG_4, "fig. 4", "With intentional delay: the best S"),
    figure_entry(
        FIG_5,
        "fig. 5",
        "Without and with intentional delay",
        LineFigure(
            "sizes",
            "Train loss of the last fifth, by S",
            x="S",
            y="train loss",
            lines=over_sizes,
            log="xy",
        ),
    ),
    Entry(
        "seed1-readings",
        "seed1",
        "ours",
        "Does one reading give all of the paper's statements?",
        ALL,
        (),
        claims=(
            Claim(
                "One reading of the local steps gives all statements of figs. 3, 4 and 5 on MNIST",
                "figs. 3 to 5",
                one_for_all,
            ),
        ),
        data=("mnist",),
        hours=HOURS,
        uses=tuple(READINGS.values()),
    ),
)
