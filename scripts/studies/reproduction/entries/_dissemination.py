"""What the entries on timely dissemination share: the two readings, tuned methods, and judges.

The papers write one mini-batch step per epoch (eqs. 4 and 6) and do not say how many epochs a task
has. So both readings are run: an epoch is a mini-batch, and an epoch is a pass over the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from reproduction import rules
from reproduction.entries._dissemination_measures import MEASURES
from reproduction.entry import CONFIGS, Finding, MethodPlan, Part, Scale, Tuning
from reproduction.results import MAIN, NoResults, Results

FOLDER = CONFIGS / "fedasmu"
FMNIST = ("fashion_mnist",)
LEAST_BETA = 0.1  # below it, merging is negligible
LEAST_SHARE = 0.1  # of xi: below it, the weight does not depend on staleness
ONE_POINT = 0.01  # the smallest difference in accuracy that is worth a claim
HALF = 0.505  # the notes of requests are a little more
MERGE_CAUSE = (
    "seed0-linear compares a merge with a smaller alpha at equal time, and seed0-map with the"
    " best of four weights on both sides; beta_mid says how much a merge weighs here."
)
STEP_CAUSE = (
    "Where an epoch is a mini-batch, the length of a server step decides: a task moves the model by"
    " five small steps, and a weight of 1 takes them once at most. FedBuff's tuned server rate is"
    " 8: its tuning run has .699 after 18,000 s, against .489 with a rate of 1, FedAsync's best"
    " .455 and FedASMU's best .437. Between methods whose weights end at 1, merging: " + MERGE_CAUSE
)
WEIGHT_CAUSE = (
    "staleness_share_mid says how much of the weight depends on staleness here, and controls_moved"
    " how far lambda, sigma and iota get from their start values at the papers' learning rates."
)

ACCURACY, TIME = "convergence_accuracy", "time_to_target_s"
COLUMNS = (ACCURACY, TIME, "updates_applied", "staleness_median", "alpha_mid", "beta_mid")
DETAILS = ("staleness_share_mid", "controls_moved", "refresh_point_mean", "down_MB")


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading of "epoch". ``every_s``: emulated time between evaluations, for all methods.

    ``budget_s``: the whole budget; ``small_s``: that of the small scale.
    """

    key: str
    text: str
    config: Path
    budget_s: float
    every_s: float
    small_s: float
    tuning_share: float
    changes: tuple[str, ...] = ()  # more changes to the config

    def part(
        self,
        name: str,
        methods: tuple[MethodPlan, ...],
        *,
        config: Path | None = None,
        share: float = 1.0,
        tuned: bool = False,
        settings_of: str = "",
        title: str = "",
        overrides: tuple[str, ...] = (),
    ) -> Part:
        """Return a part over ``share`` of the budget, with the measures of dissemination."""
        return Part(
            name,
            config or self.config,
            methods,
            overrides=(*self.within(self.budget_s * share), *self.changes, *overrides),
            small=self.within(self.small_s),
            small_seeds=(1,),
            tuning=Tuning(self.tuning_share, extend=2) if tuned else None,
            settings_of=settings_of,
            measures=MEASURES,
            columns=(*COLUMNS, *DETAILS),
            title=title,
        )

    def within(self, end_s: float) -> tuple[str, str]:
        """Return the changes to the config for a run of ``end_s`` emulated seconds."""
        every_s = min(self.every_s, end_s / 10)
        return f"stop.emulated_s={end_s!r}", f"evaluation.every_s={every_s!r}"


# A tenth of the budget leaves the first model at chance level, so nothing could be chosen there.
BATCH = Reading(
    "batch",
    "An epoch is one mini-batch step, as eqs. 4 and 6 are printed; five epochs a task, to 60,000"
    " emulated s (about 4,700 updates or 310 rounds).",
    FOLDER / "fmnist_batches.toml",
    60_000.0,
    1_000.0,
    2_000.0,
    0.3,
)
PASS = Reading(
    "pass",
    "An epoch is a pass over the device's data; five epochs a task, to 25,500 emulated s (about"
    " 2,000 asynchronous updates or 130 rounds). LeNet's convolutions move by two pixels, in place"
    " of pooling (ours): a step takes a third of the time.",
    FOLDER / "fmnist_lenet.toml",
    25_500.0,
    300.0,
    500.0,
    0.1,
    ('model.pool="stride"',),
)
READINGS = (BATCH, PASS)
FIFTH = 0.2  # the budget of the variants

HOURS = {  # CPU-hours, tuning included, on two cores that are busy with other work
    "seed0-table4-batch": {Scale.small: 0.3, Scale.paper: 2.3},
    "seed0-table4-pass": {Scale.small: 0.2, Scale.paper: 8.0},
    "seed0-fig8": {Scale.small: 0.05, Scale.paper: 0.7},
    "seed0-fig7": {Scale.small: 0.05, Scale.paper: 0.6},
    "seed0-fig6": {Scale.small: 0.05, Scale.paper: 0.6},
    "seed0-requests": {Scale.small: 0.02, Scale.paper: 0.4},
}
NOT_GIVEN = (
    "The papers give the learning rates, the trigger, tau and the number of devices. Ours are the"
    " batch size (32), five epochs, Dirichlet 0.5, the links and the start values of the controls."
    " Their decay of the learning rate is left out, since they do not give it. A beta below"
    f" {LEAST_BETA:g} at mid-run means that merging was negligible."
)

# ------------------------------------------------------------------ methods
# Eight settings each, and up to two more beyond the edges. With iota = .03 and .3, and mu_alpha = 3
# and 10, the weight ends at .1, .25, .5 and .75; with mu_beta = 10 and 100 a merge weighs about .15
# and .6 at version 2,000.
LEARNED = {"mu_alpha": (3.0, 10.0), "iota0": (0.03, 0.3), "mu_beta": (10.0, 100.0)}
ALPHAS = (0.15, 0.3, 0.6, 0.9)
FEDASMU = MethodPlan("fedasmu", LEARNED)
FEDSSMU = MethodPlan("fedssmu", LEARNED)
DA = MethodPlan("fedasmu-da", {"alpha": ALPHAS, "mu_beta": (10.0, 100.0)})
FA = MethodPlan("fedasmu-fa", {"mu_alpha": (1.0, 3.0, 10.0, 30.0), "iota0": (0.03, 0.3)})
FEDASYNC = MethodPlan("fedasync", {"alpha": ALPHAS, "a": (0.1, 0.5)})
FEDBUFF = MethodPlan(
    "fedbuff",
    {"server_learning_rate": (0.5, 1.0, 2.0, 4.0), "staleness_exponent": (0.0, 0.5)},
)
ZERO = MethodPlan("fedasmu-0", tuned_as="fedasync")  # the same polynomial
# It has no option of its own at the paper's learning rate and ten devices a round.
FEDAVG = MethodPlan("fedavg", tuned_as="fedssmu")
OTHERS = (MethodPlan("fedasmu"), MethodPlan("fedasync"), MethodPlan("fedssmu"), FEDAVG)


# ------------------------------------------------------------------ judges
def falls(results: Results, method: str, before: str, after: str, part: str = MAIN) -> Finding:
    """Judge "the number ``after`` is smaller than ``before``" of the same runs, by seed."""
    first, then = (
        {
            seed: value
            for seed, value in results.values(method, column, part).items()
            if value is not None
        }
        for column in (before, after)
    )
    found = rules.paired_of(then, first, -1)
    return Finding(
        f"{_mean(first):.3g} -> {_mean(then):.3g}",
        found.verdict(),
        f"{rules.label(before)} minus {rules.label(after)} of {method}: {found}.",
    )


def merging_counts(results: Results, method: str, part: str = MAIN) -> Finding:
    """Judge "a merge is not negligible": the median beta at mid-run is at least LEAST_BETA."""
    return rules.at_least(results, (part, method), "beta_mid", LEAST_BETA)


def weight_follows_staleness(results: Results, method: str, part: str = MAIN) -> Finding:
    """Judge "the weight of an update depends on its staleness", by the share of xi at mid-run."""
    return rules.at_least(results, (part, method), "staleness_share_mid", LEAST_SHARE)


def one_more_model(results: Results, method: str, part: str = MAIN) -> Finding:
    """Judge "fresh models at most double what is sent down": they are at most half of it."""
    shares = [
        extra / down
        for row in results.runs(method, part)
        if (down := row.numbers["down_MB"]) and (extra := row.numbers["extra_down_MB"]) is not None
    ]
    if not shares:
        raise NoResults(f"{results.entry.name}: no run of {method} says what it sent down")
    return rules.fact(
        max(shares) <= HALF,
        f"{100 * sum(shares) / len(shares):.0f} % of the downlink",
        f"Fresh models are {100 * min(shares):.0f} to {100 * max(shares):.0f} % of what {method}"
        " sends down.",
    )


def grows(results: Results, method: str, than: str, column: str, parts: tuple[str, ...]) -> Finding:
    """Judge "the advantage of ``method`` grows from part to part": paired differences by seed."""
    gains = {
        part: rules.paired(results, (part, method), (part, than), column).differences
        for part in parts
    }
    findings = {}
    for one, following in pairwise(parts):
        found = rules.paired_of(gains[following], gains[one])
        findings[f"{one} to {following}"] = Finding(
            str(found),
            found.verdict(),
            f"{rules.label(column)}: {method} against {than}, {_mean(gains[one]):.3g} in {one} and"
            f" {_mean(gains[following]):.3g} in {following}; change {found}.",
        )
    return rules.every(findings)


def _mean(values: dict[int, float]) -> float:
    return sum(values.values()) / len(values)
