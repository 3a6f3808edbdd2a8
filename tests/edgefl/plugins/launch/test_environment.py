"""What is decided about a Python on a host from what it tells."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from edgefl.plugins.launch.installer import (
    Facts,
    fingerprint,
    kept,
    no_room,
    refusal,
    space_needed,
)
from edgefl.plugins.launch.inventory import Host
from edgefl.plugins.launch.wheels import OwnWheel, Target, constraints

PI = Facts(
    python=(3, 11, 2),
    implementation="cpython",
    machine="aarch64",
    system="Linux",
    bits=64,
    libc=("glibc", "2.36"),
    executable="/usr/bin/python3",
    in_venv=False,
    can_make_environments=True,
)
OWN = OwnWheel(Path("edgefl.whl"), {"edgefl/cli.py": "00"})


def test_a_pi_is_accepted_and_its_wheels_are_known() -> None:
    assert refusal(PI, exists=False) is None
    assert PI.target == Target("aarch64", (3, 11), (2, 36))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"python": (3, 9, 2)},
            "/usr/bin/python3 is cpython 3.9.2, expected CPython 3.11 or newer",
        ),
        ({"implementation": "pypy"}, "/usr/bin/python3 is pypy 3.11.2, expected CPython"),
        ({"system": "Darwin"}, "the system is Darwin, expected Linux"),
        ({"machine": "armv7l", "bits": 32}, "there is no torch for armv7l with a 32-bit Python"),
        ({"machine": "aarch64", "bits": 32}, "there is no torch for aarch64 with a 32-bit Python"),
        ({"machine": "i686"}, "expected 64 bits and x86_64 or aarch64"),
        ({"can_make_environments": False}, "sudo apt install python3.11-venv"),
        ({"libc": ("", "")}, "expected a Linux with glibc, found another C library"),
    ],
)
def test_a_python_that_cannot_have_edges_is_refused_with_what_to_do(
    change: dict[str, object], reason: str
) -> None:
    assert reason in (refusal(replace(PI, **change), exists=False) or "")


def test_an_environment_that_exists_needs_no_venv_module() -> None:
    assert refusal(replace(PI, can_make_environments=False), exists=True) is None


def test_the_fingerprint_changes_with_all_that_the_environment_is_made_from() -> None:
    host, named = Host("pi"), Host("pi", python="/opt/torch/bin/python")
    torch = replace(PI, packages={"torch": "2.9.1"})
    found = [
        fingerprint(OWN, PI, host),
        fingerprint(OwnWheel(Path(), {"edgefl/cli.py": "01"}), PI, host),
        fingerprint(OWN, replace(PI, python=(3, 11, 3)), host),
        fingerprint(OWN, replace(PI, machine="x86_64"), host),
        fingerprint(OWN, replace(PI, executable="/usr/local/bin/python3"), host),
        fingerprint(OWN, torch, named),
    ]
    assert len(set(found)) == len(found)
    assert fingerprint(OWN, torch, host) == fingerprint(OWN, PI, host), "these are not used"
    assert fingerprint(OWN, replace(PI, free_bytes=9, stamp="x"), host) == fingerprint(
        OWN, PI, host
    )


def test_of_a_named_python_the_tested_versions_are_used_and_its_torch() -> None:
    pins = {"numpy": "2.4.6", "torch": "2.13.0", "rich": "15.0.0"}
    needed = {"torch": ">=2.4", "numpy": ">=1.26"}
    there = {"numpy": "2.4.6", "torch": "2.9.1+cu12", "rich": "14.0.0", "flask": "3.0"}
    below = kept(replace(PI, packages=there), pins, needed)
    assert below == {"numpy": "2.4.6", "torch": "2.9.1+cu12"}
    assert constraints(pins, below) == "numpy==2.4.6\nrich==15.0.0\ntorch==2.9.1+cu12\n"
    old = replace(PI, packages={"torch": "1.13.1"})
    assert kept(old, pins, needed) == {}, "older than edgefl needs"
    for version in ("2.5.1+x/y", "2.5.1+x\n--pre", "2.5.1+" + "x" * 300, "2.5.1+\0"):
        made_up = replace(PI, packages={"anyio": version})
        assert kept(made_up, {"anyio": "2.5.1"}, needed) == {}, "it would name a file here"


def test_the_room_that_wheels_need() -> None:
    needed = space_needed([1000, 500], [400, 100])
    assert needed == 2150
    assert no_room(replace(PI, free_bytes=needed), needed) is None
    assert no_room(replace(PI, free_bytes=2000), needed) == (
        "2.0 kB free on its disk, expected 2.1 kB"
    )


def test_only_a_probes_answer_is_accepted() -> None:
    told = {"python": [3, 9, 1], "libc": ["glibc", "2.31"], "implementation": "cpython"}
    told |= {"machine": "x86_64", "system": "Linux", "bits": 64, "executable": "p", "in_venv": True}
    assert msgspec.json.decode(json.dumps(told), type=Facts).python == (3, 9, 1)
    wrong = [b"", b"[]", b'{"python": [3], "other": 1}', json.dumps({"bits": 64}).encode()]
    changes = ({"python": [3, 10**9, 1]}, {"free_bytes": "x"}, {"packages": ["torch"]})
    wrong += [json.dumps(told | change).encode() for change in changes]
    for answer in wrong:
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(answer, type=Facts)
    # a list of all versions up to this one would fill the memory
    assert "glibc" in str(refusal(replace(PI, libc=("glibc", "2.999999999")), exists=False))
