"""Tune the values that the papers do not give: three values per method, on a separate seed.

FedASMU and the methods it is compared with get the same effort. The best value has the highest
accuracy over the last 500 s. Finished runs are not repeated.

    python scripts/studies/tune_fedasmu.py --workers 2
"""

from __future__ import annotations

from trial_results import mean, spread
from trials import CONFIGS, Study, Trial, arguments, end, entries, run, say, study, tell

from edgefl.reports.dissemination import table as dissemination_table

MAIN = CONFIGS / "fmnist_lenet.toml"
SEED = 11  # used by no other study
POINTS: dict[
    str, tuple[str, tuple[float | int, ...]]
] = {  # method -> the tuned option and its values
    "fedasmu": ("mu_beta", (3.0, 10.0, 30.0)),
    "fedssmu": ("mu_beta", (3.0, 10.0, 30.0)),
    "fedasync": ("alpha", (0.3, 0.6, 0.9)),  # FedASMU-0 and FedASMU-DA take the best of these
    "fedbuff": ("server_learning_rate", (0.5, 1.0, 2.0)),
    "fedprox": ("mu", (0.001, 0.01, 0.1)),
}
COLUMNS = (
    "method",
    "point",
    "target_s",
    "late_accuracy",
    "accuracy_dev",
    "final_accuracy",
    "beta_median",
    "best",
)


def main() -> None:
    parser = arguments(__doc__, "tune-fedasmu", (SEED,))
    parser.add_argument(
        "--methods",
        default=",".join(POINTS),
        metavar="A,B",
        help=f"some of {', '.join(POINTS)} (default: all)",
    )
    options = parser.parse_args()
    unknown = [name for name in options.methods.split(",") if name not in POINTS]
    if unknown:
        parser.error(f"--methods: unknown {unknown[0]!r} (there are {', '.join(POINTS)})")
    ours = study(options)
    trials = [trial(method) for method in options.methods.split(",")]
    whole = ours.do(trials)
    tell(
        f"Tuning (seeds {', '.join(map(str, options.seeds))})",
        COLUMNS,
        [row for each in trials for row in rows(ours, each)],
        ours.folder / "tuning.csv",
    )
    say(
        "put the best values into configs/fedasmu/fmnist_lenet.toml (FedAsync's alpha also for"
        " fedasmu-0 and fedasmu-da, FedASMU's mu_beta also for fedasmu-da)"
    )
    end(ours, whole)


def trial(method: str) -> Trial:
    """Return a trial of a method with each of its values; the rest is as in the main config."""
    key, values = POINTS[method]
    (entry,) = entries(MAIN, method)
    return Trial(
        method, MAIN, [{**entry, key: value, "label": label(key, value)} for value in values]
    )


def label(key: str, value: float | int) -> str:
    return f"{key}-{value:g}"


def rows(ours: Study, each: Trial) -> list[tuple[object, ...]]:
    """Return a row for each value; "*" marks the best."""
    key, values = POINTS[each.name]
    found = {value: ours.results(each, label(key, value)) for value in values}
    accuracies = {
        value: accuracy
        for value, of in found.items()
        if (accuracy := mean(of, "late_accuracy")) is not None
    }
    best = max(accuracies, key=lambda value: accuracies[value], default=None)
    return [
        (
            each.name,
            f"{key} = {value:g}",
            mean(of, "target_s"),
            *spread(of, "late_accuracy"),
            mean(of, "final_accuracy"),
            beta(ours, each, label(key, value)),
            "*" if value == best else "",
        )
        for value, of in found.items()
    ]


def beta(ours: Study, each: Trial, name: str) -> float | None:
    return dissemination_table.mean(dissemination_table.load(ours.runs(each, name)), "beta_median")


if __name__ == "__main__":
    run(main)
