"""Installs edgefl on one host, through a connection, into an environment of its own.

With ``python`` in the inventory, the environment is a layer on top of that Python's packages: these
are used where their versions fit, and not changed.

Every step may be interrupted: the next call goes on from there. The last one writes the fingerprint
of what was installed, so a call without changes only reads it.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from edgefl.errors import UserError, printable
from edgefl.plugins.launch import host_probe
from edgefl.plugins.launch.connections import HostConnection, HostError
from edgefl.plugins.launch.inventory import Host
from edgefl.plugins.launch.wheels import (
    GLIBC,
    MACHINES,
    OwnWheel,
    Target,
    constraints,
    fitting,
    pins,
    ranges,
    torch_index,
    unpacked_bytes,
)
from edgefl_testbed import MARKS

OLDEST = (3, 11)
STAMP = ".edgefl-install"  # in the environment: the fingerprint of what was installed
MADE = ".edgefl-made"  # in an environment that `edgefl hosts install` made: from which Python
LAYER = "edgefl_layer.pth"  # in site-packages: the packages of another environment
VERSION = re.compile(r"[0-9A-Za-z.+!_-]{1,100}")
LARGE = ("torch",)  # packages that a layer takes from below in another than the pinned version
SAME_MACHINE = {"amd64": "x86_64", "arm64": "aarch64"}  # other names of architectures

# Numbers that a host tells: larger ones are no answer, and would take memory to work with.
VersionPart = Annotated[int, Meta(ge=0, le=999)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class MachineFacts(Struct, frozen=True, forbid_unknown_fields=True):
    """What ``host_probe`` tells about a machine and a Python on it; "" or None: not known.

    ``free_bytes``: on the disk of the work folder. ``edgefl`` and ``torch``: versions.
    """

    system: str
    name: str
    board: str
    machine: str
    bits: int
    libc: str
    cores: Count
    memory_bytes: Count | None
    available_bytes: Count | None
    free_bytes: Count
    python: tuple[VersionPart, VersionPart, VersionPart]
    implementation: str
    executable: str
    edgefl: str
    torch: str
    has_data: bool

    def old_python(self) -> str | None:
        """Return why edges cannot run with this Python; None if they can."""
        if self.system != "Linux":
            return f"the system is {self.system}, expected Linux"
        if self.implementation == "cpython" and self.python[:2] >= OLDEST:
            return None
        return (
            f"{self.executable} is {self.implementation} {'.'.join(map(str, self.python))},"
            f" expected CPython {OLDEST[0]}.{OLDEST[1]} or newer: name one with `python` in the"
            " inventory"
        )

    def no_wheels(self) -> str | None:
        """Return why there are no wheels of torch for this Python; None if there are."""
        if SAME_MACHINE.get(self.machine, self.machine) not in MACHINES or self.bits < 64:
            return (
                f"there is no torch for {self.machine} with a {self.bits}-bit Python; expected 64"
                f" bits and {' or '.join(MACHINES)}"
            )
        if self.libc != "glibc":
            return f"there is no torch for {self.libc or 'this C library'}, only for glibc"
        return None


class PythonFacts(MachineFacts, frozen=True, forbid_unknown_fields=True):
    """What an installation must know in addition.

    ``exists``: there is an environment; ``stamp`` and ``made``: the texts of these files in it.
    """

    libc_version: str = ""
    in_venv: bool = False
    exists: bool = False
    stamp: str = ""
    made: str = ""
    can_make_environments: bool = False
    packages: dict[str, str] = {}
    same_code: bool = False
    site: tuple[str, ...] = ()

    @property
    def target(self) -> Target:
        """What wheels must fit; of a C library of unknown version the oldest that will do."""
        parts = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", self.libc_version, re.ASCII)
        glibc = GLIBC if parts is None else (int(parts[1]), int(parts[2]))
        return Target(self.machine, self.python[:2], glibc)


def refusal(facts: PythonFacts) -> str | None:
    """Return why this Python cannot have an environment for edges; None if it can."""
    reason = facts.old_python() or facts.no_wheels()
    if reason is None and not (facts.exists or facts.can_make_environments):
        major, minor, _ = facts.python
        return (
            f"{facts.executable} cannot make environments: on Debian, Ubuntu and Raspberry Pi OS,"
            f" `sudo apt install python{major}.{minor}-venv`"
        )
    return reason


def fingerprint(own: OwnWheel, facts: PythonFacts, host: Host) -> str:
    """Return a digest of what the environment is made from: code, pins, Python, layer below.

    The pins are a file of the wheel.
    """
    below = sorted(facts.packages.items()) if host.python else []
    parts = [own.digest(), facts.python, facts.machine, facts.executable, below]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def made_from(facts: PythonFacts, host: Host) -> str:
    """Return what the environment is based on, as it is kept in the file ``MADE``."""
    return f"{facts.executable} {'with its packages' if host.python else 'alone'}"


def kept(facts: PythonFacts, pins: Mapping[str, str], ranges: Mapping[str, str]) -> dict[str, str]:
    """Return the packages below a layer that are used.

    These are the ones of the pinned version, and a torch within ``ranges`` (name -> specifier). A
    version that a host makes up names no file and no option of pip here.
    """
    from packaging.specifiers import SpecifierSet

    return {
        name: version
        for name, version in facts.packages.items()
        if VERSION.fullmatch(version)
        and (
            version.partition("+")[0] == pins.get(name)
            or (name in LARGE and SpecifierSet(ranges.get(name, "")).contains(version))
        )
    }


# ---------------------------------------------------------------------- installing
PROBE_S, VENV_S, CHECK_S = 120.0, 300.0, 300.0
PIP_S = 7200.0  # a slow path and a slow disk
# What a base environment takes on a disk, if nothing of it is there yet, and pip's copies.
BASE_BYTES, OWN_BYTES = 1_500_000_000, 100_000_000
NO_SETTINGS = {"PIP_CONFIG_FILE": "/dev/null"}  # neither /etc/pip.conf nor the user's
QUIET = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_NO_COLOR": "1"}
PIWHEELS = "piwheels.org"  # wheels for 32-bit systems, in the settings of Raspberry Pi OS
PYPI = "https://pypi.org/simple"
CRASHES = {128 + 4: "Illegal instruction", 128 + 11: "Segmentation fault"}
VERIFY = """
import torch, edgefl
from edgefl.clocks.wall.edge import host
torch.ones(2, 2) @ torch.ones(2, 2)
print(edgefl.__version__, torch.__version__)
"""
HASHES = """
import hashlib, json, os, sys
def digest(path):
    try:
        with open(os.path.expanduser(path), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None
print(json.dumps({path: digest(path) for path in json.load(sys.stdin)}))
"""


BAR_WIDTH = 24


@dataclass(slots=True)
class HostRow:
    """What one host does now, and a bar of the bytes that are sent to it."""

    name: str
    bars: Progress
    task: TaskID
    _stage: str = ""

    def stage(self, text: str, detail: str = "") -> None:
        """The host begins another step; ``detail`` is not printed in lines."""
        self.bars.update(self.task, stage=f"{text} {detail}".rstrip())
        if self._stage != text:
            self._stage = text
            self._line(text)

    def sending(self, total_bytes: int) -> None:
        """So many bytes are going to be sent to the host."""
        self.bars.update(self.task, total=max(total_bytes, 1), completed=0)
        self._line(f"{decimal(total_bytes)} to send")

    def sent(self, size: int) -> None:
        """So many more bytes were sent to the host."""
        self.bars.advance(self.task, size)

    def end(self, text: str) -> None:
        """The host is done, or has failed."""
        self.bars.update(self.task, total=1, completed=1, stage=text)
        self.bars.stop_task(self.task)
        self._line(text)

    def _line(self, text: str) -> None:
        if self.bars.disable:
            self.bars.console.print(Text(f"{self.name}: {text}"), soft_wrap=True)


@contextmanager
def hosts_progress(hosts: Sequence[str]) -> Iterator[Mapping[str, HostRow]]:
    """Show a row for each host while the block works; without a terminal, each step is a line."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(BAR_WIDTH),
        TimeElapsedColumn(),
        TextColumn("{task.fields[stage]}", markup=False),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bars:
        yield {
            name: HostRow(name, bars, bars.add_task(name, total=None, stage="connecting"))
            for name in hosts
        }


@dataclass(frozen=True, slots=True)
class Installed:
    """The result of one host: ``changed`` is False if everything was there."""

    changed: bool
    text: str


@dataclass(slots=True)
class Installer:
    """Installs edgefl on the host of ``connection``.

    ``wheels``: a wheelhouse, or None if the host gets its packages from the internet.
    """

    connection: HostConnection
    own: OwnWheel
    wheels: Path | None
    watcher: HostRow

    async def run(self) -> Installed:
        """Install what is missing. HostError, in one line, if that fails."""
        host = self.connection.host
        self.watcher.stage("looking at its Python")
        base = await self._probe(host.python or "python3")
        reason = refusal(base)
        if reason is not None:
            raise HostError(host.name, reason)
        wanted = fingerprint(self.own, base, host)
        if base.exists and base.stamp == wanted and await self._works():
            return Installed(False, f"unchanged: {self._python}")
        needed, known = ranges(self.own.path, base.target), pins(base.target.environment())
        below = kept(base, known, needed) if host.python else {}
        if base.same_code and not base.exists and needed.keys() <= below.keys():
            return Installed(False, f"unchanged: {host.python} has this edgefl")
        files = [self.own.path]
        try:
            if self.wheels is not None:
                files = [*fitting(self.own.path, base.target, self.wheels, below), *files]
            self._check_room(base, files, below)
        except UserError as error:
            raise HostError(host.name, str(error)) from error
        await self._run(["rm", "-f", "--", f"{self._folder}/{STAMP}"])
        await self._make(base)
        await self._send(files)
        await self._install(base, files, known, below)
        versions = await self._verified()
        await self.connection.put(wanted.encode(), f"{self._folder}/{STAMP}")
        await self._run(["rm", "-rf", "--", self._parcel])
        return Installed(True, versions)

    @property
    def _folder(self) -> str:
        return self.connection.host.environment

    @property
    def _python(self) -> str:
        return f"{self._folder}/bin/python"

    @property
    def _parcel(self) -> str:
        return f"{self.connection.host.folder}/wheels"

    async def _probe(self, python: str) -> PythonFacts:
        host = self.connection.host
        asked = {
            "folder": host.folder,
            "data": "",
            "venv": self._folder,
            "stamp": STAMP,
            "made": MADE,
            "packages": sorted(pins({"platform_machine": ""})),
            "files": dict(self.own.files),
        }
        done = await self.connection.run(
            [python, "-c", inspect.getsource(host_probe)],
            stdin=f"facts {json.dumps(asked)}\n".encode(),
            timeout_s=PROBE_S,
        )
        if done.status in (126, 127):
            raise HostError(host.name, f"no Python: {done.last_line()}; name one with `python`")
        try:
            return msgspec.json.decode(done.out, type=PythonFacts)
        except (msgspec.DecodeError, ValueError) as error:  # also no UTF-8
            reason = printable(done.last_line(), 120)
            raise HostError(host.name, f"{python} does not work as a Python ({reason})") from error

    async def _works(self) -> bool:
        done = await self.connection.run([self._python, "-c", "import edgefl"], timeout_s=PROBE_S)
        return done.status == 0

    def _check_room(
        self, base: PythonFacts, files: Sequence[Path], below: Mapping[str, str]
    ) -> None:
        """UserError if the disk there has no room for wheels and what is installed from them."""
        if self.wheels is None:
            needed = OWN_BYTES if "torch" in below else BASE_BYTES
        else:  # a tenth more for bytecode
            unpacked = round(1.1 * sum(map(unpacked_bytes, files)))
            needed = unpacked + sum(path.stat().st_size for path in files)
        if base.free_bytes < needed:
            free, expected = decimal(base.free_bytes), decimal(needed)
            raise UserError(f"{free} free on its disk, expected {expected}")

    async def _make(self, base: PythonFacts) -> None:
        """Make the environment, or make it again if it is ours and its Python has changed."""
        host = self.connection.host
        if not (base.exists and await self._is_of(base)):
            if base.exists and not base.made:
                raise HostError(
                    host.name,
                    f"{self._folder} is an environment of another Python, which `edgefl hosts"
                    " install` did not make: remove it, or name another one with `venv`",
                )
            self.watcher.stage("making an environment")
            if base.made:
                await self._run(["rm", "-rf", "--", self._folder], timeout_s=VENV_S)
            # first the mark: if this is interrupted, the next call knows that it is ours
            mark = made_from(base, host).encode()
            await self.connection.put(mark, f"{self._folder}/{MADE}")
            shared = ["--system-site-packages"] if host.python and not base.in_venv else []
            words = [host.python or "python3", "-m", "venv", *shared, self._folder]
            await self._run(words, timeout_s=VENV_S)
        if host.python and base.in_venv:
            lines = "".join(f"import site; site.addsitedir({path!r})\n" for path in base.site)
            major, minor, _ = base.python
            where = f"{self._folder}/lib/python{major}.{minor}/site-packages/{LAYER}"
            await self.connection.put(lines.encode(), where)

    async def _is_of(self, base: PythonFacts) -> bool:
        """Whether the environment works and is based on the named Python, as that is now."""
        if base.made not in ("", made_from(base, self.connection.host)):
            return False
        words = [self._python, "-c", "import sys, pip; print(*sys.version_info[:3])"]
        done = await self.connection.run(words, timeout_s=PROBE_S)
        return done.status == 0 and done.out.split() == [str(each).encode() for each in base.python]

    async def _install(
        self,
        base: PythonFacts,
        files: Sequence[Path],
        known: Mapping[str, str],
        below: Mapping[str, str],
    ) -> None:
        """Let pip install what edgefl needs: from the wheels, or the indexes that it has there."""
        own, path = f"{self._parcel}/{self.own.path.name}", f"{self._parcel}/constraints.txt"
        await self.connection.put(constraints(known, below).encode(), path)
        limited = ["--constraint", path]
        if base.exists:
            # an edgefl of before, or of others, whose files would be mixed with ours
            words = [self._python, "-m", "pip", "uninstall", "--yes", *MARKS]
            await self._run(words, timeout_s=VENV_S)
        if self.wheels is not None:
            others = [f"{self._parcel}/{path.name}" for path in files if path != self.own.path]
            if others:
                await self._pip(["--no-index", "--no-deps", *others], NO_SETTINGS)
        else:
            done = await self.connection.run([self._python, "-m", "pip", "config", "list"])
            settings = done.out.decode(errors="replace")
            index = torch_index(base.machine, settings)
            if index is not None and "torch" not in below:
                torch = ["--no-deps", *limited, f"torch=={known['torch']}"]
                await self._pip(torch, {"PIP_INDEX_URL": index})
            await self._pip([*limited, own], without_piwheels(settings))
        # the version may be the same as before, and the code another one
        force = ["--no-index", "--no-deps", "--force-reinstall", own]
        await self._pip(force, NO_SETTINGS)

    async def _send(self, files: Sequence[Path]) -> None:
        """Send the files that are not there yet."""
        known = {f"{self._parcel}/{path.name}": path for path in files}
        missing = await missing_files(self.connection, self._python, known)
        self.watcher.stage("copying")
        self.watcher.sending(sum(known[target].stat().st_size for target in missing))
        for target in missing:
            await self.connection.put(known[target], target, sent=self.watcher.sent)

    async def _pip(self, words: Sequence[str], env: Mapping[str, str]) -> None:
        """Run ``pip install`` and show its lines. HostError with its last error."""
        command = [self._python, "-m", "pip", "install", *words]
        process = await self.connection.start(command, env=QUIET | dict(env))
        stderr = asyncio.create_task(process.errors())
        try:
            async with asyncio.timeout(PIP_S):
                async for line in process.lines():
                    detail = pip_step(line.decode(errors="replace"))
                    if detail is not None:
                        self.watcher.stage("installing", detail)
                errors, status = (await stderr).decode(errors="replace"), await process.wait()
        except TimeoutError:
            reason = f"pip has not ended within {PIP_S / 60:g} min"
            raise HostError(self.connection.host.name, reason) from None
        finally:
            stderr.cancel()
            process.kill()  # if it has not ended
        if status:
            lines = errors.splitlines() or [""]
            reasons = [line for line in lines if line.startswith("ERROR")] or lines
            raise HostError(self.connection.host.name, f"pip failed: {printable(reasons[-1], 300)}")

    async def _verified(self) -> str:
        """Import what an edge needs; return the versions in words."""
        self.watcher.stage("trying it")
        host = self.connection.host
        done = await self.connection.run([self._python, "-c", VERIFY], timeout_s=CHECK_S)
        words = done.out.decode(errors="replace").split()
        if done.status or len(words) != 2:
            reason = CRASHES.get(done.status, done.last_line())
            raise HostError(host.name, f"{self._folder} was installed, but fails: {reason}")
        version, torch = (printable(word, 40) for word in words)
        return f"edgefl {version}, torch {torch} in {self._folder}"

    async def _run(self, words: Sequence[str], timeout_s: float = 30.0) -> None:
        done = await self.connection.run(words, timeout_s=timeout_s)
        if done.status:
            raise HostError(self.connection.host.name, f"{' '.join(words[:3])}: {done.last_line()}")


def pip_step(line: str) -> str | None:
    """Return what a line of pip's output means for the progress display; None: nothing."""
    word, _, rest = line.strip().partition(" ")
    name = printable(rest.split(" ")[0].rpartition("/")[2].partition("-")[0], 40)
    if word in ("Collecting", "Downloading", "Processing") and name:
        return name
    if line.startswith("Installing collected packages: "):
        names = line.partition(": ")[2].split(", ")
        return f"{len(names)} packages" if len(names) > 1 else printable(names[0].strip(), 40)
    return None


async def interpreter(connection: HostConnection) -> str:
    """Return the Python for edges on a host: that of its environment, else the named one.

    HostError if it has neither.
    """
    host = connection.host
    own = f"{host.environment}/bin/python"
    if (await connection.run(["test", "-x", own])).status == 0:
        return own
    if host.python is None:
        raise HostError(host.name, f"no {own}: `edgefl hosts install` makes it")
    return host.python


async def missing_files(
    connection: HostConnection, python: str, files: Mapping[str, Path]
) -> list[str]:
    """Return the targets of ``files`` (path on the host -> file here) whose content differs."""
    asked = json.dumps(list(files)).encode()
    done = await connection.run([python, "-c", HASHES], stdin=asked, timeout_s=PROBE_S)
    try:
        answer = json.loads(done.out)
        digests = {target: answer[target] for target in files}
    except (ValueError, KeyError, TypeError) as error:
        raise HostError(connection.host.name, f"{python}: {done.last_line()}") from error
    missing = []
    for target, path in files.items():
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digests[target]:
                missing.append(target)
    return missing


def without_piwheels(settings: str) -> dict[str, str]:
    """Return variables for pip that hide piwheels, which Raspberry Pi OS adds to all indexes.

    ``settings``: what ``pip config list`` prints. piwheels builds for 32-bit systems.
    """
    lines = [line for line in settings.splitlines() if "extra-index-url" in line]
    urls = [word for line in lines for word in line.partition("=")[2].strip("'\"").split()]
    if not any(PIWHEELS in url for url in urls):
        return {}
    return {"PIP_EXTRA_INDEX_URL": " ".join(url for url in urls if PIWHEELS not in url) or PYPI}
