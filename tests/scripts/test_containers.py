"""The Dockerfile, compose.yaml and the development container say what is there, and work.

The commands of compose.yaml are run as processes; in containers where there is an engine that has
or gets the base image.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

from edgefl.plugins.launch.wheels import SOURCES

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

DOCKERFILE = (ROOT / "Dockerfile").read_text()
IMAGE = "edgefl-testbed-test"


def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


def test_the_image_is_made_from_what_a_wheel_is_made_from() -> None:
    copied = {
        source.rstrip("/")
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    }
    assert copied == {*SOURCES, "scripts/constraints.txt"}
    assert all((ROOT / source).exists() for source in copied)
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"}
    assert kept == copied


def test_every_extra_of_the_containers_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    text = (ROOT / ".devcontainer" / "devcontainer.json").read_text()
    about = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    script, wanted = about["postCreateCommand"].split()
    assert (ROOT / script).is_file()
    built = re.findall(r"^ARG EXTRAS=(\S+)$", DOCKERFILE, re.MULTILINE)
    for names in (wanted, *built):
        assert {*names.split(",")} <= {*extras}


def test_every_edge_of_compose_has_a_key_and_a_place_in_the_run() -> None:
    services = compose()["services"]
    edges = [name for name in services if re.fullmatch(r"e\d{3}", name)]
    for name in edges:
        assert f"--id={name}" in services[name]["command"]
    assert f"--ids {','.join(edges)}" in services["keys"]["entrypoint"][-1]
    assert f"edges.count={len(edges)}" in services["coordinator"]["command"]


@pytest.mark.processes
def test_the_dockerfile_passes_its_linter() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.processes
@pytest.mark.rest
def test_the_commands_of_compose_are_a_run(tmp_path: Path) -> None:
    services = compose()["services"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def words(service: str) -> list[str]:
        command = [str(word) for word in services[service]["command"]]
        text = "\n".join(command).replace("/keys/run", f"{tmp_path}/keys")
        text = text.replace("coordinator:7700", f"127.0.0.1:{port}").replace("=7700", f"={port}")
        text = re.sub(r"\$\{\w+:-(.+?)\}", r"\1", text)
        return [sys.executable, "-m", "edgefl", *text.split("\n")]

    ids = services["keys"]["entrypoint"][-1].rpartition("--ids ")[2]
    keys = [sys.executable, "-m", "edgefl", "keys", "new", f"{tmp_path}/keys", "--ids", ids]
    subprocess.run(keys, cwd=tmp_path, check=True)
    started = [
        subprocess.Popen(words(name), cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        for name in ids.split(",")
    ]
    short = ["stop.versions=1"]
    done = subprocess.run(
        [*words("coordinator"), *short], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert all(edge.wait(60) == 0 for edge in started)
    assert (tmp_path / "runs" / "quickstart" / "comparison.csv").is_file()


def engine() -> str:
    """A container engine that works; skips without one."""
    for name in ("docker", "podman"):
        if (
            shutil.which(name)
            and not subprocess.run([name, "info"], capture_output=True).returncode
        ):
            return name
    pytest.skip("no container engine runs here")


@pytest.mark.processes
@pytest.mark.rest
def test_the_image_runs_a_run(tmp_path: Path) -> None:
    program = engine()
    base = re.search(r"^FROM (\S+)$", DOCKERFILE, re.MULTILINE)
    assert base is not None
    if subprocess.run([program, "pull", base[1]], capture_output=True).returncode:
        pytest.skip(f"{program} cannot pull {base[1]}")
    subprocess.run([program, "build", "--tag", IMAGE, ROOT], check=True)
    (tmp_path / "runs").mkdir(mode=0o777)
    mount = ["--rm", "--volume", f"{tmp_path}/runs:/experiments/runs", "--user", "0:0"]
    config = ["configs/quickstart.toml", "--clock", "virtual", "stop.emulated_s=3"]
    subprocess.run([program, "run", *mount, IMAGE, "run", *config], check=True)
    assert (tmp_path / "runs" / "quickstart" / "comparison.csv").is_file()
