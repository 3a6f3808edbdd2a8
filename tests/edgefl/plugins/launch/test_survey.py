"""What is known about a host, and the reasons why it cannot do its part."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from edgefl import __version__
from edgefl.plugins.launch.connections import (
    NO_ENV,
    Done,
    HostConnection,
    HostError,
    RemoteProcess,
)
from edgefl.plugins.launch.installer import MachineFacts
from edgefl.plugins.launch.inventory import CoordinatorPlace, Host, load_inventory
from edgefl.plugins.launch.launch_plan import load_placed
from edgefl.plugins.launch.survey import (
    EDGE_BYTES,
    ClockOffset,
    Demand,
    Goodput,
    ProbeChannel,
    Survey,
    Surveyor,
    clock_of,
    demand,
    problems,
    pythons,
)

HOST = Host("pi", edges=("pi-1", "pi-2"))
GOOD = MachineFacts(
    system="Linux",
    name="Debian GNU/Linux 12 (bookworm)",
    board="Raspberry Pi 4 Model B Rev 1.4",
    machine="aarch64",
    bits=64,
    libc="glibc",
    cores=4,
    memory_bytes=4_000_000_000,
    available_bytes=3_000_000_000,
    free_bytes=20_000_000_000,
    python=(3, 11, 2),
    implementation="cpython",
    executable="/usr/bin/python3",
    edgefl=__version__,
    torch="2.9.1",
    has_data=False,
)
NEEDS = Demand(2 * EDGE_BYTES, 20e6, 40e6, own_data=False, code=())


def test_the_clocks_of_two_machines() -> None:
    # theirs is 1000 ahead; the way there takes 30, 50 or 80, the way back 10 or 20, the work 5
    pings = [
        (0, 1080, 1085, 105),
        (200, 1230, 1235, 245),  # the fastest: 40 on the way
        (300, 1350, 1355, 375),
    ]
    # (1030 + 990) / 2; half of 40; the middle one of 100, 40 and 70
    assert clock_of(pings) == ClockOffset(offset_ns=1010, uncertainty_ns=20, rtt_ns=70)


def test_a_good_host_has_no_problem() -> None:
    survey = Survey("pi", True, GOOD, goodput=Goodput("tcp", 20e6, 40e6))
    assert problems(HOST, survey, NEEDS) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"python": (3, 9, 2)},
            "/usr/bin/python3 is cpython 3.9.2, expected CPython 3.11 or newer: name one with"
            " `python`",
        ),
        (
            {"machine": "armv7l", "bits": 32, "torch": "", "edgefl": ""},
            "there is no torch for armv7l with a 32-bit Python",
        ),
        ({"torch": "", "edgefl": ""}, "no edgefl: `edgefl hosts install`"),
        ({"torch": ""}, "no torch: `edgefl hosts install`"),
        ({"free_bytes": 50_000_000}, "50.0 MB free on its disk, expected 100.0 MB"),
        (
            {"available_bytes": 500_000_000},
            "500.0 MB of memory free, 2 edges need about 700.0 MB",
        ),
    ],
)
def test_what_a_machine_lacks(change: dict[str, object], reason: str) -> None:
    survey = Survey("pi", True, structs.replace(GOOD, **change))
    found = problems(HOST, survey, NEEDS)
    assert len(found) == 1 and found[0].startswith(reason)


def test_a_new_environment_needs_room() -> None:
    survey = Survey("pi", True, structs.replace(GOOD, torch="", edgefl="", free_bytes=10**9))
    assert problems(HOST, survey, None) == [
        "no edgefl: `edgefl hosts install`",
        "1.0 GB free on its disk, expected 1.5 GB",
    ]


def test_what_an_experiment_needs_and_the_host_lacks() -> None:
    survey = Survey("pi", True, GOOD, goodput=Goodput("tcp", 19e6, 50e6))
    needs = replace(NEEDS, own_data=True, code=("my_algo.py:MyAlgo",))
    assert problems(HOST, survey, needs) == [
        'data.source = "local" needs a data set there: name it with `data`',
        "the config needs my_algo.py:MyAlgo, and allow_code is not set",
        "19 Mbit/s up, its emulated links need 20",
    ]
    allowed = replace(HOST, allow_code=True, data="~/data")
    assert problems(allowed, survey, needs)[0] == "no directory ~/data"


def test_a_named_python_that_is_missing() -> None:
    host = replace(HOST, python="~/fl/bin/python")
    assert pythons(host) == ["~/.edgefl/venv/bin/python", "~/fl/bin/python", "python3"]
    assert problems(host, Survey("pi", True, GOOD), None, candidate=2) == [
        "no Python ~/fl/bin/python"
    ]
    assert problems(host, Survey("pi", True, GOOD), None, candidate=1) == []
    assert pythons(HOST) == ["~/.edgefl/venv/bin/python", "python3"]


def test_the_demand_of_a_host_is_that_of_its_edges(tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text(
        '[[hosts]]\nhost = "a"\nedges = 3\n[[hosts]]\nhost = "b"\nlinks = "dsl"\n'
        '[[hosts]]\nhost = "c"\nlinks = "native"\n'
    )
    (tmp_path / "config.toml").write_text(
        "speed = 0.5\n[links]\nup_mbit_s = 2.0\n[stop]\nversions = 1\n"
        '[[strategies]]\nstrategy = "fedasync"\n'
    )
    inventory = load_inventory(tmp_path / "hosts.toml")
    placed = load_placed(inventory, tmp_path / "config.toml")
    first, second, third = (demand(host, placed, 1_000_000) for host in inventory.hosts)
    # 3 edges x 2 (10: the default) Mbit/s x half the speed; 4 vectors of 4 MB each
    assert (first.up_bit_s, first.down_bit_s) == (3e6, 15e6)
    assert first.memory_bytes == 3 * (EDGE_BYTES + 16_000_000)
    assert (second.up_bit_s, second.down_bit_s) != (0, 0)
    assert (third.up_bit_s, third.down_bit_s) == (0, 0)


@pytest.mark.parametrize(
    "answer",
    [
        *(b"7", b'{"x": "\xff"}', b'{"came_ns": 1e400, "goes_ns": 1}'),
    ],
)
def test_a_probe_that_answers_nonsense_is_an_error_of_its_host(answer: bytes) -> None:
    async def read(most: int) -> bytes:
        return answer + b"\n"

    async def write(data: bytes) -> None:
        return None

    with pytest.raises(HostError, match="^pi: expected an answer of the probe"):
        asyncio.run(ProbeChannel("pi", read, write).clock())


class LyingShell(HostConnection):
    """A host that says this of which Python it has, and starts none."""

    def __init__(self, out: bytes) -> None:
        super().__init__(HOST, None)
        self.out = out

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] = NO_ENV,
        timeout_s: float = 30.0,
    ) -> Done:
        return Done(0, self.out, b"")

    async def start(self, argv: Sequence[str], *, env: Mapping[str, str] = NO_ENV) -> RemoteProcess:
        raise HostError("pi", "no process")

    async def close(self) -> None:
        return None


@pytest.mark.parametrize(
    ("out", "problem"),
    [
        (b"   1\n", "no process"),
        (b"9" * 5000, "no process"),
        (b"\xff", "\ufffd"),
        (b"", "exit status 0"),
    ],
)
def test_whatever_a_shell_answers_is_a_problem_of_its_host(out: bytes, problem: str) -> None:
    place = CoordinatorPlace(Host("coordinator", via="local"), None, 0)
    (survey,) = asyncio.run(Surveyor(place, {}).run({"pi": LyingShell(out)}))
    assert survey.problems == [problem]
