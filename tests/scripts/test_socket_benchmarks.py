"""The benchmarks that use real sockets and real time, in their smallest form.

No test asserts a speed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import ssh_hosts
from smallest import SOCKETS, assert_rows

from emulator import BadValue, Lab

pytestmark = [pytest.mark.alone, pytest.mark.usefixtures("warm_python")]


def why_no_lab() -> str:
    """The reason why this host cannot make a lab; '' if it can."""
    topology = {
        "hosts": [{"name": "a"}, {"name": "b"}],
        "links": [{"from": "a", "to": "b", "rate": "8mbit", "latency": "5ms"}],
    }
    try:
        with Lab(topology, name="trial"):
            return ""
    except BadValue as error:
        return str(error)


# Those that need root, network namespaces or programs -> the reason why they cannot run here.
NEEDS = {"profile_circle.py": why_no_lab, "broken_hosts.py": ssh_hosts.refusal}


@pytest.mark.parametrize("name", sorted(SOCKETS))
def test_a_benchmark_leaves_its_rows(name: str, tmp_path: Path) -> None:
    if name in NEEDS and (why := NEEDS[name]()):
        pytest.skip(why)
    assert_rows(name, tmp_path)
