"""The cost of FedASMU's extra downlink traffic when links are 50 times slower.

FedASMU waits for its fresh model or continues training. It is compared with FedASMU-0, FedAsync and
FedBuff, which do not ask for models. Finished runs are not repeated.

    python scripts/studies/scarce_links.py --workers 2
"""

from __future__ import annotations

from trial_results import mean, spread
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
from edgefl.reports import gallery
from edgefl.reports.dissemination import table as dissemination_table

MAIN = CONFIGS / "fmnist_links50.toml"
UP_MBIT_S, DOWN_MBIT_S = 20.0, 100.0  # of the links with factor 1
LABELS = ("fedasmu", "fedasmu-train-on", "fedasmu-0", "fedasync", "fedbuff")
COLUMNS = (
    "setting",
    "method",
    "target_s",
    "target_dev_s",
    "late_accuracy",
    "accuracy_dev",
    "updates",
    "down_MB",
    "merges",
    "waiting_mean_s",
    "use_down",
    "beta_median",
)


def main() -> None:
    parser = arguments(__doc__, "scarce-links", (1,))
    parser.add_argument(
        "--slower",
        type=numbers,
        default=(1.0, 50.0),
        metavar="1,50",
        help="factors by which links are slower (default: 1,50)",
    )
    options = parser.parse_args()
    ours = study(options)
    trials = [trial(times) for times in options.slower]
    whole = ours.do(trials)
    tell(
        "Scarce links",
        COLUMNS,
        [row for each in trials for label in LABELS if (row := result(ours, each, label))],
        ours.folder / "scarce_links.csv",
    )
    for each in trials:
        done = [ours.folder / each.name / label for label in LABELS if ours.results(each, label)]
        if done:
            figure = gallery.write("accuracy", done, ours.folder / "figures" / each.name)[0]
            say(f"figure: {figure}")
    end(ours, whole)


def trial(times: float) -> Trial:
    if times <= 0:
        raise UserError(f"--slower: expected numbers above 0, found {times:g}")
    links = {"up_mbit_s": UP_MBIT_S / times, "down_mbit_s": DOWN_MBIT_S / times}
    return Trial(f"links{times:g}", MAIN, entries(MAIN, *LABELS), {"links": links})


def result(ours: Study, each: Trial, label: str) -> tuple[object, ...] | None:
    """Return a method's row: means over the seeds."""
    results = ours.results(each, label)
    if not results:
        return None
    costs = dissemination_table.load(ours.runs(each, label))
    extra = [
        dissemination_table.mean(costs, key)
        for key in ("merges", "waiting_mean_s", "use_down", "beta_median")
    ]
    common = (
        *spread(results, "target_s"),
        *spread(results, "late_accuracy"),
        mean(results, "updates"),
        mean(results, "down_MB"),
    )
    return each.name, label, *common, *extra


if __name__ == "__main__":
    run(main)
