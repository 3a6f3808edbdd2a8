"""Names in an anonymous artifact: of its author, the author's machines and folders."""

from __future__ import annotations

import getpass
import platform
import re
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edgefl.errors import UserError
from edgefl.plugins.artifact.contents import Contents

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
    return len(name) >= SHORTEST and name.lower() not in NOBODY and name.strip("/.") != ""


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
