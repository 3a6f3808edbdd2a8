"""The time left, computed by hand."""

from __future__ import annotations

from edgefl.commands.sweep import TimeLeft


def test_one_at_a_time() -> None:
    left = TimeLeft(runs=4, at_once=1, began_s=100.0)
    assert left.left_s(105.0) is None, "nothing is known before the first has ended"
    left.ended(110.0)
    assert left.left_s(110.0) == 30.0 and left.left_s(114.0) == 26.0
    left.ended(130.0)  # it took 20 s, so the mean is 15 s
    assert left.left_s(130.0) == 30.0 and left.done == 2
    assert left.left_s(150.0) == 15.0, "a run that takes longer than the mean ends soon"
    left.ended(150.0), left.ended(160.0)
    assert left.left_s(160.0) == 0.0


def test_two_at_a_time() -> None:
    left = TimeLeft(runs=5, at_once=2, began_s=0.0)
    left.ended(10.0)
    # of 10 s: the other one should end now, one has just begun, and two wait
    assert left.left_s(10.0) == (0.0 + 10.0 + 20.0) / 2
    left.ended(10.0)
    assert left.left_s(10.0) == 15.0
