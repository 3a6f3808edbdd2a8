"""Before a run: a model, a loss or a strategy that cannot work is one line, and leaves no trace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from builders import experiment

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.trial import try_out
from edgefl.config.file import strategy_warnings
from edgefl.errors import UserError

MODELS = """
import math, random, sys
import numpy as np
import torch
from torch import nn
from edgefl.api import Section

TRIED = []

class Options(Section):
    kind: str

class Odd(nn.Module):
    def __init__(self, inner, answer):
        super().__init__()
        self.inner, self.answer = inner, answer
    def forward(self, x):
        TRIED.append(1), random.random(), np.random.rand(), torch.rand(1)
        return self.answer(self, self.inner(x.flatten(1)))

def leaves(module, out):
    sys.exit("a GPU is needed")

def raises(module, out):
    raise KeyError("size")

def counts(module, out):
    module.generator.random()
    return out

def build(options, shape, classes):
    linear = lambda out: nn.Linear(math.prod(shape), out)
    made = {
        "good": lambda: Odd(linear(classes), lambda module, out: out),
        "more": lambda: Odd(linear(2 * classes), lambda module, out: out),
        "tuple": lambda: Odd(linear(classes), lambda module, out: (out, out)),
        "one": lambda: Odd(linear(1), lambda module, out: out),
        "fewer": lambda: Odd(linear(classes - 3), lambda module, out: out),
        "flat": lambda: Odd(linear(classes), lambda module, out: out[:, 0]),
        "empty": lambda: nn.Flatten(),
        "lazy": lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(classes)),
        "raises": lambda: Odd(linear(classes), raises),
        "leaves": lambda: Odd(linear(classes), leaves),
        "detached": lambda: Odd(linear(classes), lambda module, out: out.detach()),
        "nan": lambda: Odd(linear(classes), lambda module, out: out),
        "generator": lambda: Odd(linear(classes), counts),
    }[options.kind]()
    if options.kind == "nan":
        made.register_buffer("best", torch.tensor(float("nan")))
    if options.kind == "generator":
        made.generator = np.random.default_rng(1)
    return made
"""
STRATEGIES = """
from edgefl.api import LocalRule, Rounds

MADE = []

class Good(Rounds):
    def aggregate(self, updates):
        MADE.append(1)
        return updates[0].weights.copy()

class Lacks(Rounds):
    def agregate(self, updates):
        return updates[0].weights

class AddsUp(Rounds):
    def aggregate(self, updates):
        total = updates[0].weights
        total += updates[1].weights
        return total

class Rule(LocalRule):
    remember = ("momentum",)
    def begn(self, run): pass

class Misnamed(Good):
    rule = Rule
    def on_update_arived(self, event, now): return []
    def joinned(self, event, now): return []
    def arrive(self): return self.closed_by()
    def closed_by(self): return []
    def plan(self): return {}

class Leaves(Good):
    def __init__(self, *args):
        raise SystemExit(3)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "odd.py").write_text(MODELS)
    (tmp_path / "mean.py").write_text(STRATEGIES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def own_module(file: Path) -> Any:
    return next(m for m in [*sys.modules.values()] if getattr(m, "__file__", "") == str(file))


def tried(folder: Path, **sections: Any) -> None:
    try_out(learning(experiment(**sections), folder))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("tuple", r"returns a tuple of 2 on a batch of 2 samples, expected .*shape \(2, 10\)"),
        ("fewer", r"returns a tensor of shape \(2, 7\) .*expected a tensor of shape \(2, 10\)"),
        ("empty", "no parameter that is trained"),
        ("leaves", r"fails on .*SystemExit: a GPU is needed \(odd.py, line 22\)$"),
        ("detached", "the gradient of the loss fails: RuntimeError"),
        ("nan", "the buffer 'best' is not finite after a step"),
        ("generator", "keeps state in 'generator'"),
    ],
)
def test_a_model_that_cannot_work_is_one_line(folder: Path, kind: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        tried(folder, model={"name": "odd.py:build", "kind": kind})


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["good", "more"])
def test_a_good_model_leaves_no_trace(folder: Path, kind: str) -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].tolist()
    learned = learning(experiment(model={"name": "odd.py:build", "kind": kind}), folder)
    weights = learned.initial_weights()
    try_out(learned)
    assert own_module(folder / "odd.py").TRIED == [], "only a fork has called it"
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.random.get_state()[1].tolist() == numpy_state
    assert learned.initial_weights().tobytes() == weights.tobytes()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("AddsUp", r"AddsUp.aggregate changes a vector .*weights.copy\(\) \(mean.py, line 18\)$"),
        ("Leaves", r"'mean.py:Leaves' failed: SystemExit: 3 \(mean.py, line 35\)$"),
    ],
)
def test_a_strategy_that_cannot_work_is_one_line(folder: Path, name: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        tried(folder, strategies=[{"strategy": f"mean.py:{name}", "clients_per_round": 2}])


def test_a_misnamed_method_is_a_warning_with_the_nearest_name(folder: Path) -> None:
    given = experiment(strategies=[{"strategy": "mean.py:Misnamed", "clients_per_round": 2}])
    assert [line.removeprefix("misnamed: ") for line in strategy_warnings(given, folder)] == [
        f"{what} has no effect: nothing calls or reads it (nearest: '{near}')"
        for what, near in (
            ("Misnamed.on_update_arived", "arrived"),
            ("Misnamed.joinned", "joined"),
            ("Misnamed.arrive", "arrived"),
            ("Rule.remember", "remembers"),
            ("Rule.begn", "begin"),
        )
    ], "closed_by is used, plan is near nothing"
