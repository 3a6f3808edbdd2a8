"""The examples of a user's strategy, model and task, copied out of the checkout and run."""

from __future__ import annotations

import runpy
import shutil
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from builders import EXAMPLES, Server, vector
from safetensors.numpy import load_file
from state_relay import Relay, begun

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.setup.rundir import replay_run
from edgefl.clocks.virtual.run import run_virtual
from edgefl.commands.new import TEMPLATES
from edgefl.config.file import load
from edgefl.errors import UserError
from edgefl.record.journal import replay
from edgefl.strategies.base.catalog import own_modules
from edgefl.strategies.base.events_and_decisions import UpdateArrived
from edgefl.strategies.base.strategy import Strategy
from edgefl.streams import Streams
from edgefl.vectors import Layout, LayoutEntry

CONFIG = """
name = "own"
[edges]
count = 4
[partition]
name = "dirichlet"
alpha = 1.0
[stop]
versions = 3
[record]
payloads = true
"""
TASK = 'task = "my_task.py:build"\n'
MODEL = '[model]\nname = "my_model.py:build"\nfilters = 2\n'
STRATEGY = '[[strategies]]\nstrategy = "my_algo.py:MyAlgo"\nclients_per_round = 2\n'
PLAIN = '[[strategies]]\nstrategy = "fedavg"\nclients_per_round = 2\n'
ODD = """
import numpy as np
from torch import nn

from edgefl.api import Dataset, Rounds, Section, Task


def split(labels, edges, options, rng):
    return [[0, 1], [2], [], []]


def negative(labels, edges, options, rng):
    return [np.arange(-5, 100)] * edges


def floats(labels, edges, options, rng):
    return [np.arange(3.0)] * edges


def split_nothing():
    return None


def module():
    return Task(None, nn.Linear(4, 2))


def listed():
    x, y = np.zeros((4, 1, 2, 2), np.float32), np.arange(4) % 2
    return Task(Dataset(x, y, x, y, 2, columns={"user": [0, 1, 2, 3]}), Weird)


class Weird:
    class Options:
        pass


class Opt(Section):
    pass


class PlainOptions(Rounds):
    class Options:
        pass


class SectionOptions(Rounds):
    Options = Opt


class NoRule(Rounds):
    rule = Weird
"""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with copies of the examples; the working directory is another one."""
    folder, cwd = tmp_path / "mine", tmp_path / "cwd"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("__pycache__"))
    cwd.mkdir()
    monkeypatch.chdir(cwd)
    return folder


def go(folder: Path, text: str, index: int = 0) -> tuple[dict[str, Any], Path]:
    config = folder / "own.toml"
    config.write_text(text)
    experiment = load(config)
    directory = folder / "runs" / experiment.strategies[index].name
    return run_virtual(learning(experiment, config.parent), index, directory), directory


def test_an_own_strategy_and_task(elsewhere: Path) -> None:
    summary, directory = go(elsewhere, TASK + CONFIG + STRATEGY)
    assert (summary["strategy"], summary["label"], summary["versions"]) == (
        "my_algo.py:MyAlgo",
        "myalgo",
        3,
    )
    assert directory == elsewhere / "runs" / "myalgo" and summary["final_accuracy"] > 0.6
    assert replay_run(directory).version == 3, "config.toml says where the code lies"


def test_the_changed_formula_makes_another_model(elsewhere: Path) -> None:
    """Dirichlet shares differ in size, so the plain mean differs from the weighted one."""
    both = TASK + CONFIG + STRATEGY + PLAIN
    own, plain = (go(elsewhere, both, index)[1] for index in (0, 1))
    assert (own / "model.safetensors").read_bytes() != (plain / "model.safetensors").read_bytes()


def test_an_own_strategy_with_a_state_of_its_own(elsewhere: Path, tmp_path: Path) -> None:
    """my_state.py keeps a torch module: a new instance per event gets it as arrays."""
    text = STRATEGY.replace("my_algo.py:MyAlgo", "my_state.py:Chooser")
    _, directory = go(elsewhere, TASK + CONFIG + text)
    own = own_modules(type(begun(directory)))
    strategy = Relay(partial(begun, directory), tmp_path / "checkpoints", own)
    result = replay(directory / "journal", cast(Strategy, strategy))
    assert strategy.instances == result.events + 1 and result.version == 3
    kept = load_file(directory / "model.safetensors")["weights"]
    assert result.weights.tobytes() == kept.tobytes()
    learned = [each.detach().abs().sum() for each in strategy.strategy.model.parameters()]
    assert all(each > 0 for each in learned)


@pytest.mark.parametrize("name", ["Scaffold", "CLASS"])
def test_a_server_rate_above_1_leaves_a_running_variance_positive(
    tmp_path: Path, name: str
) -> None:
    """From weight 0 and variance 1 to 1 and 0.2, at rate 1.5: 1 - 1.5 x 0.8 would be -0.2."""
    template = TEMPLATES / "strategy.py.txt" if name == "CLASS" else EXAMPLES / "my_scaffold.py"
    shutil.copy(template, tmp_path / "own.py")
    kind = runpy.run_path(str(tmp_path / "own.py"))[name]
    entries = LayoutEntry("w", (1,), 0, "parameter", ""), LayoutEntry("v", (1,), 1, "buffer", "")
    options = kind.Options(clients_per_round=1, server_learning_rate=1.5)
    story = Server(kind(vector(0, 1), Layout(entries), options, Streams(1)))
    story.start("a")
    task, version, base = story.open.pop("a")
    vectors = {"weights": vector(1, 0.2), "change": vector(0)}
    story.give(UpdateArrived("a", task, version, base, vectors, {"samples": 1.0}))
    assert story.weights == pytest.approx([1.5, 0.2])


@pytest.mark.slow
def test_an_own_model_with_options(elsewhere: Path) -> None:
    summary, _ = go(elsewhere, CONFIG + MODEL + PLAIN)
    assert summary["versions"] == 3 and summary["final_accuracy"] > 0.3  # digits: 0.1 by guessing


@pytest.mark.parametrize(
    ("said", "instead", "line"),
    [
        (
            "filters = 2",
            "filter = 2",
            "options of 'my_model.py:build': model.filter: unknown key (nearest: 'filters')",
        ),
        (
            "filters = 2",
            "filters = 'two'",
            "options of 'my_model.py:build': model.filters: expected a whole number, found 'two'",
        ),
        (
            'name = "dirichlet"\nalpha = 1.0',
            'name = "odd.py:split"\nkappa = 1',
            "options of 'odd.py:split': partition.kappa: unknown key (valid: name)",
        ),
        (
            'name = "dirichlet"\nalpha = 1.0',
            'name = "odd.py:split"',
            "partition 'odd.py:split' gave 2 shares with samples for 4 edges",
        ),
        (
            'name = "dirichlet"\nalpha = 1.0',
            'name = "odd.py:negative"',
            "partition 'odd.py:negative': edge e000: indices from -5 to 99, expected 0 to 1437",
        ),
        (
            'name = "dirichlet"\nalpha = 1.0',
            'name = "odd.py:floats"',
            "partition 'odd.py:floats': edge e000: expected an array (n,) of integers, found"
            " float64 of shape (3,)",
        ),
        (
            'name = "dirichlet"\nalpha = 1.0',
            'name = "dirichlet"\nalpha = 1.0\nmin_samples = 2.0',
            "own.toml: partition.min_samples: expected a whole number, found 2.0",
        ),
        (
            '"my_model.py:build"',
            '"odd.py:Weird"',
            "model 'odd.py:Weird': its Options are no subclass of pydantic.BaseModel, as"
            " edgefl.api.Section is",
        ),
        (
            'name = "own"',
            'name = "own"\ntask = "odd.py:split_nothing"',
            "task 'odd.py:split_nothing' returned NoneType, expected edgefl.api.Task",
        ),
        (
            'name = "own"',
            'name = "own"\ntask = "odd.py:listed"',
            "task 'odd.py:listed': the column 'user' is list, expected a numpy array",
        ),
        (
            'name = "own"',
            'name = "own"\ntask = "odd.py:module"',
            "'odd.py:module' failed: TypeError: model: expected a function that returns a module,"
            " found the module Linear",
        ),
        (
            '"fedavg"',
            '"odd.py:PlainOptions"',
            "strategy 'odd.py:PlainOptions': Options: expected a subclass of"
            " edgefl.api.StrategyOptions, found the class Options",
        ),
        (
            '"fedavg"',
            '"odd.py:SectionOptions"',
            "strategy 'odd.py:SectionOptions': Options: expected a subclass of"
            " edgefl.api.StrategyOptions, found the class Opt",
        ),
        (
            '"fedavg"',
            '"odd.py:NoRule"',
            "strategy 'odd.py:NoRule': rule: expected a subclass of edgefl.api.LocalRule, found"
            " the class Weird",
        ),
    ],
)
def test_what_is_wrong_with_own_code_is_one_line(
    elsewhere: Path, said: str, instead: str, line: str
) -> None:
    (elsewhere / "odd.py").write_text(ODD)
    text = CONFIG + MODEL + PLAIN
    assert said in text
    with pytest.raises(UserError) as caught:
        go(elsewhere, text.replace(said, instead))
    assert line in str(caught.value) and "\n" not in str(caught.value)
    assert not (elsewhere / "runs").exists(), "nothing half-written"
