"""Flower's partitioners over our data sets: the indices are those of flwr-datasets alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_apps import NEEDS_FLOWER

from edgefl.catalog import is_own
from edgefl.config.file import from_json, load, to_json
from edgefl.data.edge_data import edge_data
from edgefl.errors import UserError

EDGES = {"DistributionPartitioner": 10}  # the others: 5
CONFIG = """
edges.count = {edges}
stop.versions = 1
data.name = "digits"
[partition]
name = "flwr:{name}"
{arguments}
[[strategies]]
strategy = "fedavg"
"""
ARGUMENTS: dict[str, dict[str, Any]] = {
    "DirichletPartitioner": {"alpha": 0.5, "seed": 3, "self_balancing": True},
    "IidPartitioner": {},
    "InnerDirichletPartitioner": {"partition_sizes": [300, 300, 300, 300, 200], "alpha": 0.3},
    "PathologicalPartitioner": {"num_classes_per_partition": 2, "seed": 9},
    "SizePartitioner": {"partition_sizes": [100, 200, 300, 400, 437]},
    "DistributionPartitioner": {
        "distribution_array": [[1.0, 2.0, 3.0, 4.0]] * 10,
        "num_unique_labels_per_partition": 4,
        "preassigned_num_samples_per_label": 3,
    },
}


def written(folder: Path, name: str, arguments: dict[str, Any]) -> Path:
    lines = [
        f"{key} = {str(value).lower() if isinstance(value, bool) else value!r}".replace("'", '"')
        for key, value in arguments.items()
    ]
    path = folder / "c.toml"
    path.write_text(CONFIG.format(name=name, edges=EDGES.get(name, 5), arguments="\n".join(lines)))
    return path


@NEEDS_FLOWER
@pytest.mark.parametrize("name", list(ARGUMENTS))
def test_the_indices_are_those_of_flwr_datasets(tmp_path: Path, name: str) -> None:
    from datasets import Dataset
    from flwr_datasets import partitioner

    experiment = load(written(tmp_path, name, ARGUMENTS[name]))
    found = edge_data(experiment, tmp_path)
    alone: dict[str, Any] = dict(ARGUMENTS[name])
    if "distribution_array" in alone:
        alone["distribution_array"] = np.asarray(alone["distribution_array"])
    kind = getattr(partitioner, name)
    for key, value in (("num_partitions", EDGES.get(name, 5)), ("partition_by", "label")):
        if key in kind.__init__.__annotations__ or key in kind.__init__.__code__.co_varnames:
            alone.setdefault(key, value)
    theirs = kind(**alone)
    labels = found.dataset.train_y
    theirs.dataset = Dataset.from_dict({"label": labels, "row": np.arange(len(labels))})
    assert list(found.shares) == [f"e{number:03d}" for number in range(EDGES.get(name, 5))]
    for number, share in enumerate(found.shares.values()):
        assert share.tolist() == list(theirs.load_partition(number)["row"])


@NEEDS_FLOWER
@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("DirichletPartitioner", {"alph": 1.0}, "alph: .* has no such argument .nearest: 'alpha'"),
        ("DirichletPartitioner", {"num_partitions": 3}, "expected no such key, it is the number"),
        ("DirichletPartitioner", {}, "DirichletPartitioner': .*missing.*'alpha'"),
        ("DirichletPartitioner", {"alpha": -1.0}, "strictly greater than zero"),
        ("DirichletPartitioner", {"alpha": 1.0, "partition_by": "labels"}, "no column 'labels'"),
        ("NaturalIdPartitioner", {}, "made 10 partitions, expected one for each of the 5 edges"),
        ("DirichletPartition", {}, "no partitioner of samples .* .nearest: 'DirichletPartitioner'"),
        ("VerticalEvenPartitioner", {}, "no partitioner of samples 'VerticalEvenPartitioner'"),
    ],
)
def test_what_a_partitioner_refuses(
    tmp_path: Path, name: str, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said) as caught:
        edge_data(load(written(tmp_path, name, arguments)), tmp_path)
    assert "\n" not in str(caught.value)


def test_without_flwr_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "flwr_datasets", None)
    with pytest.raises(UserError, match=r"a partition of Flower needs .*\[flower\]'"):
        edge_data(load(written(tmp_path, "IidPartitioner", {})), tmp_path)


def test_edges_need_no_permission_for_a_partitioner(tmp_path: Path) -> None:
    here = load(written(tmp_path, "IidPartitioner", {}))
    assert from_json(to_json(here, here.strategies[0])).partition.name == "flwr:IidPartitioner"
    assert not is_own("flwr:IidPartitioner") and is_own("my.py:split") and not is_own("iid")
