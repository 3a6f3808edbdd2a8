"""A whole artifact of runs with code of the user, but with a small wheel and a quick trial."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paths import EXAMPLES
from tiny_wheels import write_wheel
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.clocks.choices import RUN, VIRTUAL
from edgefl.clocks.setup.learning import learning
from edgefl.clocks.setup.resumption import Origin
from edgefl.clocks.virtual.run import run_virtual
from edgefl.config.file import load
from edgefl.plugins.artifact import check, contents, making
from edgefl.plugins.artifact.documents import Lock
from edgefl.plugins.launch.wheels import OwnWheel
from edgefl.record.files import EXPERIMENT
from edgefl.results.run_files import seed_name

HOST = "nameless-laptop-7"
CONFIG = """
name = "mine"
seeds = [1, 2]
task = "my_task.py:build"
[edges]
count = 3
[links]
up_mbit_s = 0.01
[stop]
versions = 3
[evaluation]
target_accuracy = 0.5
[network]
host = "192.0.2.7"
[[strategies]]
strategy = "fedavg"
[[strategies]]
strategy = "fedasync"
"""


def done(config: Path, folder: Path) -> None:
    """Do all runs of a config under the virtual clock, as ``edgefl run`` leaves them."""
    experiment = load(config)
    folder.mkdir(parents=True)
    text = Origin(RUN, VIRTUAL, config.parent).text(experiment)
    (folder / EXPERIMENT).write_text(text)
    ones = experiment.by_seed()
    for one in ones:
        learned, within = learning(one, config.parent), seed_name(one.seed, len(ones) > 1)
        for index, entry in enumerate(one.strategies):
            run_virtual(learned, index, folder / entry.name / within)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an experiment with two strategies and two seeds, and a task of the user."""
    base = tmp_path_factory.mktemp("users-folder")
    shutil.copy(EXAMPLES / "my_task.py", base)
    (base / "mine.toml").write_text(CONFIG)
    done(base / "mine.toml", base / "runs" / "mine")
    return base / "runs" / "mine"


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    """A wheel without code, a trial in this process, and a host with a name."""

    def wheel(folder: Path) -> OwnWheel:
        needs = ["numpy>=1", "scikit-learn; extra == 'lab'", "ray; extra == 'ray'"]
        return OwnWheel(write_wheel(folder, "edgefl_of_tests", needs=needs), {})

    def tried(study: contents.Study, folder: Path, data: Path, out: Path) -> float:
        done(folder / "experiments" / study.name / "kick.toml", out / f"kick-{study.name}")
        return 1.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making, "own_wheel", wheel)
        patch.setattr(contents, "_run", tried)
        patch.setattr(platform, "node", lambda: HOST)
        yield


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def artifact(*words: str | Path) -> str:
    result = CliRunner().invoke(app, ["artifact", *map(str, words)])
    assert result.exit_code == 0, result.output
    return result.output


def refusal(*words: str | Path) -> str:
    result = CliRunner().invoke(app, ["artifact", *map(str, words)])
    assert result.exit_code, result.output
    return str(result.exception)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def made(runs: Path, quick: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "made"
    artifact(runs, "--out", out, "--author", "Doe, Jo", "--title", "So it is")
    return out


@pytest.mark.slow
def test_an_artifact_has_all_that_a_reader_needs(made: Path) -> None:
    assert {path.name for path in made.iterdir()} == {
        *("README.md", "Dockerfile", "install.sh", "kick-the-tires.sh", "reproduce.sh"),
        *("common.sh", "check.py", "claims.json", "requirements.txt", "appendix.tex"),
        ".dockerignore",
        *("provenance.json", "ro-crate-metadata.json", ".zenodo.json", "SHA256SUMS"),
        *("experiments", "expected", "wheels"),
    }
    place = made / "experiments" / "mine"
    assert {path.name for path in place.iterdir()} == {EXPERIMENT, "kick.toml", "my_task.py"}
    experiment = load(place / EXPERIMENT)
    assert experiment.seeds == (1, 2) and experiment.network.host == "127.0.0.1"
    assert load(place / "kick.toml").seed == 1
    for script in ("install.sh", "kick-the-tires.sh", "reproduce.sh"):
        assert os.access(made / script, os.X_OK)
    lock = (made / "requirements.txt").read_text()
    assert "numpy==" in lock and "scikit-learn==" in lock and "ray==" not in lock
    assert "torch==" in lock, "my_task.py imports it"
    for line in (made / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((made / name).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize(
    ("build", "index"),
    [("cpu", "cpu"), ("cu128", "cu128"), ("rocm6.4", "rocm6.4"), ("", ""), ("1a2b3c.nv25.8", "")],
)
def test_only_builds_of_pytorch_come_from_its_index(build: str, index: str) -> None:
    whole = f"https://download.pytorch.org/whl/{index}" if index else ""
    assert Lock({}, build, ()).torch_index == whole


@pytest.mark.slow
def test_the_claims_are_exact_and_the_expected_results_pass_them(made: Path) -> None:
    claims = read(made / "claims.json")["claims"]
    assert {claim["id"][0] for claim in claims} == {"K", "C"}
    assert all(claim["exact"] for claim in claims)
    found, report = check.checked(made, "reproduce.sh", made / "expected")
    assert found and all(each.passed for each in found), report


@pytest.mark.slow
def test_the_metadata_name_title_authors_files_and_seeds(made: Path) -> None:
    zenodo, crate = read(made / ".zenodo.json"), read(made / "ro-crate-metadata.json")
    assert (zenodo["title"], zenodo["creators"]) == ("So it is", [{"name": "Doe, Jo"}])
    assert crate["@context"] == "https://w3id.org/ro/crate/1.1/context"
    entities = {entity["@id"]: entity for entity in crate["@graph"]}
    assert len(entities) == len(crate["@graph"])
    assert entities["ro-crate-metadata.json"]["about"] == {"@id": "./"}
    for part in entities["./"]["hasPart"]:
        assert (made / part["@id"]).is_file() and entities[part["@id"]]["@type"] == "File"
    linked = [each["@id"] for key in ("author", "mentions") for each in entities["./"][key]]
    assert linked and set(linked) <= entities.keys()
    facts = read(made / "provenance.json")
    assert [run["seed"] for run in facts["runs"]] == [1, 2, 1, 2]
    assert facts["users_files"]["mine"].keys() == {"my_task.py"}
    assert "numpy" in facts["packages"]


@pytest.mark.slow
def test_a_zip_has_one_folder(runs: Path, tmp_path: Path) -> None:
    artifact(runs, "--out", tmp_path / "for-review.zip")
    with zipfile.ZipFile(tmp_path / "for-review.zip") as archive:
        names = archive.namelist()
        mode = archive.getinfo("for-review/install.sh").external_attr >> 16
    assert all(name.startswith("for-review/") for name in names) and mode & 0o111
    assert "for-review/experiments/mine/my_task.py" in names


@pytest.mark.slow
def test_an_anonymous_artifact_says_nothing_about_its_author(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "2")
    for at, (key, value) in enumerate((("name", "Ada Lovelace"), ("email", "ada@example.org"))):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{at}", f"user.{key}")
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{at}", value)
    monkeypatch.setenv("HOME", "/home/alovelace")
    out = tmp_path / "blind"
    artifact(runs, "--anonymous", "--out", out)
    hidden = ("Lovelace", "ada@", "alovelace", HOST, str(runs.parents[1]), "192.0.2.7")
    for path in out.rglob("*"):
        text = "" if path.is_dir() else path.read_bytes().decode("latin-1").lower()
        assert [word for word in hidden if word.lower() in text] == [], path
    assert read(out / "provenance.json")["commit"] == "withheld"
    assert read(out / ".zenodo.json")["creators"] == [{"name": "Anonymous"}]


@pytest.mark.slow
def test_hosts_of_the_runs_get_numbers_in_an_anonymous_artifact(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs.parents[1], tmp_path / "users")
    runs = tmp_path / "users" / "runs" / "mine"
    summary = runs / "fedavg" / "seed1" / "summary.json"
    facts = read(summary)
    facts["hosts"] = [{"host": "pi-of-ada", "cpu": "Cortex-A76", "cores": 4, "machine": "2ec8"}]
    facts["fidelity"]["reasons"] = ["host pi-of-ada throttled"]
    summary.write_text(json.dumps(facts))
    artifact(runs, "--anonymous", "--out", tmp_path / "blind")
    artifact(runs, "--out", tmp_path / "named")
    expected = tmp_path / "blind" / "expected" / "mine" / "fedavg" / "seed1" / "summary.json"
    assert read(expected)["fidelity"]["reasons"] == ["host host-1 throttled"]
    for name, has_name in (("blind", False), ("named", True)):
        text = (tmp_path / name / "provenance.json").read_text()
        assert ("pi-of-ada" in text) is has_name and "Cortex-A76" in text and "2ec8" not in text


@pytest.mark.slow
def test_a_name_in_a_file_of_the_user_is_refused(runs: Path, tmp_path: Path) -> None:
    for name in ("notes.txt", "check.py"):  # also where one of ours has the name
        (tmp_path / name).write_text(f"# First line.\n# Tried on {HOST}.\n")
        told = refusal(runs, "--anonymous", "--include", name, "--out", "blind")
        assert f"mine/{name}, line 2: has 'nameless-laptop-7', the name of this host" in told
    told = refusal(runs, "--anonymous", "--author", "Doe, Jo")
    assert told.startswith("--author: expected no names")


@pytest.mark.slow
def test_runs_of_other_code_get_the_tolerance_in_place_of_exact(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs.parents[1], tmp_path / "older")
    older = tmp_path / "older" / "runs" / "mine"
    metrics = older / "fedavg" / "seed1" / "metrics.csv"
    lines = metrics.read_text().splitlines()
    row = lines[2].split(",")
    row[5] = "0.123456"
    metrics.write_text("\n".join([*lines[:2], ",".join(row), *lines[3:]]) + "\n")
    said = artifact(older, "--out", tmp_path / "made")
    assert "warning: mine: this edgefl computes other numbers" in said and "0.123456" in said
    claims = read(tmp_path / "made" / "claims.json")["claims"]
    assert {claim["id"][0] for claim in claims if claim["exact"]} == {"K"}


@pytest.mark.slow
def test_each_experiment_is_tried_with_the_data_that_its_runs_had(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, tried = {}, contents._run

    def noted(study: contents.Study, folder: Path, data: Path, out: Path) -> float | None:
        found[study.name] = data
        return tried(study, folder, data, out)

    monkeypatch.setattr(contents, "_run", noted)
    for name in ("one", "two"):
        run = tmp_path / name / "fedavg"
        shutil.copytree(runs / "fedavg" / "seed1", run)
        config = run / "config.toml"
        config.write_text(config.read_text().replace("[data]\n", f'[data]\ndir = "/{name}"\n'))
    artifact("one", "two")
    assert found == {"mine": Path("/one"), "mine-2": Path("/two")}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nothing",), "nothing: no such directory"),
        (("RUNS", "--out", "file.txt"), "--out file.txt: expected a folder, or a file"),
        (("RUNS", "--include", "no.csv"), "--include no.csv: no such file or folder"),
    ],
)
def test_bad_input_is_one_line(
    words: tuple[str, ...], told: str, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgefl.plugins.artifact.command.STUDIES", tmp_path / "no-checkout")
    (tmp_path / "file.txt").write_text("")
    assert told in refusal(*(runs if word == "RUNS" else word for word in words))
