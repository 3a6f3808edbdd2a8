"""TDMA rounds: the numbers of the paper, closed forms against the simulation, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.cli import run
from emulator.errors import BadValue
from emulator.figures import bars
from emulator.tdma.closed_form import Round, Tdma, simulate


def rounds(tdma: Tdma, count: int, **how: object) -> list[Round]:
    return list(islice(simulate(tdma, **how), count))


# The numbers of the paper.


@pytest.mark.parametrize(("per_round", "models"), [(1, 49999), (5, 16667), (20, 4001)])
def test_table_1(per_round: int, models: int) -> None:
    """Table I, CIFAR-10: N = 20, tau_comp = 4, T = 100,000 slots."""
    assert Tdma(20, per_round, 1, 4).models_by(100_000) == models


@pytest.mark.parametrize(
    ("devices", "per_round", "slots", "compute", "d_star", "alpha"),
    [
        (100, 1, 1, 50, 25, 74),
        (100, 1, 5, 50, 5, 94),
        (100, 1, 25, 50, 1, 98),  # proposition 1, section VI
        (100, 5, 1, 50, 9, 10),
        (100, 100, 1, 50, None, 0),  # MNIST
        (20, 1, 1, 4, 2, 17),
        (20, 10, 1, 4, 1, 0),
        (20, 20, 1, 4, None, 0),  # CIFAR-10
    ],
)
def test_intentional_delay(
    devices: int, per_round: int, slots: int, compute: int, d_star: int | None, alpha: int
) -> None:
    """Eqs. 32 and 33."""
    tdma = Tdma(devices, per_round, slots, compute)
    assert (tdma.d_star, tdma.auto_delay) == (d_star, alpha)
    delayed = Tdma(devices, per_round, slots, compute, alpha)
    assert delayed.settled_staleness() == (d_star if d_star is not None else tdma.groups - 1,)
    assert delayed.models_by(20_000) == tdma.models_by(20_000)


def test_staleness_is_mixed_if_s_does_not_divide_n() -> None:
    tdma = Tdma(7, 2, 1, 4)
    assert tdma.settled_staleness() == (2, 3)
    assert [tdma.staleness(k) for k in range(6)] == [(0,), (1,), (2,), (2, 3), (2, 3), (2, 3)]
    with pytest.raises(ValueError, match="closed form"):
        tdma.end_slot(0)


# Closed forms against the simulation.

evens = st.tuples(st.integers(1, 6), st.integers(1, 8), st.integers(1, 4), st.integers(0, 80)).map(
    lambda t: Tdma(t[0] * t[1], t[0], t[2], t[3])
)
anything = (
    st.tuples(st.integers(1, 14), st.integers(1, 14), st.integers(1, 3), st.integers(0, 60))
    .filter(lambda t: t[1] <= t[0])
    .map(lambda t: Tdma(*t))
)


@settings(deadline=None)
@given(evens, st.data())
def test_closed_forms_are_what_the_channel_does(tdma: Tdma, data: st.DataObject) -> None:
    tdma = replace(tdma, delay=data.draw(st.integers(0, tdma.groups - 1)))
    played = rounds(tdma, 4 * tdma.groups + 3)
    assert [done.end_slot for done in played] == [tdma.end_slot(k) for k in range(len(played))]
    assert all(
        set(done.staleness) == {min(done.number, tdma.groups - 1 - tdma.delay)} for done in played
    )
    assert played[-1].end_slot - played[-1 - tdma.turns].end_slot == pytest.approx(
        tdma.turns * tdma.mean_slots_per_round()
    )


@settings(deadline=None)
@given(evens)
def test_the_auto_delay_is_the_longest_without_extra_slots(tdma: Tdma) -> None:
    count = 4 * tdma.groups + 3
    plain, delayed = rounds(tdma, count), rounds(replace(tdma, delay=tdma.auto_delay), count)
    assert [done.end_slot for done in delayed] == [done.end_slot for done in plain]
    unavoidable = tdma.groups - 1 if tdma.d_star is None else tdma.d_star
    assert all(set(done.staleness) == {min(done.number, unavoidable)} for done in delayed)
    if tdma.auto_delay + 1 < tdma.groups:
        longer = rounds(replace(tdma, delay=tdma.auto_delay + 1), count)
        assert longer[-1].end_slot > plain[-1].end_slot or tdma.compute_slots == 0


@settings(deadline=None)
@given(
    anything,
    st.booleans(),
    st.sampled_from(["finished", "oldest"]),
    st.lists(st.integers(0, 30), min_size=14, max_size=14),
)
def test_nobody_ever_does_two_things_at_once(
    tdma: Tdma, wait: bool, order: str, takes: list[int]
) -> None:
    played = rounds(
        tdma,
        3 * tdma.groups + 5,
        wait_for_group=wait,
        order=order,
        compute_slots=takes[: tdma.devices],
    )
    slot = 0
    for done in played:
        for upload in done.uploads:  # one after the other on the channel, each after its computing
            assert (
                upload.slot >= max(slot, upload.finished_slot)
                and upload.finished_slot - upload.began_slot == takes[upload.device]
            )
            slot = upload.slot + tdma.slots_per_transfer
        assert (done.broadcast_slot, done.end_slot) == (slot, slot + tdma.slots_per_transfer)
        slot = done.end_slot
    free: dict[int, int] = {}
    for device, _, begin, end in sorted(bars(played, tdma.devices), key=lambda bar: bar[2:]):
        assert begin >= free.get(device, 0)
        free[device] = max(end, begin)


@settings(deadline=None, max_examples=30)
@given(anything)
@pytest.mark.slow
def test_long_run_values_of_any_channel(tdma: Tdma) -> None:
    for one in (tdma, replace(tdma, delay=tdma.auto_delay)):
        late = rounds(one, 600)[200:]
        assert one.settled_staleness() == tuple(
            sorted({value for done in late for value in done.staleness})
        )
        slots = late[-1].end_slot - late[0].end_slot
        assert abs(slots - 399 * one.mean_slots_per_round()) <= tdma.devices * (
            tdma.compute_slots + tdma.comm_slots
        )


def test_a_delay_that_leaves_nobody_to_send_is_said_so() -> None:
    with pytest.raises(BadValue, match="delay 3: in round 3 fewer than S = 2 devices"):
        rounds(Tdma(7, 2, 1, 1, 3), 5)
    with pytest.raises(BadValue, match="expected one for each of 3"):
        simulate(Tdma(3, 1, 1, 1), compute_slots=[1, 2])
    with pytest.raises(BadValue, match="too many uploads to simulate"):
        Tdma(7, 2, 1, 4).models_by(10**9)


# The command.

EXAMPLE = ["tdma", "--N", "20", "--S", "1", "--r", "1", "--tau-comp", "4", "--T", "100000"]


def test_the_command_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    assert run([*EXAMPLE, "--json", str(file)]) == 0
    facts = json.loads(file.read_text())
    expected = {
        "models_by_T": 49_999,
        "staleness": 19,
        "alpha": 0,
        "alpha_auto": 17,
        "d_star": 2,
        "mean_slots_per_round": 2,
    }
    assert {key: facts[key] for key in expected} == expected
    out = capsys.readouterr().out
    assert (
        "49999" in out
        and out.splitlines()[-1]
        == f"Next: fresher updates in the same slots: emulator {' '.join(EXAMPLE)} --delay auto"
    )
    assert run([*EXAMPLE, "--delay", "auto", "--json", str(file)]) == 0
    facts = json.loads(file.read_text())
    assert (facts["staleness"], facts["alpha"], facts["d_star"], facts["models_by_T"]) == (
        2,
        17,
        2,
        49_999,
    )
    assert "    0  4              5              0 (0)" in capsys.readouterr().out
    assert (
        run(["tdma", "--N", "7", "--S", "2", "--tau-comp", "20", "--T", "114", "--json", str(file)])
        == 0
    )
    facts = json.loads(file.read_text())
    assert (
        facts["staleness"],
        facts["models_by_T"],
        facts["d_star"],
        facts["mean_slots_per_round"],
    ) == ([2, 3], 15, None, pytest.approx(22 / 3))
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.slow
def test_the_command_draws_the_timeline(tmp_path: Path) -> None:
    file = tmp_path / "t.svg"
    words = f"tdma --N 7 --S 2 --r 2 --tau-comp 20 --T 100 --figure {file}".split()
    assert run(words) == 0
    data = file.read_bytes()
    assert data.startswith(b"<?xml") and run(words) == 0 and file.read_bytes() == data


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            ["--delay", "often"],
            "--delay 'often': expected auto, or a number of rounds from 0 to 19",
        ),
        (["--delay", "20"], "delay 20: expected 0 to 19 rounds"),
        (["--figure", "timeline.bmp"], "ends in .png, .pdf or .svg"),
        (["--figure", "x.png", "--json", "x.png"], "another file than that of --json"),
        (
            ["--json", "nowhere/x.json"],
            "--json nowhere/x.json: expected a file in a folder that exists",
        ),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    more: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([*EXAMPLE, *more]) == 2
    out, error = capsys.readouterr()
    assert (out, error.count("\n"), list(tmp_path.iterdir())) == ("", 1, [])
    assert error.startswith("emulator: ") and words in error
