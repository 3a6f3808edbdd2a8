"""The strategies that push, by hand: merges on a device, improvement, bytes, TDMA broadcasts."""

from __future__ import annotations

import json
from math import nan, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import S, Server, make, vector
from hypothesis import given
from hypothesis import strategies as st
from tdma_rounds import Played, play, slotted
from trainers import FakeTask, linear_trainer

from edgefl.config.experiment import Compression, Named
from edgefl.edges.training import LocalRun, Merge, TrainingPlan
from edgefl.protocol.messages import Pushed
from edgefl.record.files import EVENTS, LINKS, SLOTS
from edgefl.results.read import read_csv
from edgefl.strategies.base.events_and_decisions import (
    AlarmRang,
    Evaluated,
    Grant,
    Push,
    SetAlarm,
    UpdateReady,
)
from edgefl.strategies.dissemination.pushed import Merges, MergingOptions, merge_weight
from edgefl.strategies.push_on_improvement import PushOnImprovement
from edgefl.strategies.push_stalest import PushStalest
from edgefl.strategies.push_tdma import OwnWork, PushTdma

PLAN = TrainingPlan(4, 2, 0.125)  # four steps


# ------------------------------------------------------------------ what a device does with one
@pytest.mark.parametrize(
    ("options", "beta"),
    [
        ({"merging": "fixed", "beta": 0.3}, 0.3),
        ({"merging": "replace"}, 1.0),
        # eq. 10 of FedASMU: version 8 is t = 9, four versions newer are a staleness of 5
        (
            {"mu_beta": 2.0, "gamma": 3.0, "upsilon": 0.5},
            (6 / 3 * (1 - 0.5 / sqrt(5))) / (1 + 6 / 3 * (1 - 0.5 / sqrt(5))),
        ),
    ],
)
def test_the_weight_of_a_pushed_model(options: dict[str, Any], beta: float) -> None:
    assert merge_weight(MergingOptions(**options), 8, 4) == pytest.approx(beta, rel=1e-12)


def pushed_to(rule: Merges, *pushes: tuple[int, int, tuple[float, ...]]) -> LocalRun:
    """Train a task of version 2 whose device gets (step, version, model)."""
    trainer = linear_trainer(PLAN)
    task = FakeTask({"weights": vector(0, 0, 0)}, version=2)
    run = trainer.begin(task, rule, {})
    for step, version, model in pushes:
        trainer.merge_at(run, Merge(step, Pushed(1, version, {"weights": vector(*model)}, {})))
    assert trainer.advance(run, rule) and run.failure is None
    return run


def test_an_update_is_as_old_as_what_it_is_mixed_of() -> None:
    """Half of version 6, a quarter of it and half of 10; version 9, which is older, is ignored."""
    rule = Merges(MergingOptions(merging="fixed", beta=0.5))
    plain, once = pushed_to(rule), pushed_to(rule, (1, 6, (1, 1, 1)))
    twice = pushed_to(rule, (1, 6, (1, 1, 1)), (2, 10, (1, 1, 1)), (3, 9, (9, 9, 9)))
    numbers = [rule.payload(run)[1] for run in (plain, once, twice)]
    assert numbers == [{}, {"origin": 4.0, "beta": 0.5}, {"origin": 7.0, "beta": 0.5}]


def test_a_replaced_model_is_the_pushed_one() -> None:
    rule, trainer = Merges(MergingOptions(merging="replace")), linear_trainer(PLAN)
    run = trainer.begin(FakeTask({"weights": vector(5, 5, 5)}), rule, {})
    rule.pushed(run, vector(1, 2, 3), 7, {})
    assert run.weights.tolist() == [1, 2, 3]


def test_what_a_tdma_device_sends_is_its_own_work() -> None:
    """Half of the change so far, and the steps after the merge. Nothing moves the third element."""
    rule = OwnWork(MergingOptions(merging="fixed", beta=0.5))
    before, after = trained(1), pushed_to(rule, (1, 6, (0.25, 0.5, 8)))
    base = 0.5 * vector(0, 0, 0) + 0.5 * vector(0.25, 0.5, 8)
    merged = 0.5 * before + 0.5 * vector(0.25, 0.5, 8)
    later = after.weights.numpy() - merged
    sent = rule.payload(after)[0]["weights"]
    assert sent == pytest.approx(0.5 * before + later, abs=1e-6) and sent[2] == 0.0
    assert sent == pytest.approx(after.weights.numpy() - base, abs=1e-6)
    alone = pushed_to(rule)
    assert np.array_equal(rule.payload(alone)[0]["weights"], alone.weights.numpy())


def trained(steps: int) -> np.ndarray:
    """The model of the same task after some steps."""
    rule, trainer = Merges(MergingOptions()), linear_trainer(PLAN)
    run = trainer.begin(FakeTask({"weights": vector(0, 0, 0)}, version=2), rule, {})
    trainer.advance(run, rule, steps)
    return np.array(run.weights_array())


@pytest.mark.parametrize(("origin", "alpha"), [({}, 0.5 / 3), ({"origin": 1.5}, 0.5 / 1.5)])
def test_the_server_counts_the_gap_to_the_origin(origin: dict[str, float], alpha: float) -> None:
    story = Server(make(PushStalest, budget_byte_s=1, alpha=0.5, a=1.0, concurrency=3))
    story.start("a", "b", "c")
    story.deliver("b", 0, 0, 0)
    story.deliver("c", 0, 0, 0)
    story.deliver("a", 1, 0, 0, **origin)  # the gap is 2, or half a version
    assert story.weights[0] == pytest.approx(alpha)


# ------------------------------------------------------------------ push on improvement
def evaluate(story: Server, loss: float, accuracy: float = 0.0) -> list[str]:
    scores = {"test_loss": loss, "accuracy": accuracy}
    return story.give(Evaluated(story.version, 0, scores))


def test_a_push_when_the_loss_has_dropped_by_a_share_since_the_last_one() -> None:
    story = Server(make(PushOnImprovement, least_drop=0.1, alpha=1.0, concurrency=3))
    story.start("a", "b", "c")
    assert evaluate(story, 2.0) == ["report loss=2 edges=0"]
    story.deliver("a", 1, 1, 1)
    assert evaluate(story, 1.81) == [] and evaluate(story, nan) == []
    assert evaluate(story, 1.79) == ["report loss=1.79 edges=2", "push b,c <- 1 1 1"]
    assert evaluate(story, 1.70) == []  # 10 % of 1.79, not of 2
    assert evaluate(story, 1.60) == ["report loss=1.6 edges=0"], "all have this version"


def test_the_error_is_a_loss_too() -> None:
    story = Server(make(PushOnImprovement, least_drop=0.5, loss="error", concurrency=2))
    story.start("a", "b")
    evaluate(story, 9.0, accuracy=0.2)
    story.deliver("a", 0, 0, 0)
    assert evaluate(story, 1.0, accuracy=0.59) == []
    assert evaluate(story, 9.0, accuracy=0.61)[1] == "push b <- 0 0 0"


def test_who_sends_or_is_away_gets_no_push() -> None:
    story = Server(make(PushOnImprovement, concurrency=4))
    story.start("a", "b", "c", "d")
    evaluate(story, 2.0)
    assert story.give(UpdateReady("b", 1)) == ["grant b 1"], "at once, as without a schedule"
    story.lose("c")
    story.deliver("a", 0, 0, 0)
    assert evaluate(story, 1.0)[1] == "push d <- 0 0 0"


# ------------------------------------------------------------------ push to the stalest
BYTES = 12  # of a model of three elements


def stalest(*edges: str, **options: Any) -> Server:
    made = make(PushStalest, **{"budget_byte_s": BYTES, "concurrency": len(edges)} | options)
    story = Server(made)
    story.start(*edges)
    return story


def alarms(story: Server) -> list[float]:
    return [each.at_ns / S for each in story.decisions if isinstance(each, SetAlarm)]


def receivers(story: Server) -> list[str]:
    return [edge for each in story.decisions if isinstance(each, Push) for edge in each.edges]


def deliver(story: Server, edge: str, second: float) -> list[str]:
    story.deliver(edge, 0, 0, 0, now=round(second * S))
    return receivers(story)


def ring(story: Server, second: float) -> list[str]:
    story.give(AlarmRang("push"), round(second * S))
    return receivers(story)


def test_the_oldest_first_as_the_bytes_allow() -> None:
    """A model of bytes each second. Versions that edges have: d 0, e 0, b 1, c 2, a 4."""
    story = stalest("a", "b", "c", "d", "e", most_saved_models=2.0)
    assert deliver(story, "b", 0.1) == [] and alarms(story) == [1.0]
    assert deliver(story, "c", 0.2) == [] and alarms(story) == [1.0]
    assert deliver(story, "a", 0.3) == []
    assert ring(story, 1.0) == ["d"] and alarms(story) == [2.0]
    assert ring(story, 2.0) == ["e"] and alarms(story) == [3.0]
    assert ring(story, 4.0) == ["b", "c"] and alarms(story) == [], "all have version 3"
    assert deliver(story, "a", 9.0) == ["d", "e"], (
        "no more than two are saved; d got its model first"
    )


def test_too_young_for_a_push() -> None:
    story = stalest("a", "b", least_age_versions=2, least_age_s=5.0)
    assert deliver(story, "a", 1.0) == [] and alarms(story) == []
    assert deliver(story, "a", 2.0) == [] and alarms(story) == [5.0], "two versions, since 0 s"
    assert ring(story, 5.0) == ["b"]


@given(
    st.lists(st.tuples(st.integers(0, 900), st.sampled_from("abcd")), max_size=30),
    st.integers(1, 60),
    st.sampled_from([1.0, 2.5]),
)
def test_never_more_than_the_budget(
    steps: list[tuple[int, str]], budget: int, saved: float
) -> None:
    """By any moment t, budget t; in any stretch dt, budget dt and what was saved."""
    story, now, sent = stalest(*"abcd", budget_byte_s=budget, most_saved_models=saved), 0, []
    for wait_ms, edge in steps:
        now += wait_ms * S // 1000
        due = [each.at_ns for each in story.decisions if isinstance(each, SetAlarm)]
        if due and due[0] <= now:
            sent += [(due[0], len(ring(story, due[0] / S)))]
            now = max(now, due[0])
        story.deliver(edge, 0, 0, 0, now=now)
        sent += [(now, len(receivers(story)))]
    for first, (since, _) in enumerate(sent):
        models = 0
        for until, count in sent[first:]:
            models += count
            assert models * BYTES <= budget * (until - since) / S + saved * BYTES + 1e-6
            if first == 0:
                assert models * BYTES <= budget * until / S + 1e-6


# ------------------------------------------------------------------ push by TDMA broadcast
@pytest.mark.parametrize(("alpha", "down"), [(0, None), (1, None), (0, "int8")])
def test_pushes_take_no_slot_of_their_own(tmp_path: Path, alpha: int, down: str | None) -> None:
    """N = 6, S = 2, tau_comp = 8: as IDFL, but all who compute hear each broadcast, too."""

    def played(strategy: str) -> list[Played]:
        run = slotted(6, 8, slots=40, strategy=strategy, per_round=2, alpha=alpha)
        return play(
            tmp_path,
            run.model_copy(
                update={"compression": Compression(down=None if down is None else Named(name=down))}
            ),
        )[1]

    rounds, found = played("idfl"), played("push-tdma")
    assert found == rounds and len(found) >= 5
    one, other = tmp_path / "idfl", tmp_path / "push-tdma"
    assert (one / SLOTS).read_bytes() == (other / SLOTS).read_bytes()
    kinds = [[row["kind"] for row in read_csv(folder / LINKS)] for folder in (one, other)]
    assert kinds[0] == kinds[1]
    if alpha == 0:
        assert broadcasts(other)[:6] == [
            ("assign", "012345", []),
            ("assign", "01", [10]),
            ("assign", "23", [13]),
            ("push", "01", [13]),
            ("assign", "45", [16]),
            ("push", "0123", [16]),
        ]


def broadcasts(folder: Path) -> list[tuple[str, str, list[int]]]:
    """The assignments and pushes of a run: the numbers of their edges, their slots."""
    rows = [json.loads(line) for line in (folder / EVENTS).read_text().splitlines()]
    return [
        (each["do"], "".join(edge[-1] for edge in each["edges"]), each["broadcast"])
        for row in rows
        for each in row.get("decisions", ())
        if each["do"] in ("push", "assign")
    ]


def test_it_needs_a_tdma_channel() -> None:
    found = PushTdma.refuses(PushTdma.Options(), 4, "none", False)
    assert found is not None and "PushTdma assigns the slots of a channel itself" in found[1]
    assert PushTdma.refuses(PushTdma.Options(), 4, "tdma", False) is None


def test_a_task_of_one_step_can_merge_nothing() -> None:
    kind = PushTdma
    assert kind.warnings(kind.Options(local_steps=1, per_round=2), 1)
    assert not kind.warnings(kind.Options(per_round=2), 1)


def test_where_all_edges_send_in_a_round_nobody_is_left_to_hear_a_push() -> None:
    (warning,) = PushTdma.warnings(PushTdma.Options(), 1)
    assert "nothing is pushed (per_round)" in warning


def test_grants_are_decided_at_once() -> None:
    story = stalest("a")
    story.give(UpdateReady("a", 0))
    assert story.decisions == [Grant("a", 0)]
