"""Rates by hand: bits over time, and the capacities of links."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli_w

from edgefl.live.feeds import capacity_of, unknown
from edgefl.live.series import MOST_BINS, LinkBins, LinkLag
from edgefl.results.columns import TableColumns

MBIT = 1_000_000


def transfer(
    begin_s: float, end_s: float, size: int, way: str = "up", due_s: float | None = None
) -> dict[str, str]:
    return {
        "edge": "e0",
        "direction": way,
        "bytes": str(size),
        "offered_s": f"{begin_s:.9f}",
        "scheduled_s": f"{end_s if due_s is None else due_s:.9f}",
        "finished_s": f"{end_s:.9f}",
    }


def test_a_transfer_counts_evenly_over_its_time() -> None:
    use = LinkBins(unknown)
    use.take(
        TableColumns.of([transfer(0.05, 0.25, 100), transfer(0.31, 0.31, 10, "down")])
    )  # 800 bit in 0.2 s
    found = use.whole(0.35)
    assert found["bin_s"] == 0.1 and found["from_s"] == 0.0
    assert found["up"] == [2000, 4000, 2000, 0]  # 200, 400 and 200 bit in 0.1 s each
    assert found["down"] == [0, 0, 0, 800]
    assert found["up_capacity"] == [None] * 4
    assert use.bytes == {"up": 100, "down": 10}


def test_bins_become_wider_and_keep_all_bits() -> None:
    use = LinkBins(lambda way, at_s: 7.0 if at_s < 100 else 9.0)
    for second in range(1000):
        use.take(TableColumns.of([transfer(second, second + 1, 125)]))  # 1000 bit/s
    found = use.whole(999.9)
    assert found["bin_s"] == 3.2 and len(found["up"]) <= MOST_BINS  # 0.1 s, doubled 5 times
    assert sum(found["up"]) * found["bin_s"] == pytest.approx(1_000_000, rel=1e-3)
    assert set(found["up"][:-1]) == {1000}
    assert found["down"] == [0] * len(found["up"])
    assert set(found["up_capacity"][:31]) == {7} and set(found["up_capacity"][32:]) == {9}


def test_rows_that_are_no_transfers_are_left_out() -> None:
    use = LinkBins(unknown)
    for strange in (transfer(0, 1, 1) | {"direction": "*"}, transfer(0, 1, 1) | {"bytes": ""}):
        use.take(TableColumns.of([strange]))
    use.take(TableColumns.of([{"edge": "e0"}]))
    assert use.changed == 0


def test_how_late_transfers_are() -> None:
    lag = LinkLag()
    assert lag.quantiles_ms() is None
    lag.take(TableColumns.of([transfer(0, 1.002, 1, due_s=1.0) for _ in range(98)]))
    lag.take(
        TableColumns.of([transfer(0, 1.1, 1, due_s=1.0), transfer(0, 0.9, 1, due_s=1.0)])
    )  # 100 ms; not late
    found = lag.quantiles_ms()
    assert found is not None
    assert found["p50"] == pytest.approx(2, rel=0.01) and found["p99"] == pytest.approx(2, rel=0.01)
    assert found["max"] == 100.0


def run_with(folder: Path, **config: object) -> Path:
    whole = {"name": "x", "strategies": [{"strategy": "fedavg"}], "stop": {"versions": 1}, **config}
    (folder / "config.toml").write_text(tomli_w.dumps(whole))
    return folder


FOUR = {"edges": {"count": 4}, "links": {"up_mbit_s": 1.0, "down_mbit_s": 5.0}}


def test_the_capacity_of_links_of_their_own(tmp_path: Path) -> None:
    at = capacity_of(run_with(tmp_path, **FOUR, run={"clock": "wall"}))
    assert at("up", 0.0) == 4 * MBIT and at("down", 100.0) == 20 * MBIT


@pytest.mark.parametrize(
    ("medium", "up", "down"),
    [
        ({"kind": "bottleneck", "up_mbit_s": 3.0}, 3, 20),
        ({"kind": "cell", "up_mbit_s": 30.0, "down_mbit_s": 2.0}, 4, 2),
        ({"kind": "tdma", "slot_ms": 10.0, "rate_mbit_s": 6.0}, 6, 6),
    ],
    ids=["bottleneck", "cell", "tdma"],
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
    ["", "name = ", "[links]\nkind = 3\n", '[links]\ntrace_up = "gone.csv"\n'],
    ids=["empty", "torn", "older", "no trace"],
)
def test_a_config_that_cannot_be_read_has_no_capacity(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    assert capacity_of(tmp_path)("up", 0.0) is None


def test_native_links_have_no_capacity(tmp_path: Path) -> None:
    at = capacity_of(run_with(tmp_path, edges={"count": 2}, links={"kind": "native"}))
    assert at("up", 0.0) is None
