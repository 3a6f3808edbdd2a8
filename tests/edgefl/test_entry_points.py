"""Plug-ins of other packages, found by entry points; edgefl without those that come with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import EXAMPLES
from paths import ROOT

from edgefl import cli
from edgefl.config.file import from_json, load, to_json
from edgefl.entry_points import entries
from edgefl.errors import UserError

pytestmark = pytest.mark.processes

CONFIG = """
name = "ours"
[edges]
count = 2
[data]
name = "stripes"
[model]
name = "linear"
bias = false
[stop]
versions = 2
[[strategies]]
strategy = "plain-mean"
clients_per_round = 1
selection = "last-first"
"""
CORE = """
name = "core"
edges = { count = 2 }
stop = { versions = 1 }
strategies = [{ strategy = "fedasync" }]
"""
FAILS = """
[edgefl.commands]
broken = broken_package.absent:command
[edgefl.strategies]
broken = broken_package.strategy:Strategy
"""
STATUS = {  # of each command
    "check core.toml": 0,
    "run core.toml": 0,
    "run core.toml --clock virtual --overwrite": 0,
    "compare runs/core": 0,
    "plot runs/core --list": 0,
    "strategies": 0,
    "run core.toml --overwrite --live": 2,
    "launch": 2,
    "--help": 0,
}
SEVERAL = f"""
import sys
from edgefl import cli
status = {{}}
for words in {[*STATUS]}:
    sys.argv = ["edgefl", *words.split()]
    try:
        cli.main()
    except SystemExit as end:
        status[words] = end.code
print(status)
"""
Edgefl = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example package installed, and a package that cannot be imported."""
    folder, source = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("source") / "package"
    shutil.copytree(EXAMPLES / "package", source)
    words = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", folder)
    subprocess.run([sys.executable, "-m", "pip", "install", *words, source], check=True)
    (folder / "broken_package.py").write_text("import a_package_that_is_missing\n")
    facts = folder / "broken-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(FAILS)
    return folder


@pytest.fixture
def edgefl(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Edgefl]:
    """Run `edgefl WORDS` here, as with the packages of ``site``: (status, stdout, stderr)."""
    (tmp_path / "ours.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (site, ROOT))))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["edgefl", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    entries.cache_clear()
    yield run
    entries.cache_clear()


def test_another_package_adds_strategies_models_data_sets_exports_and_commands(
    edgefl: Edgefl,
) -> None:
    for clock in ("wall", "virtual"):
        status, out, err = edgefl("run", "ours.toml", "--clock", clock, "--overwrite")
        assert status == 0 and "plain-mean" in out, err
    assert edgefl("runs", "runs/ours")[:2] == (0, "plain-mean: 1\n")
    status, out, _ = edgefl("export", "runs/ours", "--to", "lines")
    assert (status, out) == (0, "runs.txt: 1 runs\nnext: less runs.txt\n")
    assert "lines        Lines of text: the name of each run" in edgefl("export", "runs/ours")[1]
    status, out, _ = edgefl("--help")
    assert status == 0 and "List the runs in folders." in out
    events = Path("runs/ours/plain-mean/events.jsonl").read_text()
    assert '"e001"' in events and '"edges":["e000"]' not in events, "its selection is the last edge"
    for listing, line in (
        ("models", "linear"),
        ("datasets", "stripes"),
        ("selections", "last-first"),
    ):
        status, out, _ = edgefl(listing)
        assert status == 0 and any(each.startswith(f"{line} ") for each in out.splitlines())


def test_its_code_runs_on_an_edge_elsewhere_only_if_that_allows_it(edgefl: Edgefl) -> None:
    experiment = load(Path("ours.toml"))
    text = to_json(experiment, experiment.strategies[0])
    places = ("edgefl_example.stripes:load", "edgefl_example.linear:build")
    with pytest.raises(UserError, match="edgefl_example"):
        from_json(text, places)
    of_strategy = "edgefl_example.plain_mean:PlainMean"
    assert from_json(text, (*places, of_strategy)).strategies[0].name == "plain-mean"
    with pytest.raises(UserError, match="unknown model 'linear'"):  # no other way to the code
        from_json(text.replace(f'"name":"{places[1]}"', '"name":"linear"'), (*places, of_strategy))


def test_a_plug_in_that_fails_is_named_and_takes_nothing_down(edgefl: Edgefl) -> None:
    fails = "plug-in 'broken' of broken (broken_package"
    status, out, err = edgefl("--help")
    assert status == 0 and "Run every strategy" in out and "broken" not in out
    assert err.startswith(f"edgefl: warning: {fails}.absent:command) cannot be loaded: Module")
    assert len(err.splitlines()) == 1
    status, out, err = edgefl("strategies")
    assert status == 0 and "fedavg" in out and "plain-mean" in out
    assert err.startswith(f"edgefl: warning: {fails}.strategy:Strategy") and err.count("\n") == 1
    status, out, err = edgefl("broken")
    assert (status, out) == (2, "") and err.startswith(f"edgefl: {fails}") and err.count("\n") == 1


def test_the_core_runs_without_the_plug_ins_that_come_with_it(tmp_path: Path) -> None:
    for name in ("edgefl", "emulator"):
        ignored = shutil.ignore_patterns("plugins" if name == "edgefl" else "", "__pycache__")
        shutil.copytree(ROOT / name, tmp_path / "tree" / name, ignore=ignored)
    shutil.copy(ROOT / "edgefl_testbed.py", tmp_path / "tree")
    (tmp_path / "core.toml").write_text(CORE)
    (tmp_path / "several.py").write_text(SEVERAL)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "tree"), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "several.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    end = ": the plug-in for it is not installed"
    assert done.stderr.splitlines() == [f"edgefl: {each}{end}" for each in ("--live", "launch")]
    assert done.stdout.splitlines()[-1] == str(STATUS)
