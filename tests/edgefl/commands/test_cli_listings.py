"""Short commands: listings without heavy imports, keys, and one line for each error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import ROOT

from edgefl import cli

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def edgefl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run `edgefl WORDS` in this process and an empty folder; return (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["edgefl", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    return run


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
def test_listings_say_a_line_about_each(
    edgefl: Command, command: str, some: dict[str, str]
) -> None:
    status, out, err = edgefl(command)
    assert (status, err) == (0, "")
    *rows, hint = out.splitlines()
    listed = dict(row.split(maxsplit=1) for row in rows)
    assert hint.startswith("next: ") and all(
        listed[name].startswith(line) for name, line in some.items()
    )
    assert all(listed.values()) and list(listed) == sorted(listed)


@pytest.mark.processes
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


def test_keys_new(edgefl: Command, tmp_path: Path) -> None:
    status, out, err = edgefl("keys", "new", "mine", "--ids", "pi-1, pi-2")
    assert (status, err) == (0, "")
    said = out.splitlines()
    assert said[0] == "mine: keys for the coordinator and 2 edges (pi-1 ... pi-2)" and said[
        -1
    ].startswith("next: edgefl coordinator CONFIG --keys mine")
    assert sorted(path.name for path in (tmp_path / "mine" / "edges").glob("*_secret")) == [
        "pi-1.key_secret",
        "pi-2.key_secret",
    ]
    assert edgefl("keys", "new", "more", "--edges", "3")[1].startswith(
        "more: keys for the coordinator and 3 edges (e000 ... e002)"
    )
    assert edgefl("keys", "new", "ten")[1].startswith(
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
            ["run", "c.toml", "--seed", "3"],
            "No such option: --seed (say seed=3: settings are KEY=VALUE)",
        ),
        (
            ["run", "--lr=0.1", "c.toml"],
            "No such option: --lr (say training.learning_rate=0.1: settings are KEY=VALUE)",
        ),
        (
            ["data", "plot", "c.toml", "--alpha"],
            "No such option: --alpha (say partition.alpha=VALUE: settings are KEY=VALUE)",
        ),
        (["run", "c.toml", "--virtual"], "No such option: --virtual (say --clock virtual)"),
        (
            ["coordinator", "c.toml", "--clock", "virtual"],
            (
                "No such option: --clock (a coordinator is always on the wall clock; use edgefl run"
                " CONFIG --clock virtual)"
            ),
        ),
        (
            ["coordinator", "c.toml", "--workers", "2"],
            "No such option: --workers (an option of: edgefl run, edgefl sweep)",
        ),
        (["run", "c.toml", "--worker", "2"], "No such option: --worker (nearest: '--workers')"),
        (["edge", "--name", "e000"], "No such option: --name (say --id NAME)"),
        (
            ["plot", "x", "--kind", "agregation"],
            "--kind agregation: no such figure (nearest: 'aggregation')",
        ),
        (
            ["run", "c.toml", "--clock", "virtul"],
            (
                "Invalid value for '--clock': expected one of wall, virtual, found 'virtul'"
                " (nearest: 'virtual')"
            ),
        ),
        (["run", "c\x1b[2J.toml"], "c\\x1b[2J.toml: no such file"),
        (["run", "--\x1b[2J"], "No such option: --\\x1b[2J"),
        (
            ["keys", "new", "x", "--ids", "a", "--edges", "2"],
            "keys new: expected --edges or --ids, found both",
        ),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    edgefl: Command, words: list[str], line: str, tmp_path: Path
) -> None:
    status, out, err = edgefl(*words)
    assert (status, out) == (2, "") and list(tmp_path.iterdir()) == []
    assert err.startswith(f"edgefl: {line}") and err.count("\n") == 1


def test_help_without_a_command(edgefl: Command) -> None:
    status, out, _ = edgefl()
    assert status == 0 and "strategies" in out
