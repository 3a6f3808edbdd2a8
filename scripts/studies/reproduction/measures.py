"""Numbers of a finished run beyond those of its summary: more columns of the result files.

A measure takes the run's directory and returns a number, or None if the run has none. ``MEASURES``
has them by name. "Mid-run" is from 40 to 60 % of the emulated time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import correlation, fmean, median
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

from edgefl.clocks.setup.learning import learning
from edgefl.config.file import base_of, load
from edgefl.models.workspace import Workspace, wrap
from edgefl.plugins.sweep.choice import facts_of
from edgefl.record.files import CONFIG, EVENTS, LABELS, METRICS
from edgefl.results.families import by_label as labels
from edgefl.results.families import slots
from edgefl.results.families.aggregation import OF_STEP, steps
from edgefl.results.families.dissemination import reported, updates
from edgefl.results.read import number, read_csv, read_events

Measure = Callable[[Path], float | None]
MB = 1e6
MID = 0.4, 0.6  # shares of the emulated time
CONTROLS = ("lambda", "sigma", "iota")
POWER_STEPS, PATIENCE = 30, 1e-3  # most steps of the power iteration; relative change that ends it
CURVED_SAMPLES = 1000  # of all devices' data, for the curvature
BATCH = 250
FEW = 5  # predominant gradients (WKAFL, figure 2a)
LEAST_STEPS = 10  # of a point of figure 2b
LAST = 10  # evaluations
LONG = "long"  # the slowest runtime class; with mild delay "long (mild)"


def of_section(*keys: str) -> Measure:
    """Return a measure: a number of the summary, by the keys of its sections."""

    def measure(run: Path) -> float | None:
        found: Any = facts_of(run)
        for key in keys:
            found = (found or {}).get(key)
        return number(found)

    return measure


def _median(values: Iterable[float]) -> float | None:
    given = list(values)
    return float(median(given)) if given else None


# ------------------------------------------------------------------ timely dissemination
def beta_mid(run: Path) -> float | None:
    """Return the median weight of a merged model at mid-run; None if no device merged."""
    return _median(event["numbers"]["beta"] for event in mid(run) if event["numbers"].get("merged"))


def alpha_mid(run: Path) -> float | None:
    """Return the median weight of an arriving model at mid-run; None if it is not reported."""
    return _median(said["alpha"] for said in map(reported, mid(run)) if "alpha" in said)


def staleness_share_mid(run: Path) -> float | None:
    """Return the median share of xi (eq. 2) at mid-run that depends on staleness.

    The rest is iota. None for a fixed weight.
    """
    found = [said for said in map(reported, mid(run)) if said.get("xi")]
    return _median(max(0.0, 1 - said["iota"] / said["xi"]) for said in found)


def controls_moved(run: Path) -> float | None:
    """Return the largest change of lambda, sigma or iota since the first update; None: fixed."""
    told = [said for event in arrived(run) if "xi" in (said := reported(event))]
    if not told:
        return None
    return max(abs(said[name] - told[0][name]) for said in told for name in CONTROLS)


def request_share(run: Path) -> float | None:
    """Return the mean share of the task that was done at a merge; None if no device merged."""
    shares = [
        event["numbers"]["merge_step"] / event["numbers"]["steps"]
        for event in arrived(run)
        if event["numbers"].get("merged") and event["numbers"].get("steps")
    ]
    return sum(shares) / len(shares) if shares else None


def staleness_median(run: Path) -> float | None:
    """Return the median gap of the applied updates, in versions."""
    counts: Mapping[str, int] = facts_of(run)["staleness"]
    return _median(int(gap) for gap, count in counts.items() for _ in range(count))


def refresh_point_mean(run: Path) -> float | None:
    """Return the mean refresh point of the requests, in finished epochs."""
    points: Mapping[str, int] = (facts_of(run).get("dissemination") or {}).get("refresh_points", {})
    total = sum(points.values())
    return sum(int(at) * count for at, count in points.items()) / total if total else None


def newer_share(run: Path) -> float | None:
    """Return the share of the requests that found a newer model."""
    section = facts_of(run).get("dissemination") or {}
    return section["newer"] / section["requests"] if section.get("requests") else None


def down_MB(run: Path) -> float | None:
    """Return what was sent down, in MB."""
    return float(facts_of(run)["bytes_down"]) / MB


def extra_down_MB(run: Path) -> float | None:
    """Return the MB of fresh models and their notes in the downlink; 0 without requests."""
    section = facts_of(run).get("dissemination") or {}
    return float(section.get("extra_bytes_down", 0)) / MB


def mid(run: Path) -> list[Mapping[str, Any]]:
    """Return the updates that arrived at mid-run."""
    end_s = facts_of(run)["emulated_s"]
    low, high = (share * end_s for share in MID)
    return [event for event in arrived(run) if low <= event["t"] <= high]


@lru_cache(maxsize=2)  # the measures of one run are read one after another
def arrived(run: Path) -> Sequence[Mapping[str, Any]]:
    """Return the updates of a finished run that carry numbers."""
    return updates(read_events(run / EVENTS))


# ------------------------------------------------------------------ TDMA
def models(run: Path) -> float:
    """Return the number of global models by the run's last slot, w_0 included (table I)."""
    ends = [done[slots.OF_ROUND] for done in slots.rounds(read_events(run / EVENTS))]
    end_s = load(run / CONFIG).stop.emulated_s
    assert end_s is not None  # all runs over TDMA stop by time
    last = round(end_s / slots.slot_s(run))
    return 1.0 + sum(end <= last for end in ends)


def staleness(run: Path) -> float | None:
    """Return the largest staleness of the last round's updates, in rounds."""
    found = slots.rounds(read_events(run / EVENTS))
    return number(found[-1].get("staleness_most")) if found else None


def roughness(run: Path) -> float | None:
    """Return the mean |change| of the train loss between evaluations, in the run's second half.

    None if a loss is not finite.
    """
    losses = [number(row["train_loss"]) for row in read_csv(run / METRICS)]
    late = losses[len(losses) // 2 :]
    there = [loss for loss in late if loss is not None]
    if len(there) < max(len(late), 2):
        return None
    return float(np.abs(np.diff(there)).mean())


def mean_loss(run: Path) -> float | None:
    """Return the mean train loss over all evaluations: how fast it falls. None as above."""
    losses = [number(row["train_loss"]) for row in read_csv(run / METRICS)]
    there = [loss for loss in losses if loss is not None]
    return sum(there) / len(there) if there and len(there) == len(losses) else None


def curvature(run: Path) -> float | None:
    """Return the largest eigenvalue of the Hessian of the global loss, at the run's last model.

    None if the model is not finite.
    """
    learned = learning(load(run / CONFIG), base_of(run / CONFIG))
    weights = load_file(run / "model.safetensors")["weights"]
    if not np.isfinite(weights).all():
        return None
    inputs, targets = learned.union()
    # evenly spread: the union is in the order of the data set, whose labels are mixed
    picked = torch.linspace(0, len(inputs) - 1, min(CURVED_SAMPLES, len(inputs))).long()
    return largest_eigenvalue(
        hessian_product(
            learned.workspace, weights, inputs[picked], targets[picked], learned.task.loss
        ),
        learned.workspace.layout.parameters,
    )


def hessian_product(
    workspace: Workspace,
    weights: np.ndarray,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return v -> H v for the Hessian H of the mean loss at ``weights``; v has shape (parameters,).

    The module is in evaluation mode, and the workspace does not change.
    """

    def product(vector: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(vector)
        with workspace.frozen(wrap(weights)) as model:
            tensors = [each for each in model.parameters() if each.requires_grad]
            for start in range(0, len(inputs), BATCH):
                part = slice(start, start + BATCH)
                share = len(targets[part]) / len(targets)
                value = share * loss(model(inputs[part]), targets[part])
                gradients = torch.autograd.grad(value, tensors, create_graph=True)
                along = torch.cat([each.flatten() for each in gradients]) @ vector
                found = torch.autograd.grad(along, tensors)
                total += torch.cat([each.flatten() for each in found])
        return total

    return product


def largest_eigenvalue(product: Callable[[torch.Tensor], torch.Tensor], size: int) -> float | None:
    """Return the eigenvalue of largest magnitude, by power iteration from a fixed vector.

    None if a product is not finite.
    """
    vector = torch.randn(size, generator=torch.Generator().manual_seed(0))
    vector /= vector.norm()
    value = math.inf
    for _ in range(POWER_STEPS):
        turned = product(vector)
        found, length = float(vector @ turned), float(turned.norm())
        if not math.isfinite(length):
            return None
        if length == 0.0 or abs(found - value) <= PATIENCE * abs(found):
            return found
        value, vector = found, turned / length
    return value


# ------------------------------------------------------------------ distillation
def long_accuracy(run: Path) -> float | None:
    """Return the mean of the last accuracies on the data of the slowest class of devices.

    None without such devices, or without ``evaluation.by_label``.
    """
    slow = [points for name, points in labels.by_runtime(run).items() if name.startswith(LONG)]
    return fmean(accuracy for _, accuracy in slow[0][-LAST:]) if slow and slow[0] else None


def checkpoints(run: Path) -> float | None:
    """Return the largest number of models from which devices were training at one time."""
    return max(_reported(run, "checkpoints"), default=None)


def alpha(run: Path) -> float | None:
    """Return the mean weight of the KL divergence over the rounds."""
    found = _reported(run, "alpha")
    return fmean(found) if found else None


def _reported(run: Path, key: str) -> list[float]:
    """Return the numbers ``key`` that the strategy has reported."""
    return [
        decision["values"][key]
        for event in read_events(run / EVENTS)
        for decision in event.get("decisions", ())
        if decision["do"] == "report" and key in decision["values"]
    ]


# ------------------------------------------------------------------ texts
def majority(run: Path) -> float | None:
    """Return the share of the larger of two labels in the test set, from the run's own files.

    The accuracy is p a1 + (1 - p) a0, where a0 and a1 are the accuracies of the labels and p is the
    share of label 1; p is read where a0 and a1 differ most. None without ``evaluation.by_label``,
    or if they never differ.
    """
    accuracies = {row["version"]: number(row["accuracy"]) for row in read_csv(run / METRICS)}
    found = []
    for row in read_csv(run / LABELS):
        a0, a1 = number(row["label_0"]), number(row["label_1"])
        accuracy = accuracies[row["version"]]
        if a0 is not None and a1 is not None and accuracy is not None and a0 != a1:
            found.append((abs(a1 - a0), (accuracy - a0) / (a1 - a0)))
    share = max(found)[1] if found else None
    return None if share is None else max(share, 1.0 - share)


def above_majority(run: Path) -> float | None:
    """Return the final accuracy minus the majority class's."""
    share, accuracy = majority(run), facts_of(run).get("final_accuracy")
    return None if share is None or accuracy is None else float(accuracy) - share


def f1(run: Path) -> float | None:
    """Return the F1 of the last evaluation; None if it was not measured."""
    rows = read_csv(run / METRICS)
    return number(rows[-1].get("f1")) if rows else None


def update_mb(run: Path) -> float | None:
    """Return the megabytes that went up per received update, with all that travels with it."""
    facts = facts_of(run)
    received = facts["updates_received"]
    return float(facts["bytes_up"]) / received / MB if received else None


# ------------------------------------------------------------------ K-asynchronous gradients
def share_of_few(run: Path) -> float | None:
    """Return the share of steps in which at most FEW gradients have a weight above .1."""
    counts = (facts_of(run).get("aggregation") or {}).get("predominant")
    if not counts:
        return None
    few = sum(of for number, of in counts.items() if int(number) <= FEW)
    return float(few / sum(counts.values()))


def linearity(run: Path) -> float | None:
    """Return the correlation of figure 2b's points: gradients used and their mean staleness."""
    return linearity_of([values for _, values in steps(read_events(run / EVENTS))])


def linearity_of(found: Sequence[Mapping[str, float]]) -> float | None:
    """Return the correlation over the numbers of used gradients that LEAST_STEPS steps have.

    None for fewer than three of them, or if staleness is the same for all.
    """
    by_count: dict[float, list[float]] = {}
    for step in found:
        by_count.setdefault(step["aggregated"], []).append(step[OF_STEP])
    points = [(count, fmean(gaps)) for count, gaps in by_count.items() if len(gaps) >= LEAST_STEPS]
    if len(points) < 3 or len({gap for _, gap in points}) == 1:
        return None
    return correlation(*map(list, zip(*points)))


MEASURES: dict[str, Measure] = {
    measure.__name__: measure
    for measure in (
        beta_mid,
        alpha_mid,
        staleness_share_mid,
        controls_moved,
        request_share,
        staleness_median,
        refresh_point_mean,
        newer_share,
        down_MB,
        extra_down_MB,
        models,
        staleness,
        roughness,
        mean_loss,
        curvature,
        long_accuracy,
        checkpoints,
        alpha,
        majority,
        above_majority,
        f1,
        update_mb,
        share_of_few,
        linearity,
    )
} | {
    # the mean gap of merged updates, from the model that their training started with, and from the
    # model that they merged
    "staleness_before": of_section("dissemination", "staleness_before", "mean"),
    "staleness_after": of_section("dissemination", "staleness_after", "mean"),
    # the mean emulated time from a request to its model
    "waiting_mean_s": of_section("dissemination", "waiting_mean_s"),
    # how the steps weighed the gradients
    "tau_ave": of_section("aggregation", "tau_ave"),
    "n_ave": of_section("aggregation", "n_ave"),
    "clipped_share": of_section("aggregation", "clipped_share"),
    "effective": of_section("aggregation", "effective_ave"),
    "largest_label": of_section("aggregation", "largest_label_ave"),
}
