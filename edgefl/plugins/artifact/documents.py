"""What is said about an artifact: the texts of its templates, and its metadata for machines."""

from __future__ import annotations

import json
import platform
import re
import time
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distribution,
    packages_distributions,
)
from pathlib import Path
from typing import Any

from edgefl import __version__
from edgefl.catalog import find, one_line
from edgefl.clocks.choices import RUN, WALL
from edgefl.clocks.setup.resumption import git_commit
from edgefl.errors import UserError, listed, needs
from edgefl.plugins.artifact import check
from edgefl.plugins.artifact.contents import (
    MOST_STUDIES,
    REPRODUCE,
    S_PER_H,
    Contents,
    Kicked,
    Study,
    command,
)
from edgefl.plugins.artifact.users_files import digest_of
from edgefl.plugins.html_report.document import templates_in
from edgefl.plugins.html_report.sections import ReportedRun
from edgefl.plugins.launch.wheels import OwnWheel
from edgefl.record.files import EXPERIMENT, MODEL

SUMS = "SHA256SUMS"
WITHHELD = "withheld"
HOST_FACTS = ("model", "cpu_model", "cores", "memory_bytes", "gpus")
NAMED = ("host", *HOST_FACTS, "kernel", "system", "python", "torch")
LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX |= {each: f"\\{each}" for each in "&%$#_{}"} | {
    "-": "-{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}
RULE = (
    "Under the virtual clock the expected number is exact on a processor of the same kind. Another"
    " kind (other vector registers, another architecture) adds in another order: then the number"
    " must be within the tolerance. So must the numbers of the wall clock. The tolerance is two"
    " standard errors of the difference of two such means over the seeds, and at least 1 % of the"
    " value; if there is one seed, 10 % of it are assumed (of a gain: of both scores)."
)
ON_WALL = "The machine must have no other load; each run says whether the machine kept up."
VIRTUALLY = "Other load on the machine changes no number: the clock is a virtual one."


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user says about an artifact.

    ``authors``: ("Family, Given", ...); (): not known. ``license``: an SPDX id. ``anonymous``: for
    a double-blind review. ``include``: more files and folders.
    """

    title: str = ""
    authors: tuple[str, ...] = ()
    license: str = "Apache-2.0"
    anonymous: bool = False
    include: tuple[Path, ...] = ()

    @property
    def creators(self) -> tuple[str, ...]:
        return self.authors or ("Anonymous" if self.anonymous else "Family name, given name",)


@dataclass(frozen=True, slots=True)
class ArtifactFacts:
    """All that the texts are made from. ``left_out``: the user's file -> why it is not there."""

    contents: Contents
    wishes: Wishes
    wheel: OwnWheel
    lock: Lock
    kicked: Kicked
    claims: Sequence[Mapping[str, Any]]
    left_out: Mapping[str, str]

    @property
    def title(self) -> str:
        return self.wishes.title or f"Artifact: {self.contents.subject}"

    @property
    def description(self) -> str:
        return (
            f"{self.contents.subject}: experiments with federated learning, run by edgefl"
            f" {__version__}, a testbed that measures strategies on the wall clock over real"
            " sockets, and under a virtual clock."
        )

    @property
    def hosts(self) -> list[dict[str, Any]]:
        """The machines of the runs, each once, without their names."""
        runs = [run for study in self.contents.studies for run in study.runs]
        all_hosts = [_host(host) for run in runs for host in _hosts(run)]
        return [host for at, host in enumerate(all_hosts) if host and host not in all_hosts[:at]]

    def cost(self, script: str) -> tuple[float, float]:
        """Return (hours, MB) of the runs behind the claims of a script, each run once."""
        of_runs = {
            claim.get("run", claim["id"]): (claim["hours"] or 0.0, claim["disk_mb"] or 0.0)
            for claim in self.claims
            if claim["script"] == script
        }
        hours, megabytes = zip(*of_runs.values())
        return self.contents.hours or sum(hours), sum(megabytes)

    def warnings(self) -> list[str]:
        """Return what a reader will not get, or not exactly."""
        differing = [
            f"{study}: this edgefl computes other numbers than that of the runs ({difference}): the"
            " claims have the tolerance of the seeds; run the experiment again for exact ones"
            for study, difference in self.kicked.differs.items()
            if difference
        ]
        local = [
            f"{name} does not come from an index here: an index may not have this version"
            for name in self.lock.local
        ]
        absent = [f"{name} is not in the artifact ({why})" for name, why in self.left_out.items()]
        return [*self.contents.warnings, *differing, *local, *absent]


# ---------------------------------------------------------------------- templates
def rendered(templates: Path, facts: ArtifactFacts) -> dict[str, str]:
    """Return the text of each template by its name."""
    environment = templates_in(templates, keep_trailing_newline=True)
    environment.filters |= {"tex": latex, "breakable": breakable}
    shown = _shown(facts)
    return {
        path.name: environment.get_template(path.name).render(shown) for path in templates.iterdir()
    }


def latex(text: object) -> str:
    """Return a text for LaTeX. Letters that its fonts may lack become "?"."""
    known = str(text).replace("`", "").encode("latin-1", "replace").decode("latin-1")
    return "".join(LATEX.get(each, each) for each in known)


def breakable(text: str) -> str:
    """Return a text of LaTeX whose lines may break after a slash."""
    return text.replace("/", "/\\allowbreak{}")


def _shown(facts: ArtifactFacts) -> dict[str, Any]:
    """Return all that the templates show, by name."""
    contents, studies, lock = facts.contents, facts.contents.studies, facts.lock
    hours, megabytes = facts.cost(REPRODUCE)
    downloads = _downloads(studies)
    runs = sum(len(study.labels) * len(study.seeds) for study in studies)
    on_wall = any(study.clock == WALL for study in studies)
    anonymous = facts.wishes.anonymous
    return {
        "title": facts.title,
        "description": facts.description,
        "first": studies[0],
        "version": __version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "machine": platform.machine(),
        "torch_index": lock.torch_index,
        "build": lock.build,
        "packages": len(lock.versions) + 1,
        "downloads": downloads,
        "commands": contents.commands or [_line(study) for study in studies],
        "shown_commands": contents.commands or [command(study) for study in studies],
        "kicked": studies[:MOST_STUDIES],
        "kick_time": duration(facts.kicked.seconds / S_PER_H),
        "kick_mb": size(facts.kicked.megabytes),
        "time": duration(hours),
        "mb": size(megabytes),
        "launched": any(study.command != RUN for study in studies),
        "claims": [_row(claim) for claim in facts.claims],
        "rule": RULE,
        "hardware": _hardware(facts.hosts),
        "needed": [_data_line(study, downloads) for study in studies],
        "left_out": facts.left_out,
        "strategies": listed(_each(label for study in studies for label in study.labels), 50),
        "models": listed(_each(_name(study, "model", "mlp") for study in studies), 50),
        "data": listed(_each(_name(study, "data", "digits") for study in studies), 50),
        "state": ON_WALL if on_wall else VIRTUALLY,
        "execution": "runs take as long as they emulate" if on_wall else "nothing is waited for",
        "experiments": f"{_counted(len(studies), 'experiment')}, {_counted(runs, 'run')}",
        "anonymous": anonymous,
        "license": facts.wishes.license,
    }


def _each(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def duration(hours: float) -> str:
    """Return "40 s", "12 min" or "3.5 h"."""
    seconds = hours * S_PER_H
    if seconds < 120:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{hours:.1f} h"


def size(megabytes: float) -> str:
    """Return megabytes as text, at least "0.1"."""
    return f"{max(megabytes, 0.1):.1f}" if megabytes < 10 else f"{megabytes:.0f}"


def _line(study: Study) -> str:
    """Return the line of ``reproduce.sh`` that runs a study."""
    config = f"experiments/{study.name}/{EXPERIMENT}"
    here = " ".join(["run", study.name, config, "--clock", study.clock, *study.options])
    if study.command == RUN:
        return here
    launch = f'edgefl launch "$INVENTORY" {config} --out results'
    return f'if [ -n "${{INVENTORY:-}}" ]; then {launch}; else {here}; fi'


def _row(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Return a claim as the tables have it."""
    around, hours, megabytes = claim.get("interval"), claim["hours"], claim["disk_mb"]
    return {
        **claim,
        "shown": check.expected(claim),
        "around": "" if around is None else f"{around[0]:.4g} to {around[1]:.4g}",
        "time": "" if hours is None else duration(hours),
        "mb": "" if megabytes is None else size(megabytes),
    }


def _name(study: Study, table: str, usual: str) -> str:
    """Return the name of the model or of the data set; a task of one's own has both."""
    return str(study.config.get("task") or study.config.get(table, {}).get("name", usual))


def _hosts(run: ReportedRun) -> list[Mapping[str, Any]]:
    """Return the facts about the host of the coordinator, and about those of the edges."""
    of_edges = [{**host, "cpu_model": host.get("cpu")} for host in run.summary.get("hosts", ())]
    return [run.facts.get("host", {}), *of_edges]


def _host(facts: Mapping[str, Any], keys: Sequence[str] = HOST_FACTS) -> dict[str, Any]:
    return {key: facts[key] for key in keys if facts.get(key) is not None}


def _hardware(hosts: Sequence[Mapping[str, Any]]) -> str:
    texts = [
        f"{host.get('cpu_model') or platform.machine()}, {host.get('cores', '?')} cores,"
        f" {host.get('memory_bytes', 0) / 2**30:.0f} GiB of memory"
        for host in hosts
    ]
    return listed(texts, 3) or check.processor()


# ---------------------------------------------------------------------- data sets
def _downloads(studies: Sequence[Study]) -> list[str]:
    """Return the data sets that ``edgefl data get`` downloads."""
    names = []
    for study in studies:
        if "task" not in study.config:
            names.append(_name(study, "data", "digits"))
        names.append(str(study.config.get("unlabelled", {}).get("data", "")))
    return [name for name in dict.fromkeys(names) if name.isidentifier() and _is_download(name)]


def _is_download(name: str) -> bool:
    try:
        return bool(find("edgefl.data", name, "DOWNLOADS"))
    except UserError:
        return False


def _data_line(study: Study, downloads: Sequence[str]) -> str:
    """Return where the data of an experiment come from, with their digests."""
    name = _name(study, "data", "digits")
    if name in downloads:
        origin = f"the scripts download them (`edgefl data get {name}`)"
    elif ":" in name or "dir" in study.config.get("data", {}):
        origin = "their files are in the artifact"
    else:
        origin = one_line("edgefl.data", name).rstrip(".")
    digests = _each(str(run.facts.get("data_digest", "")) for run in study.runs)
    known = [digest for digest in digests if digest]
    of = f". Digest of what was learned from: {listed(known, 5)}" if known else ""
    return f"Data of {study.name}: `{name}`; {origin}{of}."


# ---------------------------------------------------------------------- metadata
def provenance(facts: ArtifactFacts) -> dict[str, Any]:
    """Return where the numbers come from: versions, commits, digests, hosts, seeds."""
    anonymous, studies = facts.wishes.anonymous, facts.contents.studies
    runs = [
        {
            "experiment": study.name,
            "strategy": run.facts.get("strategy"),
            "seed": run.row.seed,
            "clock": run.row.clock,
            "verdict": run.row.mark,
            "emulated_s": run.row.emulated_s,
            "wall_s": run.row.wall_s,
            "commit": WITHHELD if anonymous else run.facts.get("git_commit"),
            "data_digest": run.facts.get("data_digest"),
            "model_sha256": _digest_of_model(run.directory),
            "hosts": [_host(host, HOST_FACTS if anonymous else NAMED) for host in _hosts(run)],
        }
        for study in studies
        for run in study.runs
    ]
    return {
        "edgefl": __version__,
        "commit": WITHHELD if anonymous else git_commit(),
        "wheel": facts.wheel.path.name,
        "code_digest": facts.wheel.digest(),
        "python": platform.python_version(),
        "processor": check.processor(),
        "made": _today(),
        "packages": dict(sorted(facts.lock.versions.items())),
        "torch_build": facts.lock.build,
        "users_files": {study.name: study.facts.get("digests", {}) for study in studies},
        "runs": runs,
    }


def _digest_of_model(run: Path) -> str | None:
    return digest_of(run / MODEL) if (run / MODEL).is_file() else None


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())


def zenodo(facts: ArtifactFacts) -> dict[str, Any]:
    """Return the metadata of a deposit at Zenodo (https://developers.zenodo.org)."""
    return {
        "title": facts.title,
        "description": facts.description,
        "upload_type": "software",
        "creators": [{"name": name} for name in facts.wishes.creators],
        "license": facts.wishes.license.lower(),
        "access_right": "open",
        "keywords": ["federated learning", "reproducibility", "artifact"],
    }


FORMATS = {
    ".md": "text/markdown",
    ".csv": "text/csv",
    ".json": "application/json",
    ".toml": "application/toml",
    ".txt": "text/plain",
    ".py": "text/x-python",
    ".sh": "application/x-sh",
    ".tex": "application/x-tex",
    ".whl": "application/zip",
}
CRATE, SOFTWARE = "https://w3id.org/ro/crate/1.1", "#edgefl"


def ro_crate(folder: Path, facts: ArtifactFacts) -> dict[str, Any]:
    """Return the RO-Crate 1.1 metadata of what is in ``folder``: files, runs, authors, licence."""
    files = [path.relative_to(folder).as_posix() for path in files_of(folder)]
    license_id = f"https://spdx.org/licenses/{facts.wishes.license}"
    authors = [
        {"@id": f"#author-{at}", "@type": "Person", "name": name}
        for at, name in enumerate(facts.wishes.creators, 1)
    ]
    actions = [
        {
            "@id": f"#runs-{study.name}",
            "@type": "CreateAction",
            "name": f"The runs of {study.name}",
            "instrument": {"@id": SOFTWARE},
            "object": {"@id": f"experiments/{study.name}/{EXPERIMENT}"},
            "result": [
                {"@id": each} for each in files if each.startswith(f"expected/{study.name}/")
            ],
        }
        for study in facts.contents.studies
    ]
    descriptor = {
        "@id": "ro-crate-metadata.json",
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": CRATE},
    }
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": facts.title,
        "description": facts.description,
        "datePublished": _today(),
        "license": {"@id": license_id},
        "author": [{"@id": each["@id"]} for each in authors],
        "hasPart": [{"@id": name} for name in files],
        "mentions": [{"@id": each["@id"]} for each in actions],
    }
    others: list[dict[str, Any]] = [
        {"@id": license_id, "@type": "CreativeWork", "name": facts.wishes.license},
        {"@id": SOFTWARE, "@type": "SoftwareApplication", "name": "edgefl", "version": __version__},
        *authors,
    ]
    parts = [
        {
            "@id": name,
            "@type": "File",
            "name": name,
            "contentSize": str((folder / name).stat().st_size),
            "encodingFormat": FORMATS.get(Path(name).suffix, "text/plain"),
        }
        for name in files
    ]
    return {"@context": f"{CRATE}/context", "@graph": [descriptor, root, *others, *actions, *parts]}


# ---------------------------------------------------------------------- files
def files_of(folder: Path) -> list[Path]:
    """Return all files below a folder, sorted."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def json_text(value: Any) -> str:
    """Return JSON that people can read."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_sums(folder: Path) -> None:
    """Write the SHA-256 of each file, as ``sha256sum --check`` reads them."""
    lines = [
        f"{digest_of(path)}  {path.relative_to(folder).as_posix()}\n" for path in files_of(folder)
    ]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


# ---------------------------------------------------------------------- the lock file
# The lock file of an artifact: the packages that its experiments use, with their versions here.

OWN = ("edgefl", "emulator", "edgefl_testbed")  # modules that are in the wheel
TEXT = ("bert_classifier", "causal_lm")  # models that need the extra "text"
TORCH_INDEX = "https://download.pytorch.org/whl/"
BUILDS = re.compile(r"cpu|xpu|cu\d+|rocm[\d.]+")  # of torch, which have an index each


@dataclass(frozen=True, slots=True)
class Lock:
    """``versions``: package -> version. ``build``: that of torch, "cpu", "cu128" or "".

    ``local``: packages that were installed from a folder, a file or an address.
    """

    versions: Mapping[str, str]
    build: str
    local: tuple[str, ...]

    @property
    def torch_index(self) -> str:
        """PyTorch's index of this build; "" if there is none, as for those of NVIDIA's containers.

        torch of PyPI has no build in its version.
        """
        return TORCH_INDEX + self.build if BUILDS.fullmatch(self.build) else ""

    def text(self) -> str:
        """Return the requirements file."""
        return "".join(f"{name}=={version}\n" for name, version in sorted(self.versions.items()))


def extras_of(config: Mapping[str, Any]) -> set[str]:
    """Return the extras that an experiment needs; the data, figures and tables need "lab"."""
    found = {"lab"}
    if str(config.get("task", "")).startswith("flower:"):
        found.add("flower")
    if config.get("model", {}).get("name") in TEXT:
        found.add("text")
    if config.get("data", {}).get("name") == "huggingface":
        found.add("datasets")
    return found


def locked(wheel: Path, extras: Collection[str], modules: Collection[str]) -> Lock:
    """Return what the wheel needs with these extras, and ``modules`` of the user's code.

    UserError if a package is not installed here.
    """
    with needs("launch", "a lock file"):
        from packaging.requirements import Requirement
        from packaging.utils import canonicalize_name

    with zipfile.ZipFile(wheel) as archive:
        about = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        head = HeaderParser().parsestr(archive.read(about).decode())
    own = canonicalize_name(head["Name"])
    left = [(line, frozenset(extras)) for line in head.get_all("Requires-Dist") or ()]
    left += [(name, frozenset()) for name in _distributions(modules)]
    found: dict[str, Distribution] = {}
    done: set[tuple[str, frozenset[str]]] = set()
    while left:
        line, of = left.pop()
        requirement = Requirement(line)
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in (*of, "")):
            continue
        name = canonicalize_name(requirement.name)
        step = name, frozenset(requirement.extras)
        if name == own or step in done:
            continue
        done.add(step)
        try:
            found[name] = distribution(requirement.name)
        except PackageNotFoundError as error:
            raise UserError(
                f"{requirement.name}: is needed ({line}) and not installed here: expected an"
                " environment in which the runs can be made"
            ) from error
        left += [(each, step[1]) for each in found[name].requires or ()]
    versions = {name: each.version.partition("+")[0] for name, each in found.items()}
    torch = found.get("torch")
    build = "" if torch is None else torch.version.partition("+")[2]
    local = [name for name, each in found.items() if each.read_text("direct_url.json")]
    return Lock(versions, build, tuple(local))


def _distributions(modules: Collection[str]) -> list[str]:
    """Return the packages that have these modules."""
    known = packages_distributions()
    names = [name for module in modules if module not in OWN for name in known.get(module, ())]
    return list(dict.fromkeys(names))
