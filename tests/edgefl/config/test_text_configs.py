"""configs/text has the paper's settings of FedEcho's section 5.2 and appendix A.1.2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from paths import CONFIGS

from edgefl.config.experiment import Experiment
from edgefl.hosts.setup.plan import training_plan
from edgefl.loading.file import load

FOLDER = CONFIGS / "text"
OF_THE_PAPER = ("mrpc_bert", "math_qwen")


def options(given: Experiment) -> dict[str, dict[str, Any]]:
    return {entry.name: entry.options() for entry in given.strategies}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_each_is_valid_and_trains_with_adamw_in_batches_of_eight(path: Path) -> None:
    plan = training_plan(load(path))
    assert (plan.optimizer, plan.batch_size, plan.epochs) == ("adamw", 8, 1)


@pytest.mark.parametrize("name", OF_THE_PAPER)
def test_what_both_have_in_common(name: str) -> None:
    """10 clients, 5 at a time, M = 3, Dirichlet 0.6, one epoch, |U| = 100, AdamW at 3e-5; FedAC and
    FADAS 3e-6 / 0.1; nu = 5, alpha from 0.2 to 0.8; large delay.
    """
    given = load(FOLDER / f"{name}.toml")
    assert len(given.edges.ids()) == 10 and given.partition.options()["alpha"] == 0.6
    assert given.training.learning_rate == 3e-5 and given.model.options().get("train") is None
    assert given.unlabelled is not None and given.unlabelled.size == 100
    assert given.devices.spread == "classes" and given.devices.long == "large"
    found = options(given)
    assert all((each["concurrency"], each["buffer_size"]) == (5, 3) for each in found.values())
    for slow in ("fedac", "fadas"):
        rates = found[slow]["local_learning_rate"], found[slow]["server_learning_rate"]
        assert rates == (3e-6, 0.1)
    assert not {"clip_norm", "alpha_min", "alpha_max"} & {*found["fedecho"]}, "the defaults"


def test_where_they_differ() -> None:
    """MRPC: 200 rounds, eta_d 3e-7, the validation part as test, the unlabelled test part.
    MathInstruct: 5 rounds, eta_d 3e-6, scored on GSM8K, 100 queries that no device gets.
    """
    mrpc, math = (load(FOLDER / f"{name}.toml") for name in OF_THE_PAPER)
    assert (mrpc.stop.versions, math.stop.versions) == (200, 5)
    rates = [options(each)["fedecho"]["distil_learning_rate"] for each in (mrpc, math)]
    assert rates == [3e-7, 3e-6]
    assert mrpc.unlabelled is not None and mrpc.unlabelled.data == "mrpc"
    assert math.unlabelled is not None and math.unlabelled.data == "held_out"
    assert mrpc.data.options()["test"] == "validation" and math.data.options()["test"] == "gsm8k"
    assert (mrpc.evaluation.metric, math.evaluation.metric) == ("accuracy", "exact_match")
