"""Faults on real processes: the events of the virtual clock, and no strain of the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import SMALL, happened
from warm_python import Server

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.clocks.wall.launcher import Interrupted, LaunchOptions, WallRun
from edgefl.config.file import load
from edgefl.errors import UserError
from edgefl.results.read import read_events

pytestmark = pytest.mark.alone

PATIENCE = "[network]\nheartbeat_s = 0.2\nliveness_s = 1.0\n"
STORY = [
    ("kill", "e000", 1.0, 2.0),
    ("freeze", "e001", 1.5, 0.5),
    ("freeze", "e001", 3.5, 2.5),
    ("cut", "e002", 1.0, 1.5),
    ("duplicate", "e002", 3.0, None),
    ("corrupt", "e000", 5.0, None),
]


def table(kind: str, edge: str, at_s: float, for_s: float | None) -> str:
    lasts = "" if for_s is None else f"for_s = {for_s}\n"
    return f'[[faults]]\nkind = "{kind}"\nedges = ["{edge}"]\nat_s = {at_s}\n{lasts}'


AT_ONCE_S = 1.0  # a process needs a moment to start or join, which costs no emulated time


def config(folder: Path, per_process: int = 1) -> Path:
    path = folder / "faulty.toml"
    path.write_text(
        SMALL.replace("{versions = 8}", "{emulated_s = 7.5}").replace(
            "{count = 3}", f"{{count = 3, per_process = {per_process}}}"
        )
        + PATIENCE
        + "".join(table(*fault) for fault in STORY)
    )
    return path


@pytest.fixture(scope="module", params=[1, 3], ids=["a process each", "in one process"])
def pair(
    warm_python: None, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[Path, Path, dict[str, Any]]:
    """Run directories of the same faults on both clocks, and the wall run's summary."""
    folder = tmp_path_factory.mktemp("faults")
    wall = WallRun(
        load(config(folder, request.param)),
        LaunchOptions(folder / "runs", folder, force=True),
        print,
    )
    summary = wall.run(lambda *_: None)[0]
    run_virtual(learning(wall.experiment, folder), 0, folder / "virtual")
    return wall.directory(0), folder / "virtual", summary


def comings_and_goings(directory: Path, edge: str) -> list[tuple[str, float]]:
    events = read_events(directory / "events.jsonl")
    return [
        (event["event"], event["t"])
        for event in events
        if event.get("event") in ("edge_lost", "edge_joined") and event["edge"] == edge
    ]


@pytest.mark.parametrize("edge", ["e000", "e001", "e002"])
def test_edges_come_and_go_as_under_the_virtual_clock(
    pair: tuple[Path, Path, dict[str, Any]], edge: str
) -> None:
    wall, virtual = (comings_and_goings(directory, edge) for directory in pair[:2])
    assert [what for what, _ in wall] == [what for what, _ in virtual]
    assert all(abs(there - here) < AT_ONCE_S for (_, there), (_, here) in zip(wall, virtual))
    times = {"e000": 2, "e001": 1, "e002": 0}  # a damaged update also costs a session
    assert [what for what, _ in virtual] == [
        "edge_joined",
        *(["edge_lost", "edge_joined"] * times[edge]),
    ]


def test_the_faults_are_on_record_at_their_moments(pair: tuple[Path, Path, dict[str, Any]]) -> None:
    here, there = (
        [(line["kind"], line["edge"]) for line in happened(directory, fact="fault")]
        for directory in pair[:2]
    )
    assert (
        here
        == there
        == [
            ("kill", "e000"),
            ("cut", "e002"),
            ("freeze", "e001"),
            ("restart", "e000"),
            ("duplicate", "e002"),
            ("freeze", "e001"),
            ("corrupt", "e000"),
        ]
    )
    assert {line["t"] for line in happened(pair[1], fact="fault")} == {1.0, 1.5, 3.0, 3.5, 5.0}


def test_nothing_arrives_over_a_cut_link_or_from_a_frozen_edge(
    pair: tuple[Path, Path, dict[str, Any]],
) -> None:
    slack_s = 0.3  # bytes that were sent before arrive a moment later
    for directory in pair[:2]:
        for edge, begin_s, end_s in (("e002", 1.0, 2.5), ("e001", 3.5, 6.0), ("e000", 1.0, 3.0)):
            came = [line["t"] for line in happened(directory, event="update_arrived", edge=edge)]
            assert not [t for t in came if begin_s + slack_s < t < end_s] and [
                t for t in came if t > end_s
            ]


def test_what_the_config_did_is_no_strain_of_the_host(
    pair: tuple[Path, Path, dict[str, Any]],
) -> None:
    assert not [reason for reason in pair[2]["fidelity"]["reasons"] if "not heard" in reason]
    assert pair[2]["fidelity"]["ahead_of_curve"] == 0


def test_twice_is_once_and_what_came_damaged_is_sent_again(
    pair: tuple[Path, Path, dict[str, Any]],
) -> None:
    for directory in pair[:2]:
        assert [line["edge"] for line in happened(directory, fact="duplicate")] == ["e002"]
        arrived = [line["task"] for line in happened(directory, event="update_arrived")]
        assert len(arrived) == len(set(arrived))
        assert [
            line
            for line in happened(directory, event="update_arrived", edge="e000")
            if line["t"] > 5.5
        ]
    assert [line["edge"] for line in happened(pair[0], fact="wire_error")] == ["e000"]


def test_no_process_is_left(pair: tuple[Path, Path, dict[str, Any]]) -> None:
    expected = Server.present().process.pid  # this process also forks for the other tests
    assert not [
        child
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE and child.pid != expected
    ]


def test_edges_elsewhere_cannot_be_killed(tmp_path: Path) -> None:
    wall = WallRun(
        load(config(tmp_path)), LaunchOptions(tmp_path / "runs", tmp_path, fleet=False), print
    )
    with pytest.raises(
        UserError, match="kill, restart, freeze need edges that this command starts"
    ):
        wall.run(lambda *_: None)


@pytest.mark.usefixtures("warm_python")
def test_a_process_that_dies_takes_its_edges_and_no_others(tmp_path: Path) -> None:
    path, said = tmp_path / "four.toml", list[str]()
    four = SMALL.replace("{count = 3}", "{count = 4, per_process = 2}")
    path.write_text(four.replace("{versions = 8}", "{emulated_s = 60.0}") + PATIENCE)
    wall = WallRun(load(path), LaunchOptions(tmp_path / "runs", tmp_path, force=True), said.append)
    looks: list[int] = []

    def watch(index: int, directory: Path, port: int) -> str | None:
        looks.append(index)
        if len(looks) == 8:
            shared = [each for each in psutil.Process().children(recursive=True) if _has_two(each)]
            shared[0].kill()
        lost = happened(directory, event="edge_lost")
        return "interrupted" if len(lost) >= 2 or len(looks) > 200 else None

    with pytest.raises(Interrupted):
        wall.run(watch)
    (line,) = [line for line in said if "died" in line]
    assert line.startswith("the process of 2 edges (e000 to e001) died (exit status -9; see ")
    lost = happened(wall.directory(0), event="edge_lost")
    assert wall.exits == {event["edge"] for event in lost} == {"e000", "e001"}


def _has_two(process: psutil.Process) -> bool:
    return process.name().startswith("the process of")
