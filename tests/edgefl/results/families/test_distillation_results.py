"""Figures of distilling strategies, and accuracy on the data of each runtime class of devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from builders import small_run

from edgefl.clocks.setup.learning import LabelCounts
from edgefl.data.dataset import right_answers
from edgefl.results.families.by_label import by_runtime
from edgefl.results.families.distillation import series
from edgefl.results.read import read_csv

ENTRY: dict[str, Any] = {
    "strategy": "fedecho",
    "concurrency": 3,
    "buffer_size": 2,
    "distil_learning_rate": 0.01,
    "predict_s": 0.2,
    "distil_s": 1.5,
}
SECTIONS: dict[str, Any] = {
    "devices": {"spread": "classes", "long": "mild"},
    "stop": {"versions": 4},
    "unlabelled": {"size": 50},
    "strategies": [ENTRY],
    "evaluation": {"by_label": True},
    "edges": {"count": 12, "names": []},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    summary, directory = small_run(tmp_path_factory.mktemp("runs"), **SECTIONS)
    assert summary["unlabelled"] == {"data": "held_out", "size": 50, "in_domain": True}
    return directory


def test_right_answers_of_each_label() -> None:
    """Of three labels, the samples have 0, 0, 1 and the answers are 0, 1, 1; 2 has no sample."""
    metric = LabelCounts(right_answers, 3)
    outputs = torch.tensor([[9.0, 0, 0], [0, 9.0, 0], [0, 9.0, 0]])
    assert int(metric(outputs, torch.tensor([0, 0, 1]))) == 2
    assert metric.shares[:2] == [0.5, 1.0] and metric.shares[2] != metric.shares[2]


def test_accuracy_is_weighted_by_what_the_devices_hold(tmp_path: Path) -> None:
    """Short devices hold 30 of label 0 and 10 of label 1: (30 * 0.4 + 10 * 0.8) / 40 = 0.5.
    Label 2 is not in the test set and does not count.
    """
    (tmp_path / "edges.csv").write_text(
        "edge,runtime,label_0,label_1,label_2\na,short,10,10,0\nb,short,20,0,0\nc,long,0,5,95\n"
    )
    (tmp_path / "labels.csv").write_text(
        "version,emulated_s,label_0,label_1,label_2\n5,20.0,0.4,0.8,\n0,0.0,0.1,0.1,\n"
    )
    assert by_runtime(tmp_path) == {
        "long": [(0.0, pytest.approx(0.1)), (20.0, pytest.approx(0.8))],
        "short": [(0.0, pytest.approx(0.1)), (20.0, pytest.approx(0.5))],
    }


def test_devices_none_of_whose_labels_is_tested_have_no_accuracy(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("edge,runtime,label_0,label_1\na,short,5,0\nb,long,0,5\n")
    (tmp_path / "labels.csv").write_text("version,emulated_s,label_0,label_1\n0,0.0,0.4,\n")
    assert by_runtime(tmp_path) == {"short": [(0.0, 0.4)], "long": []}, "not 0"


def test_a_run_keeps_accuracies_by_label_and_who_holds_what(run: Path) -> None:
    labels, edges, metrics = (
        read_csv(run / name) for name in ("labels.csv", "edges.csv", "metrics.csv")
    )
    assert [row["version"] for row in labels] == [row["version"] for row in metrics] and list(
        labels[0]
    )[2:] == ["label_0", "label_1"]
    shares = [(float(row["label_0"]) + float(row["label_1"])) / 2 for row in labels]
    assert shares == pytest.approx([float(row["accuracy"]) for row in metrics], abs=1e-5), (
        "both labels have 20 of the 40 test samples"
    )
    assert (
        len(edges) == 12 and sum(int(row["label_0"]) + int(row["label_1"]) for row in edges) == 150
    ), "200 less 50 without labels"
    assert {row["runtime"] for row in edges} <= {"short", "medium", "long (mild)"}


def test_rounds_are_read_from_the_reports() -> None:
    report = {"do": "report", "values": {"alpha": 0.4, "teachers": 3.0}}
    events = [
        {"t": 2.0, "decisions": [report, {"do": "publish"}]},
        {"t": 3.0, "decisions": [{"do": "report", "values": {"alpha": 0.9}}]},
        {"t": 4.0, "fact": "x"},
    ]
    assert (
        series(events) | {"alpha": [(2.0, 0.4)], "teachers": [(2.0, 3.0)]} == series(events)
        and series(events)["entropy"] == []
    )
