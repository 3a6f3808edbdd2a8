"""A Debian root for 64-bit ARM in a folder, whose programs QEMU runs.

Each program runs in mount and process namespaces of its own. So a mount ends with the program, and
the program with this process, even if that is killed. What a killed call leaves is the folder, and
perhaps an entry of binfmt_misc: the next call uses them, and removes them at its end.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from edgefl.errors import UserError

MISC = Path("/proc/sys/fs/binfmt_misc")
RULE = Path("/usr/lib/binfmt.d/qemu-aarch64.conf")  # of Debian's qemu-user-static
ENTRY = "edgefl-aarch64"  # our own rule, where the system has none
MARK = ".edgefl-arm64"  # in the folder: this program made it; "complete" when debootstrap is done
PACKAGES = "python3,ca-certificates"  # install_pi.sh adds what else it needs
DIES_WITH_US = ["setpriv", "--pdeathsig", "KILL"]
APART = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
PROGRAMS = ("debootstrap", "unshare", "setpriv", "chroot")
# Settings with which pip and apt reach the network here, and so in the root.
NETWORK = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT"),
    *("http_proxy", "https_proxy", "no_proxy"),
)


def lacking() -> list[str]:
    """Return what this machine lacks for such a root, each as a short text."""
    missing = [f"the program {name}" for name in PROGRAMS if shutil.which(name) is None]
    if os.geteuid() != 0:
        missing.insert(0, "root")
    if platform.machine() != "aarch64":
        if not (MISC / "register").exists():
            missing.append(f"binfmt_misc: mount -t binfmt_misc binfmt_misc {MISC}")
        elif not RULE.exists() and not _registered():
            missing.append("the Debian package qemu-user-static")
    return missing


def _registered() -> bool:
    """Return whether the kernel starts ARM programs with a QEMU that it keeps open (flag F)."""
    magic = "7f454c460201010000000000000000000200b7"
    rules = [path for path in MISC.glob("*") if path.name not in ("register", "status")]
    texts = [path.read_text() for path in rules]
    return any(
        f"magic {magic}" in text
        and text.startswith("enabled")
        and "F" in text.partition("flags:")[2].split("\n")[0]
        for text in texts
    )


@contextmanager
def emulated() -> Iterator[None]:
    """Let the kernel start programs for 64-bit ARM, and end that if it was not so before."""
    if platform.machine() != "aarch64" and not _registered():
        rule = RULE.read_text().strip().replace(":qemu-aarch64:", f":{ENTRY}:", 1)
        (MISC / "register").write_text(rule)
    try:
        yield
    finally:
        if (MISC / ENTRY).exists():
            (MISC / ENTRY).write_text("-1")


class Arm64Root:
    """The root in ``folder``; programs in it see the processor ``cpu`` (a name of QEMU's)."""

    def __init__(self, folder: Path, cpu: str) -> None:
        self.folder, self._cpu = folder.absolute(), cpu

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other calls of this program away from the folder.

        UserError if it is in use, or if another program made it.
        """
        mark = self.folder / MARK
        if self.folder.exists() and any(self.folder.iterdir()) and not mark.exists():
            raise UserError(f"{self.folder}: has files that this program did not write")
        self.folder.mkdir(parents=True, exist_ok=True)
        with mark.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise UserError(f"{self.folder}: another call of this program uses it") from error
            yield

    @property
    def is_complete(self) -> bool:
        """Whether an earlier call has made the root."""
        return (self.folder / MARK).read_text() == "complete"

    def make(self, suite: str, mirror: str) -> None:
        """Make the root. What an interrupted call left of one is removed first."""
        mark = self.folder / MARK
        for path in self.folder.iterdir():
            if path != mark:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        words = ["debootstrap", "--arch=arm64", "--variant=minbase", f"--include={PACKAGES}"]
        done = subprocess.run(
            [*DIES_WITH_US, *APART, *words, suite, str(self.folder), mirror],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            reason = (done.stdout + done.stderr).strip().splitlines()[-1:]
            raise UserError(f"debootstrap {suite} {mirror}: {reason}")
        for name in ("resolv.conf", "hosts"):
            shutil.copy(f"/etc/{name}", self.folder / "etc" / name)
        mark.write_text("complete")

    def remove(self) -> None:
        """Remove the folder. No mount can be in it: all were in namespaces that have ended."""
        shutil.rmtree(self.folder)

    def words(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs ``command`` in the root, in the folder /root."""
        inside = [f"{name}={value}" for name, value in self._environment().items()]
        proc = f"--mount-proc={self.folder / 'proc'}"
        chroot = ["chroot", str(self.folder), "/usr/bin/env", "-C", "/root", "-i", *inside]
        return [*DIES_WITH_US, *APART, proc, *chroot, *command]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the root to its end. UserError with its last line if it fails."""
        done = subprocess.run(
            self.words(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=os.environ | self._qemu(),
        )
        if done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise UserError(
                f"in the ARM root: {' '.join(command)}: status {done.returncode}: {last}"
            )
        return done

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in NETWORK if name in os.environ}
        certificates = os.environ.get("SSL_CERT_FILE")
        if certificates:
            shutil.copy(certificates, self.folder / "root" / "ca.crt")
            kept |= {"PIP_CERT": "/root/ca.crt", "SSL_CERT_FILE": "/root/ca.crt"}
        system = {"HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
        return kept | system | self._qemu()

    def _qemu(self) -> dict[str, str]:
        return {"QEMU_CPU": self._cpu} if platform.machine() != "aarch64" else {}
