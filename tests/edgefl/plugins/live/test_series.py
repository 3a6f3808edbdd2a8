"""Growing series, the use of links over time, and slices in bounded memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tomli_w

from edgefl.plugins.live import series as module
from edgefl.plugins.live.feeds import capacity_of
from edgefl.plugins.live.series import Slices
from edgefl.results.read import MISSING, Texts
from edgefl.results.timeline import SLICES

MBIT = 1_000_000


def run_with(folder: Path, **config: object) -> Path:
    whole = {"name": "x", "strategies": [{"strategy": "fedavg"}], "stop": {"versions": 1}, **config}
    (folder / "config.toml").write_text(tomli_w.dumps(whole))
    return folder


FOUR = {"edges": {"count": 4}, "links": {"up_mbit_s": 1.0, "down_mbit_s": 5.0}}


@pytest.mark.parametrize(
    ("medium", "up", "down"),
    [
        ({"kind": "bottleneck", "up_mbit_s": 3.0}, 3, 20),
        ({"kind": "tdma", "slot_ms": 10.0, "rate_mbit_s": 6.0}, 6, 6),
    ],
    ids=["bottleneck", "tdma"],
)
def test_the_capacity_of_a_medium(
    tmp_path: Path, medium: dict[str, object], up: int, down: int
) -> None:
    base = FOUR if medium["kind"] != "tdma" else {"edges": {"count": 4}}
    at = capacity_of(run_with(tmp_path, **base, medium=medium))
    assert (at("up", 1.0), at("down", 1.0)) == (up * MBIT, down * MBIT)


def test_a_trace_and_a_fault_show_in_the_capacity(tmp_path: Path) -> None:
    (tmp_path / "up.csv").write_text("seconds,bit_s\n0,1000000\n10,3000000\n20,1000000\n")
    run = run_with(
        tmp_path,
        edges={"names": ["a", "b"]},
        links={"trace_up": "up.csv", "down_mbit_s": 5.0},
        faults=[{"kind": "cut", "edges": ["a"], "at_s": 30.0, "for_s": 5.0}],
        run={"base": str(tmp_path)},
    )
    at = capacity_of(run)
    assert at("up", 1.0) == 2 * MBIT and at("up", 11.0) == 6 * MBIT
    assert at("down", 1.0) == 10 * MBIT and at("down", 32.0) == 5 * MBIT


@pytest.mark.parametrize(
    "text",
    ["name = ", '[links]\ntrace_up = "gone.csv"\n'],
    ids=["torn", "no trace"],
)
def test_a_config_that_cannot_be_read_has_no_capacity(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    assert capacity_of(tmp_path)("up", 0.0) is None


TEXTS = Texts()


def ended(begin_s: float, end_s: float, edge: int = 0, kind: str = "training") -> list[object]:
    return [edge, 0, kind, begin_s, end_s, 7, None]


def columns(one: list[object]) -> np.ndarray:
    edge, lane, kind, begin_s, end_s, task, _ = one
    row = (edge, lane, TEXTS.number(str(kind)), begin_s, end_s, task, MISSING)
    return np.array([row], SLICES)


def test_too_many_new_slices_are_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GAP", 3)
    monkeypatch.setattr(module, "MOST_SENT", 2)
    slices = Slices(TEXTS)
    for second in range(4):
        slices.extend(columns(ended(second, second + 1)))
    assert slices.since(0) is None and slices.since(1) is not None
    assert slices.newest() == ([ended(2, 3), ended(3, 4)], 2.0)


def test_a_window_has_the_slices_that_touch_it() -> None:
    slices = Slices(TEXTS)
    for second in range(10):
        slices.extend(columns(ended(second, second + 1)))
    found = slices.window(2.5, 4.0, 100)
    assert found == {"exact": True, "slices": [ended(2, 3), ended(3, 4), ended(4, 5)]}


def test_a_window_that_is_too_full_has_shares_of_time() -> None:
    slices = Slices(TEXTS)
    for second in range(10):  # busy half of the time
        slices.extend(columns(ended(second, second + 0.5)))
    found = slices.window(0.0, 10.0, 3)
    assert not found["exact"] and found["bin_s"] == 0.25 and found["first_s"] == 0.0
    ((edge, lane, kind, shares),) = found["bins"]
    assert (edge, lane, kind) == (0, 0, "training")
    assert shares[:8] == [1, 1, 0, 0, 1, 1, 0, 0]
