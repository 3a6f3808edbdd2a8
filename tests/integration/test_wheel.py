"""The package without the checkout: an installed wheel runs the quickstart."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from paths import CONFIGS, EXAMPLES, ROOT

from edgefl.plugins.launch.wheels import SOURCES

pytestmark = [pytest.mark.processes, pytest.mark.rest]

WHERE = "import edgefl, emulator; print(edgefl.__file__, emulator.__file__, sep='\\n')"


def run(*command: str | Path, cwd: Path) -> str:
    """The output of a command that cannot import the checkout."""
    free = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, cwd=cwd, env=free, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel built from it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in SOURCES:
        (source / name).symlink_to(ROOT / name)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source, cwd=source)
    return out


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with only the wheel; the packages that it needs are those of the tests."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=built)
    run(
        sys.executable,
        *("-m", "pip", "--python", folder, "install", "--quiet", "--no-deps", "--no-index"),
        *built.glob("*.whl"),
        cwd=built,
    )
    site = next(folder.glob("lib/python*/site-packages"))
    ours = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    # Python does not read the .pth files in there, one of which names the checkout.
    (site / "packages_of_the_tests.pth").write_text("\n".join(ours))
    return folder


def test_both_distributions_are_whole(built: Path) -> None:
    wheel, sdist = next(built.glob("*.whl")), next(built.glob("*.tar.gz"))
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist, cwd=built)
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {"edgefl_testbed.py", "edgefl/py.typed", "emulator/py.typed"} <= packed
    for tree in ("edgefl", "emulator"):
        for file in (ROOT / tree).rglob("*.py"):
            assert file.relative_to(ROOT).as_posix() in packed
    for file in (ROOT / "edgefl" / "plugins" / "live" / "page").rglob("*"):
        assert file.is_dir() or file.relative_to(ROOT).as_posix() in packed
    for file in CONFIGS.rglob("*.toml"):
        assert f"edgefl/{file.relative_to(ROOT).as_posix()}" in packed
    assert not any(name.startswith(("tests", "scripts", "configs")) for name in packed)
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("/edgefl/configs/quickstart.toml") for name in archive.getnames())


def test_the_quickstart_runs_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    for file in run(environment / "bin" / "python", "-c", WHERE, cwd=tmp_path).splitlines():
        assert Path(file).is_relative_to(environment)
    plugins = (
        "from importlib.metadata import distribution as d;"
        "print(*[n.name for n in d('edgefl-testbed').entry_points])"
    )
    names = run(environment / "bin" / "python", "-c", plugins, cwd=tmp_path).split()
    assert {"emulator", "launch", "perfetto", "live"} <= {*names}
    assert "launch" in run(environment / "bin" / "edgefl", "--help", cwd=tmp_path)
    assert "launch" in run(environment / "bin" / "python", "-m", "edgefl", "--help", cwd=tmp_path)
    assert "TDMA" in run(environment / "bin" / "emulator", "--help", cwd=tmp_path)
    said = run(
        environment / "bin" / "edgefl",
        *("run", "configs/quickstart.toml", "--clock", "virtual", "stop.emulated_s=3"),
        cwd=tmp_path,
    )
    assert "no configs/quickstart.toml here, using the one that comes with edgefl" in said
    assert str(environment) in said
    results = tmp_path / "runs" / "quickstart"
    assert (results / "figures" / "accuracy.png").stat().st_size > 10_000
    rows = (results / "comparison.csv").read_text().splitlines()
    assert len(rows) == 4 and "fedasync" in rows[2]
    for strategy in ("fedavg", "fedasync", "fedbuff"):
        assert (results / strategy / "model.safetensors").exists()
        assert (results / strategy / "summary.json").exists()


def test_a_users_file_passes_strict_mypy(environment: Path, tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "typed.py", tmp_path)
    (tmp_path / "wrong.py").write_text("import edgefl.api\n\nedgefl.api.weighted_sum(1, 2)\n")
    words = ("--strict", "--python-executable", environment / "bin" / "python", "--cache-dir", "c")
    with pytest.raises(AssertionError) as failed:  # one call for both: it reads torch's annotations
        run(sys.executable, "-m", "mypy", *words, "typed.py", "wrong.py", cwd=tmp_path)
    assert 'wrong.py:3: error: Argument 1 to "weighted_sum"' in str(failed.value)
    assert "in 1 file (checked 2 source files)" in str(failed.value)
