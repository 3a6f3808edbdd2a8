"""What a run keeps of native links and devices: bytes over time, round trips, training times."""

from __future__ import annotations

import numpy as np
import pytest
from transport_rig import AHEAD_NS, MS, Rig

from edgefl.hosts.wall.coordinator.session import Answered
from edgefl.hosts.wall.coordinator.stretches import LEAST_NS, MOST_STRETCHES, stretches
from edgefl.hosts.wall.coordinator.thread_messages import Carried, CarryAll, Measured
from edgefl.protocol.messages import Arrived, Assignment, Trained
from edgefl.protocol.transfers import Outgoing
from emulator.units import NS_PER_S


# ------------------------------------------------------------------ stretches
@pytest.mark.parametrize(
    ("stamps", "found"),
    [
        # what came by the first stamp has no known beginning
        ([(0, 5), (700, 60 * MS)], [(5, 60 * MS, 700)]),
        ([(100, 0), (700, 60 * MS)], [(0, 60 * MS, 600)]),
        # 40 ms is too short for a stretch, and so is a rest of 40 ms
        (
            [(0, 0), (10, 40 * MS), (20, 100 * MS), (40, 200 * MS), (50, 240 * MS)],
            [(0, 100 * MS, 20), (100 * MS, 240 * MS, 30)],
        ),
        ([], []),
        ([(0, 5)], []),
        ([(0, 5), (10, 5)], []),  # no time passed
        ([(0, 9), (5, 4), (10, 20)], []),  # a clock that went back
        ([(5, 0), (4, 10), (10, 20)], []),  # bytes that went back
    ],
)
def test_stamps_become_stretches(
    stamps: list[tuple[int, int]], found: list[tuple[int, int, int]]
) -> None:
    assert stretches(stamps) == found


def test_a_long_transfer_has_a_limited_number_of_stretches_and_all_its_bytes() -> None:
    stamps = [(1000 * second, second * NS_PER_S) for second in range(1001)]
    found = stretches(stamps)
    assert len(found) <= MOST_STRETCHES and sum(size for *_, size in found) == 1_000_000
    assert all(end - begin >= LEAST_NS for begin, end, _ in found)


# ------------------------------------------------------------------ transfers
def test_a_native_download_is_measured_on_the_edges_clock() -> None:
    rig = Rig(rate=None)
    down = rig.carry()
    rig.until(400 * MS)
    stamps = [(0, 20 * MS), (1024, 21 * MS), (17_408, 150 * MS), (40_000, 330 * MS)]
    rig.says("a", Arrived(down.number, [[size, at + AHEAD_NS] for size, at in stamps]))
    (carried,) = rig.heard(Carried)
    assert carried.completion.transfer.number == down.number
    assert carried.stretches == [(20 * MS, 150 * MS, 17_408), (150 * MS, 330 * MS, 22_592)]


def test_a_wrong_offset_between_the_clocks_changes_no_duration() -> None:
    rig = Rig(rate=None)
    down = rig.carry()
    rig.until(100 * MS)
    rig.sessions["a"].measured(-1, AHEAD_NS - 80 * MS)  # stamps seem to be in the future
    rig.says("a", Arrived(down.number, [[0, AHEAD_NS + 50 * MS], [40_000, AHEAD_NS + 90 * MS]]))
    ((begin, end, size),) = rig.heard(Carried)[0].stretches
    assert (end - begin, size) == (40 * MS, 40_000)


def test_a_native_upload_is_measured_from_its_first_piece_to_its_last() -> None:
    rig = Rig(rate=None)
    up = rig.granted()
    rig.until(30 * MS)
    rig.upload(up, 0, 1024)
    rig.until(80 * MS)
    rig.upload(up, 1024, 40_000)
    (carried,) = rig.heard(Carried)
    transfer = carried.completion.transfer
    assert (transfer.direction, transfer.edge) == ("up", "a")
    assert carried.stretches == [(30 * MS, 80 * MS, 38_976)]


def test_an_emulated_link_is_not_measured() -> None:
    rig = Rig()
    down, up = rig.carry(), rig.granted()
    rig.answers(up, NS_PER_S)
    rig.arrived("a", down)
    rig.transport.answered(Answered("a", 5, 7))
    assert rig.heard(Measured) == [] and not rig.pacer.flows
    assert [carried.stretches for carried in rig.heard(Carried)] == [[], []]


def test_a_model_that_all_edges_know_is_not_measured() -> None:
    """It costs no emulated time and is not shaped, but its link is an emulated one."""
    rig = Rig()
    first = Outgoing(next(rig.numbers), Assignment(1, 0, {"weights": np.zeros(10_000, np.float32)}))
    rig.downlink.carry_all(CarryAll(rig.clock.ns, next(rig.numbers), [("a", first)], ()))
    rig.until(90 * MS)
    rig.says("a", Arrived(first.number, [[0, AHEAD_NS], [40_000, AHEAD_NS + 80 * MS]]))
    assert rig.heard(Carried) == [] and not rig.pacer.flows


def test_a_transfer_whose_session_broke_is_not_measured() -> None:
    """Its time has the outage, and the bytes that came before it are gone."""
    rig = Rig(rate=None)
    down = rig.carry()
    rig.until(10 * MS)
    rig.breaks("a")
    rig.joins("a", tasks=[1], held=[[down.number, 1024]])
    rig.until(500 * MS)
    rig.says("a", Arrived(down.number, [[0, AHEAD_NS], [40_000, AHEAD_NS + 400 * MS]]))
    assert rig.heard(Carried)[0].stretches == [] and not rig.pacer.flows


# ------------------------------------------------------------------ pings and training
def test_heartbeats_of_a_native_link_are_measured() -> None:
    rig = Rig(rate=None)
    rig.transport.answered(Answered("b", 5 * MS, 7 * MS))
    assert rig.heard(Measured) == [Measured("ping", "b", None, [(5 * MS, 12 * MS, 0)])]


def test_training_on_a_native_device_is_measured_and_on_an_emulated_one_not() -> None:
    emulated, native = Rig(), Rig(stamped=False)
    for rig in (emulated, native):
        rig.until(50 * MS)
        rig.says("a", Trained(1, 320, 20 * MS))
        rig.says("a", Trained(1, 320, 60 * MS))  # longer than the run: no honest edge says this
    assert emulated.heard(Measured) == []
    assert native.heard(Measured) == [Measured("training", "a", 1, [(30 * MS, 50 * MS, 320)])]
