"""The wheels that edges need: that of this edgefl, and a folder with those of its packages.

From a checkout the wheel of edgefl is built anew; an installed edgefl is packed again from its
files. In both cases the hosts get the code that runs here.

pip finds the packages for other machines. It chooses wheels by the tags of ``Target``, but
evaluates the markers of dependencies for the machine on which it runs. So it is started with the
values that the markers have on the other machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.archives import DAMAGE
from edgefl.errors import UserError, needs, printable
from edgefl_testbed import NAME, WHEELS

if TYPE_CHECKING:
    from packaging.tags import Tag

PINS = Path(__file__).parent / "constraints.txt"  # in a checkout, a link to the file of scripts/
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# Settings of pip with which it finds packages elsewhere than on PyPI. The rule for torch is that
# of scripts/setup_env.sh: with such a setting, pip's own settings say where torch comes from.
ELSEWHERE = ("index-url", "find-links", "no-index")
OLDEST_GLIBC = 17  # manylinux_2_17: the oldest for which the packages have wheels
GLIBC = (2, 28)  # of systems since 2018; torch needs it
MACHINES = ("x86_64", "aarch64")  # for which there are wheels of torch
CUDA = ("nvidia-", "cuda-", "triton")  # what the builds of torch for GPUs need
# $1: the values of markers, as JSON; then the words of a pip command
PIP_ELSEWHERE = """
import json, sys
from pip._vendor.packaging import markers
there = markers.default_environment() | json.loads(sys.argv.pop(1))
markers.default_environment = lambda: dict(there)
from pip._internal.cli.main import main
sys.exit(main())
"""

PACKAGES = ("edgefl/", "emulator/", "edgefl_testbed.py")
ROOT = Path(__file__).parents[3]  # of a checkout; else the folder of installed packages
PROJECT = "pyproject.toml"
SOURCES = (PROJECT, "README.md", "LICENSE", "edgefl", "emulator", "edgefl_testbed.py", "configs")
# what an installer adds to the files of a wheel
ADDED = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}


@dataclass(frozen=True, slots=True)
class OwnWheel:
    """A wheel, and the SHA-256 (hex) of each file of its packages by path."""

    path: Path
    files: Mapping[str, str]

    def digest(self) -> str:
        """Return a digest that changes with the code, and not with dates of files."""
        listed = "\n".join(f"{name} {digest}" for name, digest in sorted(self.files.items()))
        return hashlib.sha256(listed.encode()).hexdigest()[:16]


def own_wheel(folder: Path) -> OwnWheel:
    """Write the wheel of this edgefl to ``folder``, which is new. UserError if that fails."""
    if (ROOT / PROJECT).is_file():
        return opened(_built(ROOT, folder))
    try:
        installed = distribution(NAME)
    except PackageNotFoundError as error:
        raise UserError(
            f"no wheel of edgefl can be made: {ROOT} has no {PROJECT}, and {NAME} is not installed"
        ) from error
    return opened(_packed(installed, folder))


def opened(path: Path) -> OwnWheel:
    """Read the digests of a wheel's files."""
    with zipfile.ZipFile(path) as archive:
        files = {
            name: hashlib.sha256(archive.read(name)).hexdigest()
            for name in archive.namelist()
            if name.startswith(PACKAGES)
        }
    return OwnWheel(path, files)


def _built(checkout: Path, folder: Path) -> Path:
    """Build the wheel without changing the checkout, where setuptools would leave its files."""
    source = folder / "source"
    source.mkdir(parents=True)
    for name in SOURCES:
        (source / name).symlink_to(checkout / name)
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    words += ["--check-build-dependencies"]
    done = _pip(*words, "--wheel-dir", str(folder), str(source))
    if done.returncode:
        raise UserError(f"{checkout}: the wheel cannot be built: {_failure(done)}")
    shutil.rmtree(source)
    return next(folder.glob("*.whl"))


def _packed(installed: Distribution, folder: Path) -> Path:
    """Write the wheel from which ``installed`` was installed."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = WHEELS.replace("*.whl", installed.version)
    about = f"{stem}.dist-info"
    path = folder / f"{stem}-py3-none-any.whl"
    record = [f"{about}/RECORD,,"]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in installed.files or ():
            name = file.as_posix()
            about_it = name.startswith(about) and file.name not in ADDED
            if file.hash is not None and (name.startswith(PACKAGES) or about_it):  # no bytecode
                archive.writestr(name, file.read_binary())
                record.append(f"{name},{file.hash.mode}={file.hash.value},{file.size}")
        archive.writestr(f"{about}/RECORD", "\n".join(record))
    return path


# ---------------------------------------------------------------------- other machines
@dataclass(frozen=True, slots=True)
class Target:
    """What decides which wheels fit a machine: its architecture, Python and C library."""

    machine: str
    python: tuple[int, int]
    glibc: tuple[int, int] = GLIBC

    def __str__(self) -> str:
        return f"{self.machine} with Python {self.python[0]}.{self.python[1]}"

    def options(self) -> list[str]:
        """Return pip's options for wheels that fit, the best platforms first."""
        major, minor = self.python
        words = ["--only-binary=:all:", "--python-version", f"{major}.{minor}"]
        words += ["--implementation", "cp"]
        words += [word for abi in (f"cp{major}{minor}", "abi3", "none") for word in ("--abi", abi)]
        return words + [word for each in self.platforms() for word in ("--platform", each)]

    def tags(self) -> list[Tag]:
        """Return the tags of wheels that fit, the best ones first."""
        from packaging.tags import compatible_tags, cpython_tags

        platforms, (major, minor) = self.platforms(), self.python
        interpreter = f"cp{major}{minor}"
        return [
            *cpython_tags(self.python, platforms=platforms),
            *compatible_tags(self.python, interpreter, platforms),
        ]

    def platforms(self) -> list[str]:
        """Return the platforms of wheels that fit, the best ones first."""
        glibc, newest = self.glibc
        versions = range(newest, OLDEST_GLIBC - 1, -1)
        names = [f"manylinux_{glibc}_{version}" for version in versions]
        return [f"{name}_{self.machine}" for name in (*names, "manylinux2014", "linux")]

    def environment(self) -> dict[str, str]:
        """Return the values of markers there."""
        dotted = ".".join(map(str, self.python))
        return {
            "implementation_name": "cpython",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_system": "Linux",
            "python_full_version": f"{dotted}.0",
            "python_version": dotted,
            "sys_platform": "linux",
            "extra": "",
        }


def pins(environment: Mapping[str, str]) -> dict[str, str]:
    """Return package name -> version for the values of markers on a machine."""
    with needs("launch", "reading constraints.txt"):
        from packaging.requirements import Requirement

    lines = PINS.read_text(encoding="utf-8").splitlines()
    all_pins = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    there = dict(environment)
    return {
        each.name: next(iter(each.specifier)).version
        for each in all_pins
        if each.marker is None or each.marker.evaluate(there)
    }


def constraints(pins: Mapping[str, str], below: Mapping[str, str]) -> str:
    """Return the text of a constraints file: ``below`` as it is, all else as pinned."""
    merged = dict(pins) | dict(below)
    return "".join(f"{name}=={version}\n" for name, version in sorted(merged.items()))


def ranges(wheel: Path, target: Target) -> dict[str, str]:
    """Return package name -> versions that fit, for what a wheel needs on ``target``."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    try:
        with zipfile.ZipFile(wheel) as archive:
            name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
            lines = HeaderParser().parsestr(archive.read(name).decode()).get_all("Requires-Dist")
    except (*DAMAGE, OSError, StopIteration) as error:
        raise UserError(f"{wheel}: damaged, or no wheel ({error}): delete it") from error
    needed, there = [Requirement(line) for line in lines or []], target.environment()
    return {
        canonicalize_name(each.name): str(each.specifier)
        for each in needed
        if each.marker is None or each.marker.evaluate(there)
    }


def torch_index(machine: str, settings: str) -> str | None:
    """Return the index from which torch comes; None: the one that pip uses anyway.

    ``settings``: what ``pip config list`` prints. On x86 the torch of PyPI brings gigabytes of CUDA
    libraries; for other machines, ``pins`` has a version whose build on PyPI is for CPUs.
    """
    if machine != "x86_64" or any(word in settings for word in ELSEWHERE):
        return None
    return TORCH_CPU_INDEX


def unpacked_bytes(wheel: Path) -> int:
    """Return the size of a wheel's files."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return sum(entry.file_size for entry in archive.infolist())
    except (*DAMAGE, OSError) as error:
        raise UserError(f"{wheel}: damaged, or no wheel ({error}): delete it") from error


# ---------------------------------------------------------------------- wheelhouses
def fitting(own: Path, target: Target, folder: Path, below: Mapping[str, str]) -> list[Path]:
    """Return the wheels in ``folder``, of pinned versions, that the wheel ``own`` needs there.

    ``below``: packages that the machine has already (name -> version); what these need is not
    searched. UserError names a package that is missing.
    """
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    ranks, known = {tag: at for at, tag in enumerate(target.tags())}, pins(target.environment())
    best: dict[str, tuple[int, Path]] = {}
    for path in sorted(folder.glob("*.whl")):
        try:
            name, version, _, tags = parse_wheel_filename(path.name)
        except InvalidWheelFilename as error:
            raise UserError(f"{path}: {error}") from error
        rank = min((ranks[tag] for tag in tags if tag in ranks), default=None)
        if rank is not None and version.public == known.get(name, version.public):
            best[name] = min(best.get(name, (rank, path)), (rank, path))
    wheels: dict[str, Path] = {}
    left = [own]
    while left:
        for needed in ranges(left.pop(), target):
            if needed in below or needed in wheels:
                continue
            if needed not in best:
                pin = f"=={known[needed]}" if needed in known else ""
                raise UserError(
                    f"{folder}: no wheel of {needed}{pin} for {target}"
                    f"{_others(folder.glob('*.whl'))}: {getting(folder, target)}"
                )
            wheels[needed] = best[needed][1]
            left.append(wheels[needed])
    return list(wheels.values())


def getting(folder: Path, target: Target) -> str:
    """Return which command gets the wheels that a wheelhouse lacks."""
    version = ".".join(map(str, target.python))
    command = f"edgefl hosts wheels {folder} --platform {target.machine} --python {version}"
    return f"`{command}` gets what is missing"


def fetched(own: Path, target: Target, folder: Path, say: Callable[[str], None]) -> list[Path]:
    """Let pip download what the wheel ``own`` needs and ``folder`` lacks; return the wheels."""
    known = pins(target.environment())
    with tempfile.TemporaryDirectory(prefix="edgefl-pip-") as scratch:
        limits = Path(scratch) / "constraints.txt"
        limits.write_text(constraints(known, {}), encoding="utf-8")
        words = ["--constraint", str(limits), "--find-links", str(folder), str(own)]
        try:
            offline = {"PIP_CONFIG_FILE": os.devnull}  # whatever pip's settings say
            _download(folder, target, ["--no-index", "--isolated", *words], offline)
        except UserError:
            say(f"{target}: downloading what is missing")
            if "torch" in ranges(own, target):
                _fetch_torch(folder, target, known["torch"])
            _download(folder, target, words)
    return fitting(own, target, folder, {})


def _fetch_torch(folder: Path, target: Target, version: str) -> None:
    """Download torch first: it may come from another index, and must be a build for CPUs."""
    index = torch_index(target.machine, _pip("config", "list").stdout)
    env = {} if index is None else {"PIP_INDEX_URL": index}
    _download(folder, target, ["--no-deps", "--find-links", str(folder), f"torch=={version}"], env)
    for wheel in folder.glob(f"torch-{version}*.whl"):
        cuda = next((name for name in ranges(wheel, target) if name.startswith(CUDA)), None)
        if cuda is not None:
            wheel.unlink()  # the next call must not find it
            raise UserError(
                f"{wheel.name} is a build for GPUs (it needs {cuda}): expected the CPU build; let"
                f" pip find it at {TORCH_CPU_INDEX}"
            )


def _download(
    folder: Path, target: Target, words: Sequence[str], env: Mapping[str, str] | None = None
) -> None:
    words = ["download", "--quiet", "--dest", str(folder), *target.options(), *words]
    done = _pip(*words, there=target, env=env)
    if done.returncode:
        raise _refused(done, target)


def _refused(done: subprocess.CompletedProcess[str], target: Target) -> UserError:
    """Say in one line what pip could not find."""
    absent = re.search(r"No matching distribution found for (\S+)", done.stderr)
    absent = absent or re.search(r"\(constraint\) (\S+)", done.stdout)  # another version is there
    if absent:
        return UserError(f"no wheel of {printable(absent[1], 100)} for {target}")
    return UserError(f"{_failure(done)} (for {target})")


def _failure(done: subprocess.CompletedProcess[str]) -> str:
    """The first error that pip has printed, without its bare headings, else its last line."""
    lines = [line.strip() for line in done.stderr.splitlines()] or ["pip failed"]
    errors = [each for each in lines if re.match(r"ERROR|error", each) and each[-1] != ":"]
    return printable((errors or lines[-1:])[0], 300)


def _pip(
    *words: str, there: Target | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run pip, as if on the machine ``there``."""
    python = ["-m", "pip"]
    if there is not None:
        python = ["-c", PIP_ELSEWHERE, json.dumps(there.environment())]
    more = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"} | dict(env or {})
    return subprocess.run(
        [sys.executable, *python, *words],
        capture_output=True,
        text=True,
        env=os.environ | more,
        check=False,
    )


def _others(wheels: Iterable[Path]) -> str:
    platforms = [path.stem.rpartition("-")[2] for path in wheels]
    machines = [each for each in MACHINES if any(name.endswith(each) for name in platforms)]
    return f" (it has wheels for {', '.join(machines)})" if machines else ""
