"""Hosts that do not exist: network namespaces on one bridge, each with an OpenSSH server.

Every host has its own home directory (mounted over that of root), host key and addresses; the
rest of the file system is that of this machine. This needs root, `ip` and Debian's
openssh-server: ``refusal`` says why it cannot work here. A rig that was killed is removed by the
next one.

    with ssh_hosts(4) as rig:
        inventory.write_text(rig.inventory(venv="/path/to/venv"))
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import tomli_w
from paths import ROOT

PREFIX = "sshrig"
RIGS = 16  # at the same time on one machine
LOCKS = Path("/run")
NAMESPACES, INTERFACES = Path("/run/netns"), Path("/sys/class/net")
PATIENCE_S = 30.0
SSH_PORT = 22
OWN_NUMBER = 254
CONFIG = """
Port {port}
ListenAddress {address}
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM {pam}
StrictModes no
MaxStartups 100
MaxSessions 100
"""
# $1: the host's home here, $2: root's home, then folders that must stay visible, then the command
IN_ITS_HOME = """
home=$1 mine=$2; shift 2
mount --make-rprivate /
[ -z "$DISK" ] || mount -t tmpfs -o "size=$DISK,mode=755,uid=$OWNER" rig "$home"
while [ "$1" != -- ]; do
    mkdir -p "$home/${1#"$mine"/}"
    mount --rbind "$1" "$home/${1#"$mine"/}"
    shift
done
shift
mount --rbind "$home" "$mine"
for file in passwd shadow; do
    [ ! -e "$home/../$file" ] || mount --bind "$home/../$file" "/etc/$file"
done
cd /
exec "$@"
"""
USER_ID = 4711  # of a host's user who is not root


@cache
def refusal() -> str:
    """The reason why hosts cannot be made here; '' if they can."""
    missing = [name for name in ("ip", "tc", "sshd", "ssh-keygen", "mount") if tool(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: iproute2 openssh-server)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    probe = f"{PREFIX}-probe-{os.getpid()}"  # others may probe at the same time
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True)
    return f"no network namespaces: {made.stderr.strip()}" if made.returncode else ""


def tool(name: str) -> str | None:
    """The path of a program, also of one that only root has."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def execute(*argv: str) -> str:
    """Run one command and return its output; AssertionError if it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr or done.stdout}"
    return done.stdout


@dataclass(eq=False)
class SSHHost:
    """One host: a namespace, its address, and its files in ``folder``.

    ``disk_bytes``: size of its home. ``machine``: what ``uname -m`` says there, such as "i686".
    ``user``: who logs in; all users of a host have the same home.
    """

    name: str
    address: str
    link: str  # the end of its cable at the bridge
    folder: Path
    disk_bytes: int | None = None
    machine: str | None = None
    user: str = "root"
    server: subprocess.Popen[bytes] | None = None

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def user_id(self) -> int:
        return 0 if self.user == "root" else USER_ID

    @property
    def log(self) -> str:
        """What the ssh server has said."""
        return (self.folder / "sshd.log").read_text(errors="replace")

    def start(self) -> None:
        """Start the ssh server, and wait until it listens."""
        mine = pwd.getpwuid(0).pw_dir
        visible = [
            path for path in {str(ROOT), sys.prefix, sys.base_prefix} if path.startswith(f"{mine}/")
        ]
        sshd = [tool("sshd") or "sshd", "-D", "-e", "-f", str(self.folder / "sshd_config")]
        if self.machine is not None:
            sshd = ["setarch", self.machine, *sshd]
        inside = ["ip", "netns", "exec", self.name, "sh", "-euc", IN_ITS_HOME, "sh"]
        with (self.folder / "sshd.log").open("ab") as log:
            self.server = subprocess.Popen(
                [*inside, str(self.home), mine, *visible, "--", *sshd],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"DISK": str(self.disk_bytes or ""), "OWNER": str(self.user_id)},
                start_new_session=True,
            )
        wait_for(self._listens)

    def _listens(self) -> bool:
        assert self.server is not None and self.server.poll() is None, self.log
        with suppress(OSError), socket.create_connection((self.address, SSH_PORT), 1.0) as link:
            return link.recv(4) == b"SSH-"
        return False

    def stop(self, *, connections: bool = False) -> None:
        """Kill the ssh server; ``connections``: also those that it has accepted."""
        assert self.server is not None
        if connections:
            os.killpg(self.server.pid, signal.SIGKILL)
            for pid in self.processes("sshd"):
                os.kill(pid, signal.SIGKILL)
        self.server.kill()
        self.server.wait()

    def processes(self, name: str = "") -> list[int]:
        """The processes of this host whose command has ``name`` in it."""
        found = []
        for word in execute("ip", "netns", "pids", self.name).split():
            with suppress(OSError):
                if name.encode() in Path(f"/proc/{word}/cmdline").read_bytes():
                    found.append(int(word))
        return found

    def new_host_key(self) -> None:
        """Give it another host key, as after a new installation; it is used from now on."""
        for file in self.folder.glob("host_key*"):
            file.unlink()
        make_key(self.folder / "host_key")

    def cut(self) -> None:
        """Pull its cable out."""
        execute("ip", "link", "set", "dev", self.link, "down")

    def restore(self) -> None:
        """Put its cable back in."""
        execute("ip", "link", "set", "dev", self.link, "up")

    def limit(self, rate_mbit_s: float) -> None:
        """Set the rate of its cable, in both directions."""
        for where, device in (([], self.link), (["-n", self.name], "eth0")):
            shape = f"root tbf rate {rate_mbit_s}mbit burst 64kb latency 50ms".split()
            execute("tc", *where, "qdisc", "replace", "dev", device, *shape)


@dataclass(frozen=True)
class Rig:
    """Hosts on one bridge. ``address``: this machine's; ``identity``: a key that all accept."""

    number: int
    folder: Path
    hosts: list[SSHHost] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"10.83.{self.number}.{OWN_NUMBER}"

    @property
    def bridge(self) -> str:
        return f"{PREFIX}{self.number}"

    @property
    def identity(self) -> Path:
        return self.folder / "id"

    @property
    def known_hosts(self) -> Path:
        """A file with the keys of all hosts."""
        return self.folder / "known_hosts"

    def inventory(
        self,
        coordinator: Mapping[str, object] | None = None,
        by_host: Mapping[int, Mapping[str, object]] | None = None,
        only: Sequence[int] | None = None,
        **defaults: object,
    ) -> str:
        """An inventory of all hosts, or ``only`` of some, as TOML.

        ``defaults``: keys of [defaults]; ``by_host``: further keys by the index of a host.
        """
        login = {"user": self.hosts[0].user, "identity": str(self.identity)}
        tables = {"defaults": login | {"known_hosts": str(self.known_hosts)} | defaults}
        if coordinator is not None:
            tables["coordinator"] = dict(coordinator)
        hosts = [
            tomli_w.dumps({"hosts": {"host": host.address} | dict((by_host or {}).get(index, {}))})
            for index, host in enumerate(self.hosts)
            if only is None or index in only
        ]
        tables_of_hosts = [text.replace("[hosts]", "[[hosts]]", 1) for text in hosts]
        return "\n".join([tomli_w.dumps(tables), *tables_of_hosts])

    def trust(self) -> None:
        """Write the present keys of all hosts to known_hosts."""
        lines = [
            " ".join([host.address, *(host.folder / "host_key.pub").read_text().split()[:2]])
            for host in self.hosts
        ]
        self.known_hosts.write_text("\n".join(lines) + "\n")


@contextmanager
def ssh_hosts(
    count: int,
    *,
    rate_mbit_s: float | None = None,
    disk_bytes: Mapping[int, int] | None = None,
    machines: Mapping[int, str] | None = None,
    user: str = "root",
) -> Iterator[Rig]:
    """Make ``count`` hosts with ssh servers; at the end, remove everything.

    ``rate_mbit_s``: rate of each host's cable in both directions. ``disk_bytes`` and ``machines``:
    by the index of a host, see ``SSHHost``. ``user``: who may log in to all hosts.
    """
    with _claimed() as number, ExitStack() as stack:
        rig = Rig(number, Path(tempfile.gettempdir()) / f"{PREFIX}{number}")
        stack.callback(_end_servers, rig)
        stack.callback(remove, number)
        rig.folder.mkdir(mode=0o711)  # another user's ssh server reads below it
        Path("/run/sshd").mkdir(exist_ok=True)  # as the package's service does
        make_key(rig.identity)
        execute("ip", "link", "add", rig.bridge, "type", "bridge")
        execute("ip", "address", "add", f"{rig.address}/24", "dev", rig.bridge)
        execute("ip", "link", "set", "dev", rig.bridge, "up")
        for index in range(count):
            host = SSHHost(
                f"{rig.bridge}-{index + 1}",
                f"10.83.{number}.{index + 1}",
                f"{rig.bridge}e{index + 1}",
                rig.folder / f"host{index + 1}",
                (disk_bytes or {}).get(index),
                (machines or {}).get(index),
                user,
            )
            rig.hosts.append(host)
            _join(host, rig, rate_mbit_s)
            _furnish(host, rig)
            host.start()
        rig.trust()
        yield rig


def _join(host: SSHHost, rig: Rig, rate_mbit_s: float | None) -> None:
    """Make the namespace, and its cable to the bridge."""
    execute("ip", "netns", "add", host.name)
    execute(*f"ip link add {host.link} type veth peer name eth0 netns {host.name}".split())
    execute(*f"ip link set dev {host.link} master {rig.bridge} up".split())
    inside = ["ip", "-n", host.name]
    execute(*inside, *f"address add {host.address}/24 dev eth0".split())
    for device in ("lo", "eth0"):
        execute(*inside, "link", "set", "dev", device, "up")
    execute(*inside, "route", "add", "default", "via", rig.address)
    if rate_mbit_s is not None:
        host.limit(rate_mbit_s)


def _furnish(host: SSHHost, rig: Rig) -> None:
    """Make its files: a home, a host key, who may log in."""
    host.home.mkdir(parents=True)
    os.chown(host.home, host.user_id, host.user_id)
    make_key(host.folder / "host_key")
    shutil.copy(f"{rig.identity}.pub", host.folder / "authorized_keys")
    password = Path("/etc/shadow").read_text().partition("root:")[2].partition(":")[0]
    if host.user_id:
        mine = pwd.getpwuid(0).pw_dir
        account = f"{host.user}:x:{host.user_id}:{host.user_id}::{mine}:/bin/sh\n"
        for file, line in (("passwd", account), ("shadow", f"{host.user}:*:19000:0:99999:7:::\n")):
            (host.folder / file).write_text(Path("/etc", file).read_text() + line)
        (host.folder / "shadow").chmod(0o600)
    config = CONFIG.format(
        port=SSH_PORT,
        address=host.address,
        folder=host.folder,
        # without PAM, the server refuses a user whose password is locked
        pam="yes" if password.startswith("!") else "no",
    )
    (host.folder / "sshd_config").write_text(config)


def make_key(path: Path) -> None:
    """Make a key pair without a passphrase."""
    execute("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", PREFIX, "-f", str(path))


def wait_for(found: Callable[[], object]) -> None:
    """Wait until ``found`` returns a true value."""
    until_s = time.monotonic() + PATIENCE_S
    while not found():
        assert time.monotonic() < until_s, f"waited {PATIENCE_S:g} s for {found}"
        time.sleep(0.02)


def remove(number: int) -> None:
    """End all processes of a rig, and remove its namespaces, bridge and files."""
    own = [path.name for path in NAMESPACES.glob(f"{PREFIX}{number}-*")]
    for name in own:
        until_s = time.monotonic() + PATIENCE_S
        while pids := execute("ip", "netns", "pids", name).split():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            assert time.monotonic() < until_s, f"processes of {name} do not end: {pids}"
            time.sleep(0.02)
        execute("ip", "netns", "del", name)
    for device in [f"{PREFIX}{number}", *_cables(number)]:
        with suppress(AssertionError):  # a cable goes with its namespace, a little later
            execute("ip", "link", "del", "dev", device)
    shutil.rmtree(Path(tempfile.gettempdir()) / f"{PREFIX}{number}", ignore_errors=True)


def _end_servers(rig: Rig) -> None:
    """Wait for the processes that ``remove`` has killed."""
    for host in rig.hosts:
        if host.server is not None:
            host.server.wait(PATIENCE_S)


def _cables(number: int) -> Sequence[str]:
    return [path.name for path in INTERFACES.glob(f"{PREFIX}{number}e*")]


@contextmanager
def _claimed() -> Iterator[int]:
    """Claim a number, after removing what killed rigs have left."""
    for number in range(RIGS):
        file = LOCKS / f"{PREFIX}{number}.lock"
        with file.open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not file.exists() or os.fstat(lock.fileno()).st_ino != file.stat().st_ino:
                    continue
            except BlockingIOError:
                continue
            remove(number)
            try:
                yield number
                return
            finally:
                file.unlink(missing_ok=True)
    raise AssertionError(f"{RIGS} rigs at a time are the most")
