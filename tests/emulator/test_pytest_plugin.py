"""The fixtures ``proxy`` and ``lab`` in other people's tests, and that they cost them nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from paths import EXAMPLES, ROOT

from emulator import Lab, running_proxy

# pytester unloads what its tests load, but numpy cannot be loaded twice: these load it before
LOADED = Lab, running_proxy

pytest_plugins = "pytester"
pytestmark = [pytest.mark.processes, pytest.mark.alone]
# Without an entry point (an installation that is older than the checkout) it is named.
KNOWN = any(each.name == "emulator" for each in entry_points(group="pytest11"))
PLUGIN = [] if KNOWN else ["-p", "emulator.pytest_plugin"]

MINE = f"only-{os.getpid()}"
PAIR = f"""
def test_pair(lab):
    net = lab({{"hosts": [{{"name": "{MINE}"}}, {{"name": "b"}}],
               "links": [{{"from": "{MINE}", "to": "b"}}]}})
    done = net.host("{MINE}").run(["getent", "hosts", "b"], capture_output=True, text=True)
    assert done.stdout.split() == [net.host("b").address, "b"]
"""


@pytest.fixture
def tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return pytester


def ran(tests: pytest.Pytester, *words: str) -> pytest.RunResult:
    return tests.runpytest_inprocess(*PLUGIN, "-p", "no:cacheprovider", "-rs", *words)


def test_loading_it_loads_nothing_else() -> None:
    script = (
        "import sys, pytest; before = set(sys.modules); import emulator.pytest_plugin;"
        " print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["emulator", "emulator.pytest_plugin"]


def test_a_link_in_front_of_a_service(tests: pytest.Pytester) -> None:
    tests.makepyfile((EXAMPLES / "test_my_service.py").read_text())
    ran(tests).assert_outcomes(passed=1)


def lab_is_possible(tests: pytest.Pytester) -> bool:
    """Whether this machine makes the lab; if not, the test has been skipped with a reason."""
    tests.makepyfile(PAIR)
    result = ran(tests)
    if result.parseoutcomes() == {"passed": 1}:
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True)
        assert MINE not in listed.stdout
        return True
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED * needs *"])
    return False


def test_a_cluster_of_programs(tests: pytest.Pytester) -> None:
    possible = lab_is_possible(tests)
    tests.makepyfile((EXAMPLES / "test_my_cluster.py").read_text())
    ran(tests, "-k", "client").assert_outcomes(**{"passed" if possible else "skipped": 1})


def test_without_root_a_lab_is_skipped_with_the_reason_or_fails_on_request(
    tests: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    tests.makepyfile(PAIR)
    result = ran(tests)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED *emulator lab needs *"])
    ran(tests, "--require-lab").assert_outcomes(failed=1)
