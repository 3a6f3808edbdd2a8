"""The ``warnings`` of summary.json: one sentence about each problem of a run.

To add a warning, write a function of the summary's other values and list it in ``WARNINGS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp
from typing import Any

Facts = Mapping[str, Any]
SHOWN_EDGES = 5
FAR_ABOVE = 2.0  # multiple of the first model's test loss
USELESS, MANY_USELESS = "useless message", 100  # its kind in the verdict's ``wire``
MARGIN = 0.05  # of accuracy above guessing


def warnings(facts: Facts) -> list[str]:
    """Return the warnings about ``facts``, the values of summary.json.

    After a crash, ``facts`` are the values from the other files.
    """
    return [sentence for warn in WARNINGS if (sentence := warn(facts)) is not None]


def no_version(facts: Facts) -> str | None:
    """Warn if a run ended by itself without a new model."""
    if facts["versions"] or facts.get("finished") in (None, "interrupted", "launcher gone"):
        return None
    return "no new model was made: the last model is the initial model"


def discarded(facts: Facts) -> str | None:
    """Warn if more than half of the updates were discarded."""
    by_reason: Mapping[str, int] = facts["updates_discarded"]
    count = sum(by_reason.values())
    total = facts["updates_received"]
    if 2 * count <= total:
        return None
    share = f"all {total}" if count == total else f"{count} of {total}"
    return f"{share} updates were discarded: {most_frequent(by_reason)}"


def rows_deleted(facts: Facts) -> str | None:
    """Warn if ``record.keep`` has deleted rows that tables and figures are made from."""
    deleted: Mapping[str, int] = facts.get("parts_deleted", {})
    if not deleted:
        return None
    names = ", ".join(f"{count} of {name}" for name, count in deleted.items())
    return f"old parts were deleted (record.keep): {names}; what is made from their rows is partial"


def training_failed(facts: Facts) -> str | None:
    """Warn about tasks whose training raised an exception."""
    by_edge: Mapping[str, int] = facts.get("training_failed", {})
    if not by_edge:
        return None
    count = sum(by_edge.values())
    return (
        f"training failed in {count} task{'s' if count > 1 else ''} of {_edges(list(by_edge))},"
        f" first: {facts['training_failed_first']}"
    )


def timed_out(facts: Facts) -> str | None:
    """Warn about tasks that were closed because their edge did not deliver in time."""
    by_edge: Mapping[str, int] = facts.get("tasks_timed_out", {})
    if not by_edge:
        return None
    count = sum(by_edge.values())
    return f"{count} task{'s' if count > 1 else ''} of {_edges(list(by_edge))} timed out"


def trained_one_by_one(facts: Facts) -> str | None:
    """Warn about groups of tasks whose merged steps failed: they are right, but cost twice."""
    groups: Mapping[str, Mapping[str, int]] = facts.get("tasks_at_once", {})
    failed = groups.get("one_by_one", {})
    if not failed:
        return None
    count = sum(failed.values())
    total = count + sum(groups["together"].values())
    return (
        f"{count} of {total} groups of tasks (training.tasks_at_once) were trained again one by"
        f" one: {most_frequent(failed)}"
    )


def edges_unused(facts: Facts) -> str | None:
    """Warn about edges that contributed nothing to any model, or in less than half of their tasks.

    An edge that had no task, or whose only task had not ended, is not among them. If no update at
    all was used, other warnings say so.
    """
    unused: Mapping[str, Mapping[str, Any]] = facts.get("edges_unused", {})
    if not facts.get("updates_applied", True):
        return None
    groups: dict[tuple[str, str], list[str]] = {}
    for edge, counts in unused.items():
        nothing = counts["unused"] == counts["tasks"]
        kind = "contributed nothing" if nothing else "contributed little"
        groups.setdefault((kind, counts["reason"]), []).append(edge)
    parts = []
    for (kind, reason), edges in sorted(groups.items()):
        tasks = sum(unused[edge]["tasks"] for edge in edges)
        count = sum(unused[edge]["unused"] for edge in edges)
        parts.append(
            f"{_edges(edges)} {kind}: {count} of {tasks} task{'s' if tasks > 1 else ''} had no use,"
            f" mostly because of: {reason}"
        )
    return "; ".join(parts) or None


def not_finite(facts: Facts) -> str | None:
    """Warn about scores that were NaN or infinite in several evaluations, one after the other.

    A model that is not finite itself is reported by ``diverged``.
    """
    in_a_row: Mapping[str, int] = facts.get("scores_not_finite", {})
    if not in_a_row or facts.get("diverged_at_version") is not None:
        return None
    counts = ", ".join(f"{name} in {count}" for name, count in in_a_row.items())
    return f"scores are not finite (NaN or infinite) in evaluations in a row: {counts}"


def diverged(facts: Facts) -> str | None:
    """Warn if a model or loss is not finite, or if the loss rose and the result is guessing.

    A loss that is not finite does not say that the training diverged if the model is finite.
    In the last case the test loss rose above FAR_ABOVE times the first model's, is above the
    first model's at the end, and the last accuracy is at most MARGIN above guessing. The first
    model's loss is about ln(classes), and guessing has the accuracy 1 / classes.
    """
    version, accuracy = facts.get("diverged_at_version"), facts.get("final_accuracy")
    if version is not None:
        return (
            f"diverged: version {version} is not finite (NaN or infinite), so its accuracy is"
            " meaningless"
        )
    if "final_loss" not in facts or accuracy is None or not facts["versions"]:
        return None
    first, last = facts["initial_loss"], facts["final_loss"]
    if last is None:
        if first is None:
            return (
                "the test loss of the first model is not finite already: expected another cause"
                " than the training, such as the model, the loss or the test data"
            )
        return (
            "the last model's test loss is not finite, although its weights are: an overflow in the"
            " model or the loss"
        )
    if first is None or last <= first or accuracy > exp(-first) + MARGIN:
        return None
    highest = facts["highest_loss"]
    if highest is not None and highest <= FAR_ABOVE * first:
        return None
    rose = "infinity" if highest is None else f"{highest:.3g}"
    return (
        f"diverged: the test loss rose from {first:.3g} to {rose}, and the last model, with"
        f" {last:.3g}, is no better than guessing"
    )


def jobs_failed(facts: Facts) -> str | None:
    failed = ", ".join(
        f"{reason}: {count}" for reason, count in facts.get("jobs_failed", {}).items()
    )
    return f"failed server jobs: {failed}" if failed else None


def evaluations_skipped(facts: Facts) -> str | None:
    """Warn about models without a score."""
    skipped: Mapping[str, int] = facts.get("evaluations_skipped", {})
    if not skipped:
        return None
    count = sum(skipped.values())
    return (
        f"{count} evaluation{'s were' if count > 1 else ' was'} skipped: {most_frequent(skipped)}"
    )


def edges_missing(facts: Facts) -> str | None:
    missing = facts.get("edges_missing")
    return f"started without {_edges(missing)}" if missing else None


def edges_lost(facts: Facts) -> str | None:
    lost = facts.get("edges_lost")
    return f"lost and not rejoined at the end: {_edges(lost)}" if lost else None


def numbers_capped(facts: Facts) -> str | None:
    capped = facts.get("numbers_capped")
    if not capped:
        return None
    return (
        f"{_edges(list(capped))} reported more samples than possible: {sum(capped.values())}"
        " numbers were capped"
    )


def dissemination(facts: Facts) -> str | None:
    """Warn about a strategy or rule that breaks a convention of asking for fresher models."""
    found: Sequence[str] = facts.get("dissemination", {}).get("contradictions", ())
    return f"fresher models: {'; '.join(found)}" if found else None


def quarantined(facts: Facts) -> str | None:
    """Warn about edges that were excluded for what they sent."""
    edges: Mapping[str, str] = facts.get("fidelity", {}).get("quarantined", {})
    if not edges:
        return None
    return f"excluded for what it sent: {_edges(list(edges))}: {next(iter(edges.values()))}"


def useless(facts: Facts) -> str | None:
    """Warn about edges with more useless messages than one second allows."""
    wire: Mapping[str, int] = facts.get("fidelity", {}).get("wire", {})
    counts = {
        kind.removeprefix(USELESS).strip("( )"): count
        for kind, count in wire.items()
        if kind.startswith(USELESS) and count >= MANY_USELESS
    }
    if not counts:
        return None
    return f"{_edges(list(counts))} sent {sum(counts.values())} messages that changed nothing"


WARNINGS: tuple[Callable[[Facts], str | None], ...] = (
    no_version,
    discarded,
    training_failed,
    timed_out,
    edges_unused,
    trained_one_by_one,
    diverged,
    not_finite,
    jobs_failed,
    dissemination,
    evaluations_skipped,
    edges_missing,
    edges_lost,
    numbers_capped,
    quarantined,
    useless,
    rows_deleted,
)


def most_frequent(by_reason: Mapping[str, int]) -> str:
    """Return the most frequent reason, with its count if there are others.

    For example "wrong length (20 times; 1 other reason)".
    """
    reason, count = max(by_reason.items(), key=lambda item: item[1])
    others = len(by_reason) - 1
    if not others:
        return reason
    return f"{reason} ({count} times; {others} other reason{'s' if others > 1 else ''})"


def _edges(names: Sequence[str]) -> str:
    return (
        f"{len(names)} edge{'s' if len(names) > 1 else ''}"
        f" ({', '.join(names[:SHOWN_EDGES])}{' ...' if len(names) > SHOWN_EDGES else ''})"
    )
