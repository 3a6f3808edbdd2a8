"""Writes an artifact: all its files, then the experiments are tried in it, then names are sought.

The trial (``kick``) comes before the documents, because they say what it took and what came out.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
import shutil
import stat
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from edgefl.config.file import HEADER
from edgefl.data.dataset import data_dir
from edgefl.errors import UserError, written
from edgefl.plugins.artifact import check, documents
from edgefl.plugins.artifact.contents import KICK, REPRODUCE, Contents, Kicked, Study, trial
from edgefl.plugins.artifact.documents import ArtifactFacts, Wishes, files_of, json_text
from edgefl.plugins.artifact.users_files import UsersFiles, collect, own_data
from edgefl.plugins.launch.wheels import own_wheel
from edgefl.record.files import EXPERIMENT, METRICS, SUMMARY
from edgefl.results.run_files import seed_name

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("install.sh", KICK, REPRODUCE)
MADE_THERE = (".venv", "results", "data")  # by the scripts: no part of an image
ADDRESS = ("host", "port")  # of [network]: those of the first machine
Say = Callable[[str], None]


def write(contents: Contents, out: Path, wishes: Wishes, say: Say) -> None:
    """Write an artifact to ``out``, a folder or a file that ends in .zip.

    It appears complete or not at all. UserError if an experiment does not run in it, for names in
    an anonymous one, and for a folder ``out`` that holds something else than an artifact.
    """
    zipped = out.suffix == ".zip"
    if not zipped and out.is_dir() and any(out.iterdir()) and not (out / check.CLAIMS).is_file():
        raise UserError(f"--out {out}: is not an artifact, so it is not replaced")
    with written(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(prefix=".artifact-", dir=out.parent)
    with scratch as place:
        folder = Path(place) / (out.stem if zipped else out.name)
        folder.mkdir()
        _fill(folder, contents, wishes, say)
        with written(out):
            _put(folder, out)


def _put(folder: Path, out: Path) -> None:
    """Move the folder to ``out``, or pack it there."""
    if out.suffix != ".zip":
        shutil.rmtree(out, ignore_errors=True)  # an earlier artifact, or an empty folder
        folder.rename(out)
        return
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files_of(folder):
            archive.write(path, path.relative_to(folder.parent))


def _fill(folder: Path, contents: Contents, wishes: Wishes, say: Say) -> None:
    say("building the wheel of this edgefl")
    wheel = own_wheel(folder / "wheels")
    dirs = {study.name: study.config.get("data", {}).get("dir") for study in contents.studies}
    data = {name: data_dir(place, os.environ).absolute() for name, place in dirs.items()}
    names = Names.of_here(contents) if wishes.anonymous else None
    found = {each.name: _experiment(each, folder, wishes) for each in contents.studies}
    studies = tuple(replace(each, config=found[each.name].config) for each in contents.studies)
    contents = replace(contents, studies=studies)
    lock = documents.locked(
        wheel.path,
        {extra for study in studies for extra in documents.extras_of(study.config)},
        {module for each in found.values() for module in each.packages},
    )
    (folder / "requirements.txt").write_text(lock.text(), encoding="utf-8")
    (folder / ".dockerignore").write_text("".join(f"{each}\n" for each in MADE_THERE))
    for name, source in contents.files.items():
        _copy(source, folder / name)
    for study in studies:
        _expected(study, folder, names)
    kicked = trial(studies, folder, data, say)
    for compiled in [*folder.rglob("__pycache__")]:  # of the user's code; it names folders of here
        shutil.rmtree(compiled)
    left_out = {name: why for each in found.values() for name, why in each.left_out.items()}
    facts = ArtifactFacts(
        contents, wishes, wheel, lock, kicked, _claims(contents, kicked), left_out
    )
    _write_documents(folder, facts)
    if names is not None:
        _refuse_names(names, folder)
    documents.write_sums(folder)
    for warning in facts.warnings():
        say(f"warning: {warning}")


def _refuse_names(names: Names, folder: Path) -> None:
    """Raise UserError for a name in a file that is not of this program alone."""
    ours = (*SCRIPTS, "common.sh", "check.py", "Dockerfile", "requirements.txt")
    places = [folder / name for name in ours]  # a file of the user may have such a name, too
    names.refuse(folder, [path for path in files_of(folder) if path not in places])


def _write_documents(folder: Path, facts: ArtifactFacts) -> None:
    processor = check.processor()
    _json(folder / check.CLAIMS, {"processor": processor, "claims": facts.claims})
    shutil.copyfile(str(check.__file__), folder / "check.py")
    for name, text in documents.rendered(TEMPLATES, facts).items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        if name in SCRIPTS:
            path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    _json(folder / "provenance.json", documents.provenance(facts))
    _json(folder / ".zenodo.json", documents.zenodo(facts))
    _json(folder / "ro-crate-metadata.json", documents.ro_crate(folder, facts))


# ---------------------------------------------------------------------- experiments
def _experiment(study: Study, folder: Path, wishes: Wishes) -> UsersFiles:
    """Write an experiment with the files that it names; return it as it is there."""
    config, base = dict(study.config), (study.base or Path.cwd()).resolve()
    section = dict(config.get("data", {}))
    directory = data_dir(section.pop("dir", None), os.environ).resolve()
    own, roots = own_data(section, directory), {base: Path(), Path.cwd(): Path()}
    if own is not None and "task" not in config:
        inside = directory.relative_to(base) if directory.is_relative_to(base) else Path("data")
        roots = {directory: inside, **roots}
        section["dir"] = (Path("experiments") / study.name / inside).as_posix()
    config["data"] = section
    if "network" in config:
        config["network"] = {k: v for k, v in config["network"].items() if k not in ADDRESS}
    more = (*wishes.include, *(own or ()))
    found = collect(config, roots, study.facts.get("digests", {}), more)
    place = folder / "experiments" / study.name
    for inside, source in found.files.items():
        _copy(source, place / inside)
    place.mkdir(parents=True, exist_ok=True)
    (place / EXPERIMENT).write_text(HEADER + tomli_w.dumps(found.config), encoding="utf-8")
    return found


def _expected(study: Study, folder: Path, names: Names | None) -> None:
    """Copy the results of the runs that ``edgefl compare`` reads, without facts about hosts."""
    for run in study.runs:
        place = folder / "expected" / study.name / str(run.facts.get("strategy"))
        place /= seed_name(run.row.seed or 1, len(study.seeds) > 1)
        facts = {key: value for key, value in run.summary.items() if key != "hosts"}
        if "fidelity" in facts:
            facts["fidelity"] = {k: v for k, v in facts["fidelity"].items() if k != "host"}
        place.mkdir(parents=True, exist_ok=True)
        text = json_text(facts)
        text = text if names is None else names.without_hosts(text)
        (place / SUMMARY).write_text(text, encoding="utf-8")
        if (run.directory / METRICS).is_file():
            _copy(run.directory / METRICS, place / METRICS)


def _claims(contents: Contents, kicked: Kicked) -> list[dict[str, Any]]:
    """Return all claims; those of an experiment are exact if the trial had its numbers."""
    differing = {name for name, difference in kicked.differs.items() if difference}
    of_runs = [
        claim | {"exact": claim["exact"] and _study_of(claim) not in differing}
        for claim in contents.claims
    ]
    return [{"id": f"K{at}", **claim} for at, claim in enumerate(kicked.claims, 1)] + of_runs


def _study_of(claim: Mapping[str, Any]) -> str:
    return str(claim.get("run", "")).partition("/")[0]


# ---------------------------------------------------------------------- files
def _copy(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, place)


def _json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json_text(value), encoding="utf-8")


# ---------------------------------------------------------------------- names
# Names in an anonymous artifact: of its author, the author's machines and folders.

SHORTEST = 3  # characters of a name that says who somebody is
NOBODY = {
    *("root", "user", "users", "admin", "ubuntu", "debian", "fedora", "runner", "home", "guest"),
    *("localhost", "local", "host", "server", "client", "docker", "jovyan", "worker", "node"),
}


@dataclass(frozen=True, slots=True)
class Names:
    """``known``: name -> what it is, for an error line. ``hosts``: host of the runs -> a number."""

    known: Mapping[str, str]
    hosts: Mapping[str, str]

    @classmethod
    def of_here(cls, contents: Contents) -> Names:
        """Return the names of this user and machine, and of the hosts of the runs."""
        found = {str(Path.home()): "your home folder", platform.node(): "the name of this host"}
        found[platform.node().partition(".")[0]] = "the name of this host"
        with suppress(OSError, KeyError):
            found[getpass.getuser()] = "your login"
        with suppress(ImportError, OSError, KeyError):
            import pwd  # not on Windows

            full = pwd.getpwnam(getpass.getuser()).pw_gecos.partition(",")[0]
            found[full] = "your name"
        for key, what in (("user.name", "your name in git"), ("user.email", "your e-mail address")):
            found[_git(key)] = what
        hosts: list[str] = []
        for study in contents.studies:
            if study.base is not None:
                found[str(study.base)] = "the folder of the config"
            runs = (run.summary.get("hosts", ()) for run in study.runs)
            hosts += [str(host.get("host", "")) for of in runs for host in of]
        found |= dict.fromkeys(hosts, "the name of a host of the runs")
        known = {name: what for name, what in found.items() if _says_who(name)}
        numbered = [name for name in dict.fromkeys(hosts) if name in known]
        return cls(known, {name: f"host-{at}" for at, name in enumerate(numbered, 1)})

    def without_hosts(self, text: str) -> str:
        """Return a text with the numbers of the runs' hosts in place of their names."""
        for name, number in self.hosts.items():
            text = _pattern(name).sub(number, text)
        return text

    def refuse(self, folder: Path, paths: Sequence[Path]) -> None:
        """Raise UserError for the first name in these files.

        In a wheel only names with "/", "@" or a space are sought: others may be words of its code.
        """
        for path in paths:
            is_wheel = path.suffix == ".whl"
            sought = [name for name in self.known if not is_wheel or re.search("[/@ ]", name)]
            for place, text in _texts(path, folder):
                for name in sought:
                    found = _pattern(name).search(text)
                    if found is not None:
                        line = text.count("\n", 0, found.start()) + 1
                        raise UserError(
                            f"--anonymous: {place}, line {line}: has {name!r}, {self.known[name]}:"
                            " expected no such name; change it, or leave the file out"
                        )


def _says_who(name: str) -> bool:
    """Whether a name can identify a person or a machine: a short or a common one cannot."""
    has_letters = name.strip("/.") != ""
    return len(name) >= SHORTEST and has_letters and name.lower() not in NOBODY


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", re.IGNORECASE)


def _texts(path: Path, folder: Path) -> list[tuple[str, str]]:
    """Return (name, text) of a file, or of the files in a wheel."""
    place = path.relative_to(folder).as_posix()
    if path.suffix != ".whl":
        return [(place, path.read_bytes().decode("utf-8", "replace"))]
    with zipfile.ZipFile(path) as archive:
        return [
            (f"{place}: {name}", archive.read(name).decode("utf-8", "replace"))
            for name in archive.namelist()
        ]


def _git(key: str) -> str:
    """Return a setting of git; "" if there is none, or no git."""
    try:
        done = subprocess.run(
            ["git", "config", key], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
