"""The command line: listings without heavy imports, files to start from, statuses, bad input."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import CONFIGS, ROOT
from typer import Typer
from typer.testing import CliRunner

from edgefl import cli, exit_status
from edgefl.cli import app
from edgefl.clocks.wall.edge.membership import Membership
from edgefl.commands import lists, new, options, run
from edgefl.commands.new import NewKind
from edgefl.config import packaged
from edgefl.config.file import load
from edgefl.errors import UserError
from edgefl.protocol.messages import Refused, Unreachable
from emulator.cli import app as emulator_app

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
    ("command", "name", "begin"),
    [
        ("strategies", "fedbuff", "FedBuff: "),
        ("selections", "oort", "Oort: "),
        ("models", "lenet5", "LeNet-5: "),
        ("datasets", "fashion_mnist", "Fashion-MNIST: "),
        ("partitions", "dirichlet", "Dirichlet(alpha): "),
        ("compressions", "int8", "A quarter of the bytes: "),
    ],
)
def test_listings_say_a_line_about_each(
    edgefl: Command, command: str, name: str, begin: str
) -> None:
    status, out, err = edgefl(command)
    assert (status, err) == (0, "")
    *rows, hint = out.splitlines()
    listed = dict(row.split(maxsplit=1) for row in rows)
    assert hint.startswith("next: ") and listed[name].startswith(begin)
    assert all(listed.values()) and list(listed) == sorted(listed)


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            ["strategies", "fedasync"],
            [
                r"FedAsync: each arriving model",
                r"Source: Xie et al\. 2019, arXiv 1903\.03934\.",
                r"alpha_t = alpha s\(gap\)",
                r"file: .*/edgefl/strategies/fedasync\.py",
                r"options beside \[\[strategies\]\] strategy = \"fedasync\":",
                r"alpha = 0\.6 +number, more than 0, at most 1\. Mixing weight of a fresh",
                r"options of all strategies of its kind:",
                r"concurrency = 10 +integer or",
            ],
        ),
        (["selections", "oort"], [r"Oort", r"exploration = 0\.\d+ +number", r"next: .*=oort"]),
        (
            ["models", "mlp"],
            [
                r"Multi-layer",
                r"hidden = \[.*\] +list of integer",
                r"next: edgefl run CONFIG 'model=\{name = \"mlp\"\}'",
            ],
        ),
        (["datasets", "imdb"], [r"IMDb", r"length = 256", r"next: edgefl data get imdb"]),
        (["datasets", "mnist"], [r"MNIST", r"\[data\] name = \"mnist\" has no options"]),
        (
            ["partitions", "dirichlet"],
            [
                r"alpha = required +number, more than 0",
                r"next: .* = \"dirichlet\", alpha = \.\.\.\}'",
            ],
        ),
        (
            ["datasets", "huggingface"],
            [r"next: .*'data=\{name = \"huggingface\", path = \.\.\.\}'"],
        ),
        (["compressions", "top_k"], [r"share = 0\.01"]),
        (
            ["strategies", "mine.py:MyMean"],
            [
                r"Mean of mine",
                r"file: .*/mine\.py",
                r"weight = 2",
                r"next: .*MyMean\", share = \.\.\.",
            ],
        ),
    ],
)
def test_one_of_a_listing_is_shown_with_its_source_and_options(
    edgefl: Command, words: list[str], lines: list[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    status, out, err = edgefl(*words)
    assert (status, err) == (0, "")
    places = [re.search(f"^{line}", out, re.M) for line in lines]
    assert all(places), (lines, out)
    assert [*places] == sorted(places, key=lambda found: found.start() if found else 0)


MINE = '''"""Mean of mine."""
from edgefl.api import Rounds, RoundsOptions

class MyOptions(RoundsOptions):
    weight: int = 2
    """Its weight."""
    share: float

class MyMean(Rounds):
    Options = MyOptions
'''


@pytest.mark.slow
def test_the_keys_of_a_config_are_listed(edgefl: Command) -> None:
    out = edgefl("configs", "--keys")[1]
    assert "training.learning_rate = 0.05" in out and "micro_batch_size" not in out
    assert "tables: flower, data, " in out
    out = edgefl("configs", "--keys", "training")[1]
    basic, advanced = out.split("advanced:")
    assert "training.epochs = 1" in basic.split("basic:")[1]
    assert "training.micro_batch_size = none" in advanced
    assert "groups.count = required" in edgefl("configs", "groups", "--keys")[1]


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
        (
            ["strategies", "fedasink"],
            "unknown strategy 'fedasink' (nearest: 'fedasync'); one of your own",
        ),
        (["models", "nope.py:build"], "'nope.py:build': no file "),
        (["configs", "--keys", "trainig"], "--keys: no table 'trainig' (nearest: 'training')"),
        (["configs", "--keys", "--copy", "x"], "--keys and --copy: expected one of them"),
        (["strategis"], "No such command 'strategis'. Did you mean 'strategies'?"),
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
        (["run", "c.toml", "--virtual"], "No such option: --virtual (say --clock virtual)"),
        (
            ["coordinator", "c.toml", "--workers", "2"],
            "No such option: --workers (an option of: edgefl run, edgefl sweep)",
        ),
        (["run", "c.toml", "--worker", "2"], "No such option: --worker (nearest: '--workers')"),
        (
            ["run", "c.toml", "--clock", "virtul"],
            (
                "Invalid value for '--clock': expected one of wall, virtual, found 'virtul'"
                " (nearest: 'virtual')"
            ),
        ),
        (
            ["run", "c.toml", "--workers", "two"],
            "Invalid value for '--workers': expected a whole number, found 'two'",
        ),
        (["run", "--\x1b[2J"], "No such option: --\\x1b[2J"),
        (["--bogus"], "No such option: --bogus"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    edgefl: Command, words: list[str], line: str, tmp_path: Path
) -> None:
    status, out, err = edgefl(*words)
    assert (status, out) == (2, "") and list(tmp_path.iterdir()) == []
    told = re.sub(r"option '(\S+)'", r"option: \1", err)  # some versions of click quote it
    assert told.startswith(f"edgefl: {line}") and err.count("\n") == 1


def test_a_packaged_file_is_used_where_no_such_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = Path("configs/fedecho/cifar10_lenet.toml")
    found = options.located(asked)
    assert found == packaged.FOLDER / "fedecho" / "cifar10_lenet.toml"
    assert str(found) in capsys.readouterr().err
    assert load(found).name == "fedecho-cifar10-lenet"  # with what it extends
    for other in ("quickstart.toml", "configs/none.toml", "configs/../x.toml"):
        assert options.located(Path(other)) == Path(other)
    asked.parent.mkdir(parents=True)
    asked.write_text("name = 'mine'")
    assert options.located(asked) == asked and capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("configs/quickstrat.toml", "(nearest that comes with edgefl: 'configs/quickstart.toml')"),
        ("unheard-of", "`edgefl configs` lists those that come with edgefl"),
    ],
)
def test_a_name_that_leads_nowhere_gets_the_nearest_one(
    name: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no such file") as caught:
        load(Path(name))
    assert str(caught.value).endswith(end)


@pytest.mark.slow
def test_the_command_line_lists_copies_and_uses_them(edgefl: Command) -> None:
    *rows, hint = edgefl("configs")[1].splitlines()
    listed = dict(row.split(maxsplit=1) for row in rows)
    assert list(listed) == packaged.names() and all(listed.values()) and "edgefl run" in hint
    status, out, _ = edgefl("configs", "--copy", "mine")
    assert status == 0 and "edgefl run mine/quickstart.toml" in out
    assert load(Path("mine/quickstart.toml")).name == "quickstart"
    again = edgefl("configs", "--copy", "mine")
    assert again == (2, "", "edgefl: --copy mine: already exists, expected a new folder\n")
    status, _, err = edgefl("data", "plot", "configs/quickstart.toml")
    assert status == 0 and Path("labels.png").exists()
    assert f"using the one that comes with edgefl: {packaged.FOLDER}" in err


def test_one_of_them_is_printed_or_copied_with_what_it_extends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("quickstart", "quickstart.toml", "configs/quickstart.toml"):
        lists.configs(name)
        assert capsys.readouterr().out == (CONFIGS / "quickstart.toml").read_text()
    lists.configs("wkafl/wallclock", tmp_path)
    copied = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.toml"))
    assert copied == ["wkafl/mnist_1000_10.toml", "wkafl/wallclock.toml"]
    assert load(tmp_path / "wkafl" / "wallclock.toml").name == "wkafl-wallclock"
    with pytest.raises(UserError, match="already exists"):
        lists.configs("wkafl/wallclock", tmp_path)
    with pytest.raises(UserError, match="no packaged config 'quickstrat'.*quickstart.toml"):
        lists.configs("quickstrat")


def test_a_run_without_a_config_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="CONFIG: missing"):
        run.run()
    assert "configs/tdma/mnist.toml" in capsys.readouterr().out


def test_a_user_without_pytest_is_told_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quickstart's environment has none."""
    monkeypatch.setattr(new, "find_spec", lambda name: None)
    told = CliRunner().invoke(app, ["new", "model", "mine", "--in", str(tmp_path)])
    assert f"test it: pip install pytest && cd {tmp_path} && pytest test_mine.py" in told.output


@pytest.mark.processes
def test_the_tests_that_it_writes_pass(tmp_path: Path) -> None:
    kinds = [kind for kind in NewKind if kind is not NewKind.config]
    for kind in kinds:
        told = CliRunner().invoke(app, ["new", kind, f"my-{kind}", "--in", str(tmp_path)])
        assert told.exit_code == 0 and f"pytest test_my_{kind}.py" in told.output
        assert told.output.splitlines()[-1].startswith("next: cd ")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0 and "8 passed" in run.stdout, run.stdout + run.stderr


def test_a_new_config_and_project_can_be_run(tmp_path: Path) -> None:
    new.new(NewKind.config, "mine.toml", tmp_path)
    assert load(tmp_path / "mine.toml").name == "mine"
    new.new(NewKind.project, "my-study", tmp_path)
    project = tmp_path / "my_study"
    assert sorted(path.name for path in project.iterdir()) == [
        ".gitignore",
        "README.md",
        "experiment.schema.json",
        "experiment.toml",
        "my_study.py",
        "test_my_study.py",
    ]
    found = load(project / "experiment.toml")
    assert found.name == "my_study"
    assert found.strategies[-1].strategy == "my_study.py:MyStudy"
    assert "experiment.toml" in (project / "test_my_study.py").read_text()
    for path in (*project.glob("*.py"), project / "README.md", project / "experiment.toml"):
        assert "NAME" not in path.read_text() and "CLASS" not in path.read_text()
    with pytest.raises(UserError, match="my_study/experiment.toml: already exists"):
        new.new(NewKind.project, "my_study", tmp_path)


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("precious")
    with pytest.raises(UserError, match="test_mine.py: already exists"):
        new.new(NewKind.model, "mine", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["test_mine.py"]


@pytest.mark.parametrize("name", ["9lives", "My-Algo", "a b", "../up", ""])
def test_a_name_that_python_could_not_import_is_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"name {name!r}: expected lower-case letters"):
        new.new(NewKind.data, name, tmp_path)


@pytest.mark.parametrize("name", ["lambda", "random", "queue.py"])
def test_a_name_of_python_is_not_written_over_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"name '{name}': Python has a .* of its own"):
        new.new(NewKind.data, name, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("program", "name", "begun", "whole"),
    [(app, "edgefl", "strat", "strategies"), (emulator_app, "emulator", "cali", "calibrate")],
)
def test_the_shell_can_complete_a_command(
    program: Typer, name: str, begun: str, whole: str
) -> None:
    asked = {
        f"_{name.upper()}_COMPLETE": "complete_bash",
        "COMP_WORDS": f"{name} {begun}",
        "COMP_CWORD": "1",
    }
    told = CliRunner().invoke(program, [], prog_name=name, env=asked)
    assert told.output.split() == [whole]


# Each of these takes longer to import than Typer and rich together.
HEAVY = {"numpy", "orjson", "psutil", "pydantic", "matplotlib", "sklearn", "torch", "zmq"}
IMPORTED = """
import sys
from edgefl import cli
sys.argv = ["edgefl", *{words}]
try:
    cli.main()
except SystemExit as ended:
    assert not ended.code, ended.code
print(*sys.modules)
"""


def imported(*words: str, **environment: str) -> set[str]:
    """The modules that a process of ``edgefl WORDS`` has imported."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED.format(words=words)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment or None,
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.processes
def test_help_imports_no_command_and_nothing_heavy() -> None:
    modules = imported("--help")
    assert modules & HEAVY == set()
    ours = {name for name in modules if name.startswith(("edgefl.commands.", "emulator."))}
    assert ours == {"emulator.errors"} and not any(name.endswith("command") for name in modules)


@pytest.mark.processes
def test_a_listing_imports_no_other_command() -> None:
    modules = imported("models")
    assert "edgefl.commands.lists" in modules and modules & (HEAVY - {"pydantic"}) == set()
    assert not modules & {"edgefl.commands.run", "edgefl.config.experiment"}
    assert not imported("strategies") & {"torch", "zmq", "sklearn", "matplotlib"}


WORDS = ["edgefl", "edge", "--connect", "tcp://127.0.0.1:1", "--id", "e000"]


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        (None, exit_status.OVER, ""),
        (KeyboardInterrupt(), exit_status.OVER, ""),
        (Unreachable("no answer for 60 s"), exit_status.NO_ANSWER, "e000: no answer for 60 s"),
        (Refused("other keys"), exit_status.REFUSED, "e000: other keys"),
        (UserError("no file x"), exit_status.BAD_INPUT, "no file x"),
    ],
)
def test_each_end_of_an_edge_has_its_status(
    end: BaseException | None,
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def one_run(member: Membership) -> None:
        if end is not None:
            raise end

    monkeypatch.setattr(Membership, "one_run", one_run)
    monkeypatch.setattr("sys.argv", WORDS)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == status
    assert capsys.readouterr().err == (f"edgefl: {said}\n" if said else "")


def test_the_reference_lists_each_status() -> None:
    page = (ROOT / "docs" / "reference" / "exit-status.md").read_text()
    listed = [int(number) for number in re.findall(r"^\| (\d+) \|", page, re.M)]
    assert listed == sorted(value for value in vars(exit_status).values() if type(value) is int)
