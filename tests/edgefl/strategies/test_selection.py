"""Which idle edges get work: each selection by hand, then in whole runs."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from builders import EXAMPLES, S, Server, experiment, make, small_run, vector
from pools import bytes_of, learned_of
from safetensors.numpy import load_file
from sortedcontainers.sortedlist import SortedList
from state_relay import Relay, begun

from edgefl import catalog
from edgefl.clocks.setup.resumption import digests
from edgefl.clocks.virtual.run import Saving, run_virtual
from edgefl.config.file import (
    check_names,
    from_json,
    load,
    own_names,
    server_code,
    strategy_warnings,
    to_json,
)
from edgefl.config.section import Source
from edgefl.errors import UserError
from edgefl.record.journal import replay
from edgefl.results.read import read_events
from edgefl.strategies.base.catalog import load as load_strategy
from edgefl.strategies.base.catalog import own_modules, strategy_names
from edgefl.strategies.base.events_and_decisions import (
    Assign,
    EdgeJoined,
    Publish,
    Push,
    RunStarted,
    SendFresh,
    UpdateArrived,
)
from edgefl.strategies.base.strategy import SelectingOptions, Strategy
from edgefl.strategies.fedasync import FedAsync
from edgefl.strategies.fedavg import FedAvg
from edgefl.strategies.selection.oort import Oort
from edgefl.strategies.selection.selector import ATTRIBUTE, PACKAGE, Selector, find

NAMES = ["fastest_first", "oldest_first", "oort", "random", "round_robin"]
EDGES = [f"e{number}" for number in range(8)]


def server(name: str, kind: type[Strategy] = FedAvg, many: int = 2, **options: Any) -> Server:
    """A strategy with ``many`` edges at work, which selects in this way."""
    key = "clients_per_round" if kind is FedAvg else "concurrency"
    story = Server(make(kind, **{key: many}))
    story.strategy.selector = find(name, options)
    return story


def rounds(story: Server, number: int, **numbers: float) -> list[list[str]]:
    """Deliver ``number`` rounds, one second each; return the edges of the next ones."""
    found = []
    for _ in range(number):
        story.strategy.selector.now += S
        for edge in sorted(story.open):
            story.deliver(edge, 0, 0, 0, now=story.strategy.selector.now, **numbers)
        found.append(sorted(story.open))
    return found


# ---------------------------------------------------------------------- simple ones, by hand
def test_round_robin_goes_on_behind_the_last_edge_and_skips_those_that_are_away() -> None:
    story = server("round_robin", many=3)
    story.start(*EDGES)
    assert list(story.open) == ["e0", "e1", "e2"]
    story.lose("e4")
    assert rounds(story, 3) == [["e3", "e5", "e6"], ["e0", "e1", "e7"], ["e2", "e3", "e5"]]
    story.join("e4")
    assert rounds(story, 1) == [["e0", "e6", "e7"]]


def test_the_edge_whose_last_update_is_oldest_goes_first() -> None:
    """All new, by id: a, b. b delivers at 1 s and c starts, a delivers at 2 s and d starts."""
    story = server("oldest_first", FedAsync, of="update")
    story.start(*"abcd")
    for now, edge, following in (
        (1, "b", "c"),
        (2, "a", "d"),
        (5, "c", "b"),  # b 1 s, a 2 s
        (6, "b", "a"),
        (7, "d", "c"),
        (7, "c", "b"),  # c and d have delivered at 7 s, b at 6 s
        (8, "a", "d"),  # c got its last task after d
    ):
        story.deliver(edge, 0, 0, 0, now=now * S)
        assert following in story.open, now
    assert set(story.open) == {"b", "d"}


def test_the_edge_with_the_oldest_model_goes_first() -> None:
    """Every update makes a model: versions 1, 2, ... are published at 1, 2, 5, 7, 8 s."""
    story = server("oldest_first", FedAsync)
    story.start(*"abcd")
    for now, edge, following in (
        (1, "b", "c"),
        (2, "a", "d"),
        (5, "c", "a"),  # a and b: model of 0 s, by id; a update 2 s, b update 1 s
        (7, "d", "b"),
        (8, "a", "c"),  # a: model of 5 s; c: of 1 s; d: of 2 s
    ):
        story.deliver(edge, 0, 0, 0, now=now * S)
        assert following in story.open, now
    selector = story.strategy.selector
    assert selector.model_ns == {"a": 5 * S, "b": 0, "c": S, "d": 2 * S}


def test_a_fresher_model_during_the_task_makes_the_edge_younger() -> None:
    """a got version 1, of 2 s, by a push; c asked and there was no newer one."""
    selector = find("oldest_first", {})
    for now, decisions in (
        (0, [Assign(("a", "b", "c"), {})]),
        (2, [Publish(vector(0)), Push(("a",), {}), SendFresh("c", 2, None)]),
    ):
        selector.observe(RunStarted(), 0, now)
        selector.decided(decisions)
    for edge in "abc":
        selector.observe(UpdateArrived(edge, 0, 0, vector(0), {}), 1, 3)
    assert selector.model_ns == {"a": 2, "b": 0, "c": 0}


def test_an_edge_that_fails_stays_oldest_but_goes_behind_those_without_a_task() -> None:
    story = server("oldest_first", FedAsync, many=1)
    story.start(*"abc")
    found = []
    for now in (1, 2, 3, 4):
        found += story.open
        story.close(found[-1], now=now)
    assert found == ["a", "b", "c", "a"]
    story.deliver("b", 0, 0, 0, now=9)
    assert list(story.open) == ["c"]
    story.deliver("c", 0, 0, 0, now=10)
    assert list(story.open) == ["a"], "it has never delivered"


def test_the_edge_whose_last_task_was_shortest_goes_first() -> None:
    """Times by edge; an edge without a task so far goes before all others."""
    took = {"a": 3, "b": 1, "c": 2, "d": 4}
    story, now, found = server("fastest_first", FedAsync, many=1), 0, []
    story.start(*"abcd")
    for _ in range(7):
        found += story.open
        now += took[found[-1]] * S
        story.deliver(found[-1], 0, 0, 0, now=now)
        took["b"] += 1  # it slows down: 2 s for its first task, 5 s for its second
    assert found[:4] == ["a", "b", "c", "d"]
    assert found[4:] == ["b", "c", "c"], "b and c took 2 s, and b began earlier; then it took 5 s"


def test_a_fast_edge_that_fails_counts_as_slow_until_it_delivers() -> None:
    story = server("fastest_first", FedAsync, many=1)
    story.start(*"ab")
    story.deliver("a", 0, 0, 0, now=1)
    story.deliver("b", 0, 0, 0, now=11)
    assert list(story.open) == ["a"]
    story.close("a")
    assert list(story.open) == ["b"]
    story.deliver("b", 0, 0, 0, now=21)
    assert list(story.open) == ["b"]
    story.lose("b")
    story.close("b")
    assert list(story.open) == ["a"], "nobody else is idle"
    story.deliver("a", 0, 0, 0, now=25)
    story.join("b")
    assert list(story.open) == ["a"] and "a" not in story.strategy.selector.failures


# ---------------------------------------------------------------------- Oort, by hand
def seen(losses: dict[str, float], took_s: dict[str, float], **options: Any) -> Oort:
    """Oort after one update of each edge, in round 1. An edge has 10 samples."""
    selector = cast(Oort, find("oort", options))
    for edge in losses:
        selector.observe(EdgeJoined(edge, 10), 0, 0)
    selector.decided([Assign(tuple(losses), {})])
    for edge, loss in losses.items():
        numbers = {"samples": 10.0, "loss": loss}
        update = UpdateArrived(edge, 0, 0, np.zeros(3, np.float32), {}, numbers)
        selector.observe(update, 0, round(took_s.get(edge, 1.0) * S))
    return selector


def test_the_statistical_utility_is_the_samples_times_the_mean_loss() -> None:
    """Equal losses: |B| sqrt(sum l^2 / |B|) = |B| |l|. An update has 10 samples."""
    selector = seen({"a": 0.5, "b": -2.0}, {"b": 3.0})
    assert selector.utility[:2].tolist() == [5.0, 20.0]
    assert selector.took_s[:2].tolist() == [1.0, 3.0]
    assert selector.achieved == [25.0]


def test_a_claim_of_a_huge_loss_leaves_no_place_empty() -> None:
    """10 samples with a loss of 1.7e308 would be infinite."""
    selector = seen({"a": 1.0, "b": 1.7e308, "c": -1.7e308}, {}, exploration=0.0)
    for edge in "abc":
        selector.moved(edge, True)
    chosen = selector.choose(SortedList("abc"), 2, partial(np.random.default_rng, 1))
    assert sorted(chosen) == ["b", "c"]


def test_utilities_are_cut_and_scaled_then_the_slow_are_punished() -> None:
    """U = 10, 20, 30, 40; clip 0.5 cuts at place int(4 x 0.5) = 2, which is 30. T is at place int(4
    x 0.3) = 1 of 1, 2, 4, 8 s: 2 s. R = 4 and L = 1, so the temporal term is sqrt(0.1 ln 4).
    """
    took_s = {"a": 1.0, "b": 2.0, "c": 4.0, "d": 8.0}
    selector = seen({"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}, took_s, clip=0.5)
    selector.round = 4
    low, temporal = 9.99, math.sqrt(0.1 * math.log(4))
    assert selector.preferred_s() == 2.0
    scaled = [(u - low) / (30 - low) for u in (10, 20, 30, 30)]
    expected = [
        scaled[0] + temporal,
        scaled[1] + temporal,  # t = T
        (scaled[2] + temporal) * (2 / 4) ** 2,
        (scaled[3] + temporal) * (2 / 8) ** 2,
    ]
    assert selector.utilities(np.arange(4)) == pytest.approx(expected, rel=1e-12)
    selector.preferred = 1.0
    assert selector.preferred_s() == math.inf
    unpunished = [share + temporal for share in scaled]
    assert selector.utilities(np.arange(4)) == pytest.approx(unpunished, rel=1e-12)


def test_the_longer_ago_an_edge_took_part_the_higher_its_utility() -> None:
    """s_i = sqrt(0.1 ln R / L_i): R = 9; L = 1 and 4."""
    selector = seen({"a": 1.0, "b": 1.0}, {})
    selector.round, selector.involved[1] = 9, 4.0
    one, four = selector.utilities(np.arange(2))
    assert one - four == pytest.approx(math.sqrt(0.1 * math.log(9)) * (1 - 0.5), rel=1e-12)


def test_only_edges_near_the_cut_off_are_drawn_in_proportion_to_their_utility() -> None:
    """Of 10 edges 2 are wanted: the second highest utility times c is the limit."""
    losses = {f"e{n}": loss for n, loss in enumerate([10, 8, 7.9, 7.5, 5, 4, 3, 2, 1, 0.5])}
    selector = seen(losses, {}, cut_off=0.95, clip=1.0)
    rows, counts = np.arange(10), np.zeros(10)
    for seed in range(2000):
        chosen = selector._exploited(rows, 2, np.random.default_rng(seed))
        assert len(set(chosen)) == 2
        counts[chosen] += 1
    found = selector.utilities(rows)
    assert found[3] < 0.95 * found[1] < found[2] and not counts[3:].any()
    first = found[:3] / found[:3].sum()  # chances of two draws without replacement
    both = [p + sum(q * p / (1 - q) for q in first if q != p) for p in first]
    assert counts[:3] / 2000 == pytest.approx(both, abs=0.035)  # three standard deviations


def test_edges_without_any_utility_are_drawn_all_the_same() -> None:
    """With training.trainer = "none" all losses are 0, and so is ln R in the first round."""
    selector = seen(dict.fromkeys("abcd", 0.0), {})
    counts = np.zeros(4)
    for seed in range(400):
        counts[selector._exploited(np.arange(4), 2, np.random.default_rng(seed))] += 1
    assert (counts > 150).all()


def test_epsilon_is_the_share_of_edges_that_were_never_tried_and_falls_to_its_least() -> None:
    """K = 10, epsilon 0.9, 0.45, 0.3: 9, 4 or 5, and 3 new edges; the rest have delivered."""
    story = server("oort", many=10, exploration_decay=0.5, exploration_least=0.3)
    story.start(*[f"e{number:02d}" for number in range(60)])
    selector, tried = cast(Oort, story.strategy.selector), set(story.open)
    assert selector.round == 1 and len(tried) == 10, "nobody has delivered: all are new"
    new = []
    for _ in range(4):
        rounds(story, 1, loss=1.0)
        new.append(len({*story.open} - tried))
        tried |= {*story.open}
    assert new[0] in (4, 5) and new[1:] == [3, 3, 3]
    assert (selector.round, selector.exploration) == (5, 0.3)


def test_where_too_few_are_new_or_known_the_others_fill_the_round() -> None:
    story = server("oort", many=4, exploration=0.0, exploration_least=0.0)
    story.start(*EDGES)
    assert len(story.open) == 4, "no edge has delivered"
    known = set(story.open)
    assert rounds(story, 2, loss=1.0) == [sorted(known)] * 2
    story = server("oort", many=4, exploration=1.0, exploration_decay=1.0)
    story.start(*EDGES)
    known = set(story.open)
    assert set(rounds(story, 1, loss=1.0)[0]) == {*EDGES} - known
    assert len(rounds(story, 1, loss=1.0)[0]) == 4, "none is new"


def test_a_share_of_one_edge_is_a_chance() -> None:
    """FedAsync replaces one edge at a time; a round has as many selections as edges at work."""
    story = server("oort", FedAsync, many=5, exploration=0.4, exploration_decay=1.0)
    story.start(*[f"e{number:03d}" for number in range(600)])
    selector, new, tried = cast(Oort, story.strategy.selector), 0, set(story.open)
    for number in range(400):
        selector.now += S
        edge = min(story.open, key=lambda each: story.open[each][0])
        story.deliver(edge, 0, 0, 0, loss=1.0, now=selector.now)
        new += len({*story.open} - tried)
        tried |= {*story.open}
        assert selector.round == 2 + number // 5
    assert 130 <= new <= 190  # 160 expected, standard deviation 10


def test_the_pacer_accepts_slower_edges_when_the_utility_falls() -> None:
    """W = 2: rounds 1 + 2 against 3 + 4 before round 5, and so on; two edges with U = loss."""
    story = server("oort", pacer_rounds=2, pacer_share=0.25, many=2)
    story.start("a", "b")
    selector, shares = cast(Oort, story.strategy.selector), []
    for loss in (4.0, 4.0, 3.0, 3.0, 3.0, 3.0, 2.0, 2.0):
        rounds(story, 1, loss=loss)
        shares.append(selector.preferred)
    assert shares == [0.3, 0.3, 0.3, 0.55, 0.55, 0.55, 0.55, 0.8], "equal sums change nothing"
    assert selector.achieved == [8.0, 8.0, 6.0, 6.0, 6.0, 6.0, 4.0, 4.0, 0.0]


def test_edges_that_delivered_too_often_wait_until_nobody_else_is_idle() -> None:
    """5 of 8 edges have more than 2 updates; at most 30 %, 2 edges, are on the list."""
    story = server("oort", many=8, most_updates=2)
    story.start(*EDGES)
    selector = cast(Oort, story.strategy.selector)
    selector.count[:8], selector.involved[:8] = [5, 3, 4, 3, 3, 2, 2, 1], 1
    assert np.flatnonzero(selector._blacklist()).tolist() == [0, 2]
    for edge in EDGES:
        selector.moved(edge, True)
    stream = partial(np.random.default_rng, 1)
    assert set(selector.choose(cast(Any, EDGES), 6, stream)) == {*EDGES} - {"e0", "e2"}
    assert set(selector.choose(cast(Any, EDGES), 7, stream)) == {*EDGES} - {"e0"}
    assert set(selector.choose(cast(Any, EDGES), 8, stream)) == {*EDGES}


# ---------------------------------------------------------------------- what a selector gets
def test_a_selector_observes_tasks_of_every_strategy() -> None:
    class Watching(Selector):
        def choose(self, idle: Any, count: int, stream: Any) -> list[str]:
            return list(idle[:count])

    story = Server(make(FedAsync, concurrency=2))
    story.strategy.selector = watched = Watching()
    story.start("a", "b", samples=7)
    assert watched.samples == {"a": 7, "b": 7} and watched.assigned_ns == {"a": 0, "b": 0}
    story.deliver("a", 0, 0, 0, now=3 * S, loss=0.5)
    story.deliver("b", 0, 0, 0, now=5 * S)
    assert watched.arrived_ns == {"a": 3 * S, "b": 5 * S} == watched.assigned_ns
    assert watched.took_ns == watched.arrived_ns and watched.gaps == {"a": 0, "b": 1}
    assert watched.losses == {"a": 0.5}
    watched.now = 6 * S
    story.close("a")
    story.deliver("b", 0, 0, 0, now=9 * S)
    assert watched.failures == {"a": 1} and watched.updates == {"a": 1, "b": 2}
    assert watched.took_ns["b"] == 4 * S


@pytest.mark.parametrize(
    ("chosen", "found"),
    [(["a", "a"], "['a', 'a']"), (["z"], "['z']"), (["a", "b", "c"], "'c']"), (None, "None")],
)
def test_a_selector_that_chooses_badly_is_one_line(chosen: Any, found: str) -> None:
    class Careless(Selector):
        def choose(self, idle: Any, count: int, stream: Any) -> list[str]:
            return cast(list[str], chosen)

    story = Server(make(FedAvg, clients_per_round=2))
    story.strategy.selector = Careless()
    with pytest.raises(UserError) as caught:
        story.start("a", "b", "c")
    line = "Careless.choose: expected a list of at most 2 different idle edges, found "
    assert str(caught.value).startswith(line) and str(caught.value).endswith(found)


# ---------------------------------------------------------------------- whole runs
RUN: dict[str, Any] = {
    "edges": {"names": EDGES},
    "devices": {"samples_per_s": 60.0, "slowest_ratio": 6.0},
    "training": {"batch_size": 8},
    "stop": {"updates": 16},
}
STRATEGIES: dict[str, dict[str, Any]] = {
    "fedavg": {"clients_per_round": 2},
    "fedbuff": {"concurrency": 3, "buffer_size": 2},
    "fedasync": {"concurrency": 2},
    "fedasmu": {"concurrency": 3, "dispatch": "periodic", "period_s": 2.0},
}


def run(folder: Path, strategy: str, **more: Any) -> Path:
    entry = {"strategy": strategy, **STRATEGIES[strategy], **more}
    return small_run(folder, **RUN, strategies=[entry], record={"payloads": True})[1]


def assigned(directory: Path) -> list[str]:
    """The edges in the order in which they got tasks."""
    rows = [row for row in read_events(directory / "events.jsonl") if "event" in row]
    decisions = [decision for row in rows for decision in row["decisions"]]
    return [edge for each in decisions if each["do"] == "assign" for edge in each["edges"]]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.slow
def test_a_run_replays_from_its_journal(strategy: str, tmp_path: Path) -> None:
    """FedBuff's by a new instance per event, which gets the state of the former."""
    plain = bytes_of(run(tmp_path / "plain", strategy))
    for name in NAMES:
        directory = run(tmp_path / name, strategy, selection=name)
        assert (bytes_of(directory) == plain) == (name == "random")
        assert len(set(assigned(directory))) > 2
        again: Any = begun(directory)
        if strategy == "fedbuff":
            again = Relay(partial(begun, directory), tmp_path / "relay" / name)
        result = replay(directory / "journal", again)
        kept = load_file(directory / "model.safetensors")["weights"]
        assert result.weights.tobytes() == kept.tobytes()


@pytest.mark.slow
def test_a_run_that_is_broken_off_goes_on_as_if_it_was_not(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    steps = 0

    def progress(now: int, run: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == 40:
            raise Killed

    chosen = {"name": "my_selection.py:build", "candidates": 4}
    for selection in ("oort", "oldest_first", chosen):
        steps, name = 0, selection if isinstance(selection, str) else "own"
        entry = {"strategy": "fedbuff", **STRATEGIES["fedbuff"], "selection": selection}
        learned = learned_of(**RUN, strategies=[entry])
        run_virtual(learned, 0, tmp_path / name / "whole")
        with pytest.raises(Killed):
            run_virtual(learned, 0, tmp_path / name, progress, saving=Saving(every_steps=7))
        said: list[str] = []
        run_virtual(learned, 0, tmp_path / name, resume=True, saving=Saving(say=said.append))
        assert said == [] and bytes_of(tmp_path / name) == bytes_of(tmp_path / name / "whole")


# ---------------------------------------------------------------------- names and keys
def test_the_folder_is_the_registry_and_rounds_and_asynchronous_strategies_take_it() -> None:
    assert catalog.names(PACKAGE, ATTRIBUTE) == NAMES
    takes = {name for name in strategy_names() if issubclass(options_of(name), SelectingOptions)}
    others = {*strategy_names()} - takes
    assert {"fedavg", "fedssmu", "fedasmu", "fedac", "fedsa", "fedecho", "port"} < takes
    assert {"k-async", "wkafl", "gsgm", "zeno-plus-plus", "tdma-fl", "idfl"} < others
    assert all(load_strategy(name).select is Strategy.select for name in strategy_names())


def options_of(name: str) -> Any:
    return load_strategy(name).Options


@pytest.mark.parametrize(
    ("selection", "line"),
    [
        ("oorrt", "strategies[0].selection.name: unknown selection 'oorrt' (nearest: 'oort')"),
        (
            {"name": "oort", "explorationn": 0.1},
            "strategies[0].selection.explorationn: unknown key (nearest: 'exploration')",
        ),
        (
            {"name": "oort", "clip": 2.0},
            "strategies[0].selection.clip: expected less than or equal to 1, found 2.0",
        ),
        ({"exploration": 0.1}, "strategies[0].selection.name: missing"),
        ({"name": "random", "x": 1}, "strategies[0].selection.x: unknown key (valid: name)"),
        (5, 'strategies[0].selection: expected a name, such as "oort", or a table'),
        ("none.py:build", "strategies[0].selection.name: no file"),
    ],
)
def test_bad_input_is_one_line(selection: Any, line: str, tmp_path: Path) -> None:
    given = experiment(strategies=[{"strategy": "fedavg", "selection": selection}])
    with pytest.raises(UserError) as caught:
        check_names(given, Source("my.toml"), tmp_path)
    assert str(caught.value).startswith(f"my.toml: {line}")


def test_a_strategy_that_selects_no_edges_refuses_the_key() -> None:
    given = experiment(strategies=[{"strategy": "k-async", "selection": "oort"}])
    with pytest.raises(UserError, match=r"strategies\[0\].selection: k-async selects no edges"):
        check_names(given, Source("my.toml"), None)


@pytest.mark.parametrize(
    ("options", "warns"),
    [
        ({"strategy": "fedavg", "clients_per_round": 3}, True),
        ({"strategy": "fedavg", "clients_per_round": 2}, False),
        ({"strategy": "fedasync", "concurrency": 3}, True),
        ({"strategy": "fedasync", "concurrency": 3, "dispatch": "periodic"}, False),
        ({"strategy": "fedasmu", "clients_per_trigger": 2}, False),  # periodic by default
        ({"strategy": "fedasmu", "dispatch": "replace"}, True),
    ],
)
def test_a_selection_without_effect_is_a_warning(options: dict[str, Any], warns: bool) -> None:
    found = strategy_warnings(experiment(strategies=[{**options, "selection": "oort"}]), None)
    line = f"{options['strategy']}: selection has no effect: all 3 edges work at the same time"
    assert (line in found) == warns


def test_a_selection_of_ones_own() -> None:
    made = find("my_selection.py:build", {"candidates": 3}, EXAMPLES)
    assert type(made).__module__ in own_modules(FedAvg, type(made))
    assert own_modules(FedAvg, Oort) == ()
    made.samples, made.losses = dict.fromkeys("abc", 5), {"a": 0.1, "b": 0.9, "c": 0.5}
    stream = partial(np.random.default_rng, 1)
    assert made.choose(cast(Any, ["a", "b", "c"]), 2, stream) == ["b", "c"]
    with pytest.raises(UserError, match=r"candidats: unknown key \(nearest: 'candidates'\)"):
        find("my_selection.py:build", {"candidats": 3}, EXAMPLES)
    with pytest.raises(UserError, match=r"expected an edgefl.api.Selector, found list"):
        find("builtins:list", {})


def test_only_the_coordinator_needs_the_code_of_a_selection(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(
        'stop = {versions = 1}\n[[strategies]]\nstrategy = "fedavg"\nclients_per_round = 2\n'
        'selection = "my_selection.py:build"\n'
    )
    (tmp_path / "my_selection.py").write_text((EXAMPLES / "my_selection.py").read_text())
    given = load(tmp_path / "my.toml")
    assert server_code(given) == ["my_selection.py:build"] and own_names(given) == []
    assert digests(given, tmp_path)["my_selection.py"] != "", "a resumed run notices a change"
    assert from_json(to_json(given, given.strategies[0])).strategies == given.strategies
