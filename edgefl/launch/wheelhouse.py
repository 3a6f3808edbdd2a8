"""A folder with the wheels that edges need: filled here, and chosen from for each host.

pip evaluates the markers of dependencies for the machine on which it runs. A wheelhouse is for
other machines, so this module follows the dependencies itself and asks pip for single wheels.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.archives import DAMAGE
from edgefl.errors import UserError, listed, needs, printable
from edgefl.launch.pins import pins, torch_index

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.tags import Tag

OLDEST_GLIBC = 17  # manylinux_2_17: the oldest for which the packages have wheels
GLIBC = (2, 28)  # of systems since 2018; torch needs it
MACHINES = ("x86_64", "aarch64")  # for which there are wheels of torch
MOST_METADATA = 1 << 24  # bytes of a wheel's METADATA
CUDA = ("nvidia-", "cuda-", "triton")  # what the builds of torch for GPUs need


@dataclass(frozen=True, slots=True)
class Target:
    """What decides which wheels fit a machine: its architecture, Python and C library."""

    machine: str
    python: tuple[int, int]
    glibc: tuple[int, int] = GLIBC

    def __str__(self) -> str:
        return f"{self.machine} with Python {self.python[0]}.{self.python[1]}"

    def platforms(self) -> list[str]:
        """Return the platform tags of wheels that fit, the best one first."""
        major, newest = self.glibc
        versions = range(newest, OLDEST_GLIBC - 1, -1)
        return [f"manylinux_{major}_{minor}_{self.machine}" for minor in versions] + [
            f"manylinux2014_{self.machine}",
            f"linux_{self.machine}",
        ]

    def tags(self) -> list[Tag]:
        """Return all tags of wheels that fit, the best one first."""
        from packaging.tags import compatible_tags, cpython_tags

        platforms = self.platforms()
        return [
            *cpython_tags(self.python, platforms=platforms),
            *compatible_tags(self.python, f"cp{_joined(self.python)}", platforms),
        ]

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


@dataclass(frozen=True, slots=True)
class Wanted:
    """A package to find: its name, the versions that fit, and the pinned one, if there is one."""

    name: str
    specifier: str
    pinned: str | None

    def __str__(self) -> str:
        return f"{self.name}{f'=={self.pinned}' if self.pinned else self.specifier}"


Find = Callable[[Sequence[Wanted]], Sequence[Path]]


def closure(first: Path, target: Target, find: Find, have: Iterable[str] = ()) -> list[Path]:
    """Return the wheels that the wheel ``first`` needs on ``target``, directly or indirectly.

    ``find`` returns a wheel for each package that it gets, or raises. ``have``: packages that the
    machine has already; what these need is not searched.
    """
    with needs("launch", "a wheelhouse"):
        import packaging  # noqa: F401  # so that the functions below need no such line

    pinned = pins(target.environment())
    known, found, left = set(have), list[Path](), [first]
    while left:
        level: dict[str, Wanted] = {}
        for requirement in (each for path in left for each in _requirements(path, target)):
            name = _name(requirement.name)
            if name not in known:
                level[name] = Wanted(name, str(requirement.specifier), pinned.get(name))
        known |= level.keys()
        left = list(find(list(level.values()))) if level else []
        found += left
    return found


def chosen(folder: Path, target: Target) -> Find:
    """Return a function that finds wheels in ``folder``; UserError names what is missing."""

    def find(packages: Sequence[Wanted]) -> list[Path]:
        there = _wheels(folder)
        best = {str(each): _best(there, each, target) for each in packages}
        missing = [name for name, path in best.items() if path is None]
        if missing:
            raise UserError(
                f"{folder}: no wheel of {listed(missing)} for {target}"
                f"{_others(there)}: `edgefl hosts wheels {folder} --platform {target.machine}"
                f" --python {target.python[0]}.{target.python[1]}` gets what is missing"
            )
        return [path for path in best.values() if path is not None]

    return find


def _others(wheels: Iterable[Path]) -> str:
    platforms = [path.stem.rpartition("-")[2] for path in wheels]
    machines = [each for each in MACHINES if any(name.endswith(each) for name in platforms)]
    return f" (it has wheels for {', '.join(machines)})" if machines else ""


def fetched(folder: Path, target: Target, say: Callable[[str], None]) -> Find:
    """Return a function that downloads the wheels that ``folder`` lacks."""
    in_folder = chosen(folder, target)

    def find(packages: Sequence[Wanted]) -> Sequence[Path]:
        there = _wheels(folder)
        missing = [each for each in packages if _best(there, each, target) is None]
        settings = _pip("config", "list").stdout
        index = torch_index(target.machine, settings)
        for name, own_index in (("torch", index), (None, None)):
            few = [each for each in missing if (each.name == "torch") == (name == "torch")]
            if few:
                say(f"{target}: {', '.join(map(str, few))}")
                _download(folder, target, few, own_index)
        paths = in_folder(packages)
        for path in paths:
            refuse_cuda(path, target)
        return paths

    return find


def refuse_cuda(path: Path, target: Target) -> None:
    """UserError if a wheel of torch is a build for GPUs; it is removed.

    Such a build brings gigabytes of libraries, or does not load without them.
    """
    cuda = [each.name for each in _requirements(path, target) if each.name.startswith(CUDA)]
    if path.name.startswith("torch-") and cuda:
        path.unlink()
        raise UserError(
            f"{path.name} is a build for GPUs (it needs {cuda[0]}): expected the CPU build; let"
            f" pip find it at https://download.pytorch.org/whl/cpu"
        )


def _download(folder: Path, target: Target, packages: Sequence[Wanted], index: str | None) -> None:
    python = ".".join(map(str, target.python))
    words = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    words += ["--python-version", python, "--implementation", "cp"]
    words += ["--abi", f"cp{_joined(target.python)}", "--abi", "abi3", "--abi", "none"]
    words += [word for platform in target.platforms() for word in ("--platform", platform)]
    done = _pip(*words, *map(str, packages), env={} if index is None else {"PIP_INDEX_URL": index})
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = printable((said or done.stderr.splitlines() or ["pip failed"])[-1], 300)
        raise UserError(f"{', '.join(map(str, packages))} for {target}: {reason}")


def _pip(*words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    more = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"} | dict(env or {})
    return subprocess.run(
        [sys.executable, "-m", "pip", *words],
        capture_output=True,
        text=True,
        env=os.environ | more,
        check=False,
    )


def _wheels(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.whl"))


def _best(wheels: Iterable[Path], wanted: Wanted, target: Target) -> Path | None:
    """The newest wheel that fits, and of these the most special one; None if there is none."""
    from packaging.specifiers import SpecifierSet
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    versions = SpecifierSet(f"=={wanted.pinned}" if wanted.pinned else wanted.specifier)
    rank = {tag: -position for position, tag in enumerate(target.tags())}
    fitting = []
    for path in wheels:
        try:
            name, version, _, tags = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            continue
        if name == wanted.name and tags & rank.keys() and versions.contains(version):
            fitting.append((version, max(rank[tag] for tag in tags & rank.keys()), path))
    return max(fitting)[2] if fitting else None


def ranges(wheel: Path, target: Target) -> dict[str, str]:
    """Return package name -> versions that fit, for what a wheel needs on ``target``."""
    return {_name(each.name): str(each.specifier) for each in _requirements(wheel, target)}


def unpacked_bytes(wheel: Path) -> int:
    """Return the size of a wheel's files."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return sum(entry.file_size for entry in archive.infolist())
    except (*DAMAGE, OSError) as error:
        raise UserError(f"{wheel}: damaged, or no wheel ({error}): delete it") from error


def _requirements(wheel: Path, target: Target) -> list[Requirement]:
    from packaging.requirements import Requirement

    try:
        with zipfile.ZipFile(wheel) as archive:
            name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
            if archive.getinfo(name).file_size > MOST_METADATA:
                raise ValueError(f"{name} has more than {MOST_METADATA >> 20} MiB")
            text = archive.read(name).decode()
        lines = HeaderParser().parsestr(text).get_all("Requires-Dist")
    except (*DAMAGE, StopIteration, OSError) as error:
        raise UserError(f"{wheel}: damaged, or no wheel ({error}): delete it") from error
    parsed = [Requirement(line) for line in lines or []]
    there = target.environment()
    return [each for each in parsed if each.marker is None or each.marker.evaluate(there)]


def _name(name: str) -> str:
    from packaging.utils import canonicalize_name

    return canonicalize_name(name)


def _joined(python: tuple[int, int]) -> str:
    return f"{python[0]}{python[1]}"
