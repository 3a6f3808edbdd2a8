"""Results of a run on a TDMA channel: counts of slots, and figures from its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import EXAMPLES, small_run
from paths import STUDIES
from tdma_rounds import play, slotted

from edgefl.clocks.setup.learning import learning
from edgefl.config.experiment import Experiment
from edgefl.results.families import slots as slots
from edgefl.results.read import read_csv, read_events

SLOTS: dict[str, Any] = {"kind": "tdma", "slot_ms": 100.0, "guard_ms": 10.0, "rate_mbit_s": 0.01}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of the paper's figure 2: N = 6, S = 2, tau_comp = 2, delay of 0 and of 1 round."""
    place = tmp_path_factory.mktemp("slots")
    for strategy, options in (("tdma-fl", {}), ("idfl", {"alpha": 1})):
        given = slotted(6, 2, slots=30, strategy=strategy, per_round=2, **options)
        evaluated: Experiment = given.model_copy(
            update={"evaluation": given.evaluation.model_copy(update={"every_s": 10.0})}
        )
        play(place, evaluated, learning(evaluated, EXAMPLES))
    return place


def test_the_summary_counts_slots(folder: Path) -> None:
    """In 30 slots: two idle ones, then nine rounds of three slots."""
    counted = slots.section(slots.rounds(read_events(folder / "tdma-fl" / "events.jsonl")))
    assert counted == {
        "rounds": 9,
        "end_slot": 29,
        "uploads": 18,
        "lost": 0,
        "missed": 0,
        "wasted_slots": 2,
    }
    assert '"rounds": 9' in (folder / "tdma-fl" / "summary.json").read_text()


def test_a_device_that_finishes_in_the_slot_of_its_turn_has_not_missed_it(tmp_path: Path) -> None:
    """With the longest delay that costs no slot, tau_comp = 3 comm, all begin just in time."""
    play(tmp_path, slotted(4, 6, slots=80, strategy="idfl", per_round=1))
    counted = slots.section(slots.rounds(read_events(tmp_path / "idfl" / "events.jsonl")))
    assert (counted["uploads"], counted["missed"]) == (37, 0)


def test_the_bars_are_those_of_the_papers_figure(folder: Path) -> None:
    """Device 0 computes in slots 0 and 1, sends in 2, receives in 4, computes in 5 and 6.

    With a delay of one round it receives in 7.
    """
    for strategy, receives in (("tdma-fl", 4), ("idfl", 7)):
        found = slots.bars_until(read_events(folder / strategy / "events.jsonl"), 1.0, 10.0)
        mine = [bar[1:] for bar in found if bar[0] == "e000"]
        assert ("transmit", 2, 3) in mine and ("receive", receives, receives + 1) in mine
        computes = [bar[1:] for bar in mine if bar[0] == "compute"]
        assert computes[0] == (0.0, 1.5) and computes[1] == (
            receives + 1,
            receives + 2.5,
        ), "ready in the middle of the second slot"


# ------------------------------------------------------------------ the scripts
@pytest.mark.parametrize(("name", "delay"), [("tdma-fl", 0), ("idfl", 1)])
def test_a_run_against_its_plan(
    folder: Path, name: str, delay: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine rounds of three slots all end within one slot of the closed form.

    A round that ends two slots late does not.
    """
    monkeypatch.syspath_prepend(STUDIES)
    import plan_tdma

    assert plan_tdma.row(name, folder / name)[:9] == (name, 2, delay, 9, 9, "100.0%", 2, 0, 0)
    told = [dict(each) for each in slots.rounds(read_events(folder / name / "events.jsonl"))]
    told[4]["end_slot"] += 2
    monkeypatch.setattr(slots, "rounds", lambda events: told)
    assert plan_tdma.row(name, folder / name)[5] == "88.9%"


# ------------------------------------------------------------------ others on the same channel
@pytest.mark.parametrize(
    "strategy",
    [{"strategy": "fedbuff", "buffer_size": 2}, {"strategy": "fedasmu", "dispatch": "replace"}],
)
def test_others_take_slots_in_order_of_readiness(tmp_path: Path, strategy: dict[str, Any]) -> None:
    """Other strategies run unchanged on such a channel: no two slots overlap, and an edge does not
    send or receive (also fresh models) while it computes.
    """
    speeds = {"samples_per_slot": 10.0, "slowest_ratio": 2.0}
    training = {"epochs": 3, "batch_size": 8}
    summary, directory = small_run(
        tmp_path,
        medium=SLOTS,
        devices=speeds,
        training=training,
        stop={"versions": 6},
        strategies=[strategy | {"concurrency": 3}],
    )
    rows = read_csv(directory / "slots.csv")
    assert summary["versions"] == 6 and len({row["begins_s"] for row in rows}) == len(rows) >= 12
    assert {row["kind"] for row in rows} >= {"task", "update"}
    assert all(row["edge"] in "abc" for row in rows), "copies of their own, no broadcast"
