"""The folder is the registry: every file of edgefl/strategies defines one algorithm, and there are
no other files.
"""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from builders import Server, make, vector
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from edgefl.strategies.base import catalog
from edgefl.strategies.base.events_and_decisions import EdgeJoined, EdgeLost, UpdateArrived
from edgefl.strategies.base.strategy import Strategy


@pytest.mark.parametrize("name", catalog.strategy_names())
def test_every_file_of_the_folder_is_a_strategy(name: str) -> None:
    found = catalog.load(name)
    assert issubclass(found, Strategy)
    assert found.__module__ == f"edgefl.strategies.{catalog.file_stem(name)}"


def test_modules_of_the_user_are_those_of_strategy_and_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = {
        "my_rules": "from edgefl.api import LocalRule\nclass Rule(LocalRule): pass\n",
        "my_pkg.base": "from edgefl.strategies.fedavg import FedAvg\nclass Base(FedAvg): pass\n",
        "my_pkg.algo": "from my_pkg.base import Base\nfrom my_rules import Rule\n"
        "from collections import UserDict\nclass Algo(Base, UserDict): rule = Rule\n",
    }
    for name, text in texts.items():
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(text, module.__dict__)
    assert catalog.own_modules(sys.modules["my_pkg.algo"].Algo) == ("my_pkg", "my_rules")
    assert all(not catalog.own_modules(catalog.load(name)) for name in catalog.strategy_names())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ace", {"local_steps": 0}),
        ("asofed", {"beta": 1.5}),
        ("asyncpart", {"staleness_exponent": 51.0}),
        ("ca2fl", {"server_learning_rate": 0.0}),
        ("fadas", {"beta1": 1.0}),
        ("fedac", {"correction": "never"}),
        ("fedasmu", {"tau": 0}),
        ("fedasmu", {"selector": "fixed"}),
        ("fedbuff", {"no_such_key": 1}),
        ("fedcompass", {"min_share": 1.5}),
        ("fedcompass", {"latest_time_factor": 0.5}),
        ("feddelay", {"server_learning_rate": 1.5}),
        ("feddyn", {"alpha": 0.0}),
        ("fedpsa", {"delta": 0.0}),
        ("fedpsa", {"fisher": "exact"}),
        ("fedsa", {"window": 0}),
        ("fedstaleweight", {"window": 0}),
        ("moon", {"temperature": 0.0}),
        ("port", {"staleness_bound": 0}),
        ("push-on-improvement", {"least_drop": 0.0}),
        ("push-on-improvement", {"loss": "accuracy"}),
        ("push-stalest", {"budget_byte_s": 0}),
        ("push-stalest", {"most_saved_models": 0.5}),
        ("push-stalest", {"merging": "average"}),
        ("push-tdma", {"mu_beta": 0.0}),
        ("syncdrop", {"drop_rate": 1.0}),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(name: str, options: dict[str, object]) -> None:
    key = "refresh_point" if name == "fedasmu" and "selector" in options else next(iter(options))
    with pytest.raises(ValueError, match=key):
        catalog.load(name).Options.model_validate(options)


# ------------------------------------------------------------------ the list of idle edges is upda
CHANGES = ("set", "delete", "update", "merge", "default", "last", "replace")
EDGES = [f"e{number}" for number in range(6)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["join", "lose", "run", "end", "clear", "look", *CHANGES]),
            st.sampled_from(EDGES),
        ),
        max_size=40,
    )
)
def test_idle_is_who_is_there_and_does_not_run(moves: list[tuple[str, str]]) -> None:
    strategy = make(Strategy)
    for move, edge in moves:
        match move:
            case "join":
                strategy.handle(EdgeJoined(edge, 1), 0)
            case "lose":
                strategy.handle(EdgeLost(edge), 0)
            case "run":
                strategy.mark_running([edge])
            case "end":
                strategy.running.pop(edge, None)
            case "clear":
                strategy.running.clear()
            case "set":
                strategy.running[edge] = 1
            case "delete" if edge in strategy.running:
                del strategy.running[edge]
            case "update":
                strategy.running.update({edge: 2})
            case "merge":
                strategy.running |= {edge: 3}
            case "default":
                strategy.running.setdefault(edge, 4)
            case "last" if strategy.running:
                strategy.running.popitem()
            case "replace":
                strategy.running = {edge: 5}
            case "look":
                assert strategy.idle == sorted(
                    edge for edge in strategy.samples if edge not in strategy.running
                )
    assert strategy.idle == sorted(
        edge for edge in strategy.samples if edge not in strategy.running
    )
    assert strategy.select(99, 0) is not strategy.idle


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("tdma-fl", "local_steps", 100_001),  # a task has at most 100,000 epochs
        ("push-tdma", "local_steps", 100_001),
        ("idfl", "compute_slots", 10**12 + 1),  # the closed forms go no further
        ("push-stalest", "most_saved_models", 1e300),  # its bytes are no number
        ("fadas", "epsilon", 1e-60),  # 0 in float32, so that 0 / 0 comes into the model
        ("fedac", "epsilon", 1e-60),
        ("fedecho", "epsilon", 1e-60),
    ],
)
def test_a_value_that_no_run_can_use_is_refused_before_it(
    name: str, option: str, value: float
) -> None:
    with pytest.raises(ValidationError):
        catalog.load(name).Options.model_validate({option: value})


@pytest.mark.parametrize("name", ["fadas", "fedac"])
def test_the_least_epsilon_still_avoids_a_division_by_zero(name: str) -> None:
    """All moments are 0."""
    strategy = make(catalog.load(name), epsilon=1e-37, buffer_size=1, concurrency=1)
    server = Server(strategy)
    server.start("a")
    task, version, base = server.open.pop("a")
    vectors = {"weights": base, "control": vector(0, 0, 0)}
    server.give(UpdateArrived("a", task, version, base, vectors, {"samples": 1.0}))
    assert server.version == 1 and server.weights == [0, 0, 0]
