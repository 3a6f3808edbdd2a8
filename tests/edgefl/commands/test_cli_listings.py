"""The command line's short commands: listings without heavy imports, keys, and one line for
whatever is wrong.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT


def edgefl(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    run = [
        sys.executable,
        "-c",
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from edgefl.cli import main; main()",
        str(ROOT),
    ]
    return subprocess.run([*run, *words], capture_output=True, text=True, cwd=cwd)


@pytest.mark.parametrize(
    ("command", "some"),
    [
        (
            "strategies",
            {
                "fedavg": "FedAvg: ",
                "fedprox": "FedProx: ",
                "fedasync": "FedAsync: ",
                "fedbuff": "FedBuff: ",
            },
        ),
        ("models", {"mlp": "Multi-layer perceptron: ", "lenet5": "LeNet-5: "}),
        (
            "datasets",
            {
                "digits": "UCI handwritten digits: ",
                "mnist": "MNIST: ",
                "fashion_mnist": "Fashion-MNIST: ",
            },
        ),
    ],
)
def test_listings_say_a_line_about_each(command: str, some: dict[str, str]) -> None:
    result = edgefl(command)
    assert result.returncode == 0 and result.stderr == ""
    *rows, hint = result.stdout.splitlines()
    listed = dict(row.split(maxsplit=1) for row in rows)
    assert hint.startswith("next: ") and all(
        listed[name].startswith(line) for name, line in some.items()
    )
    assert all(listed.values()) and list(listed) == sorted(listed)


def test_listings_import_nothing_heavy() -> None:
    code = """
import sys
from edgefl.commands import list as listings
listings.strategies(), listings.models(), listings.datasets()
print({'torch', 'zmq', 'sklearn', 'matplotlib'} & set(sys.modules))
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert result.stdout.splitlines()[-1] == "set()"


def test_keys_new(tmp_path: Path) -> None:
    result = edgefl("keys", "new", "mine", "--ids", "pi-1, pi-2", cwd=tmp_path)
    assert result.returncode == 0 and result.stderr == ""
    said = result.stdout.splitlines()
    assert said[0] == "mine: keys for the coordinator and 2 edges (pi-1 ... pi-2)" and said[
        -1
    ].startswith("next: edgefl coordinator CONFIG --keys mine")
    assert sorted(path.name for path in (tmp_path / "mine" / "edges").glob("*_secret")) == [
        "pi-1.key_secret",
        "pi-2.key_secret",
    ]
    assert edgefl("keys", "new", "more", "--edges", "3", cwd=tmp_path).stdout.startswith(
        "more: keys for the coordinator and 3 edges (e000 ... e002)"
    )
    assert edgefl("keys", "new", "ten", cwd=tmp_path).stdout.startswith(
        "ten: keys for the coordinator and 10 edges (e000 ... e009)"
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["strategis"], "No such command 'strategis'. Did you mean 'strategies'?"),
        (["models", "--foo"], "No such option: --foo"),
        (["keys", "new"], "Missing argument 'DIR'."),
        (["keys", "new", "x", "--edges", "0"], "Invalid value for '--edges': "),
        (
            ["keys", "new", "x", "--ids", "a,B"],
            (
                "edge id 'B': expected at most 32 of a-z, 0-9, _ and -, beginning with a letter or"
                " digit"
            ),
        ),
        (
            ["keys", "new", "x", "--ids", "a", "--edges", "2"],
            "keys new: expected --edges or --ids, found both",
        ),
    ],
)
def test_bad_input_is_one_line_and_status_2(words: list[str], line: str, tmp_path: Path) -> None:
    result = edgefl(*words, cwd=tmp_path)
    assert result.returncode == 2 and result.stdout == "" and list(tmp_path.iterdir()) == []
    assert result.stderr.startswith(f"edgefl: {line}") and result.stderr.count("\n") == 1


def test_help_without_a_command() -> None:
    result = edgefl()
    assert result.returncode == 0 and "strategies" in result.stdout
