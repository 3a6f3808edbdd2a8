"""The joules of a run from its rows, written by hand, as after kill -9."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded import record

from edgefl.config.scores import ACCURACY
from edgefl.errors import UserError
from edgefl.record.files import ENERGY
from edgefl.results import energy
from edgefl.results.compare import load

ROWS = """edge,state,began_s,ended_s,joules,watts
a,idle,0.000000000,,,2.0
b,idle,1.000000000,,,3.0
a,compute,1.000000000,3.000000000,8.0,
a,send,3.000000000,4.000000000,1.0,
b,receive,2.000000000,2.000000000,0.5,
a,measured,0.000000000,4.000000000,99.0,
b,compute,2.000000000,4.00"""  # a torn last line, as after kill -9


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was killed, whose latest evaluation was at 8 s."""
    record(tmp_path / "slow")
    (tmp_path / "slow" / "summary.json").unlink(missing_ok=True)
    (tmp_path / "slow" / ENERGY).write_text(ROWS)
    return tmp_path / "slow"


def test_the_joules_of_a_run_that_was_killed(run: Path) -> None:
    found = energy.joules(run)
    assert found is not None
    assert {
        edge: {key: value for key, value in each.items() if value} for edge, each in found.items()
    } == {
        "a": {"joules": 2.0 * 8 + 9, "idle_j": 16.0, "compute_j": 8.0, "send_j": 1.0},
        "b": {"joules": 3.0 * 7 + 0.5, "idle_j": 21.0, "receive_j": 0.5},
    }
    assert energy.whole_joules(run) == 25.0 + 21.5


def test_a_row_without_its_joules_is_damage_and_not_nothing(run: Path) -> None:
    (run / ENERGY).write_text(ROWS.replace("3.000000000,8.0,", "3.000000000,,"))
    with pytest.raises(UserError, match="slow: is damaged"):
        load(run)


def test_the_curve_is_exact_at_every_moment(run: Path) -> None:
    assert energy.joules_at(run, [0, 1, 2, 3, 4, 8, 99]) == pytest.approx(
        [0.0, 2.0, 2.0 + 9.0 + 0.5, 11.5 + 9.0, 20.5 + 6.0, 26.5 + 20.0, 46.5]
    )


def test_joules_that_are_used_all_at_once_are_not_spread_over_the_time_before(run: Path) -> None:
    assert energy.joules_at(run, [1.5, 1.999, 2.5]) == pytest.approx(
        [2.0 + 4.5, 2.0 + 9 * 0.999, 11.5 + 4.5]
    )


def test_the_joules_to_the_target_are_of_the_model_that_reaches_it() -> None:
    """Two models at one moment, the second of which has the target."""
    points = (("1.0", "0.5", "10.0"), ("2.0", "0.7", "20.0"), ("2.0", "0.8", "21.0"))
    rows = [dict(zip(("emulated_s", "accuracy", "joules"), point)) for point in points]
    assert energy.joules_to_target(rows, 0.8, ACCURACY) == 21.0
    assert energy.joules_to_target(rows, 0.9, ACCURACY) is None
    assert energy.joules_to_target(rows, None, ACCURACY) is None


def test_parts_that_were_deleted_leave_no_curve(run: Path) -> None:
    (run / "energy-000002.csv").write_text(ROWS.splitlines()[0] + "\n")
    assert energy.joules_at(run, [1.0]) is None


def test_a_run_without_a_model_of_its_energy_has_no_joules(tmp_path: Path) -> None:
    record(tmp_path / "slow")
    run = tmp_path / "slow"
    nothing = energy.joules(run), energy.whole_joules(run), energy.joules_at(run, [1.0])
    assert nothing == (None, None, None)
