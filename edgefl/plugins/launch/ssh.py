"""Commands on another machine, by ssh. A host's key is always checked."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import asyncssh

from edgefl.plugins.launch.connections import (
    MOST_QUOTED,
    NO_ENV,
    SAFE_PATH,
    HostConnection,
    HostError,
    RemoteProcess,
    UnknownHostKey,
)
from edgefl.plugins.launch.inventory import SSH_PORT, Host

CONNECT_S, LOGIN_S = 10.0, 20.0
START_S = 30.0  # for a command
MOST_DIGITS = 10  # of a process id
KEEPALIVE_S, KEEPALIVES = 5.0, 3  # a host that is silent for 15 s is lost
GLOBAL_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")
LOST = (OSError, asyncssh.Error)
KINDS = {"ssh-ed25519": "ED25519", "ssh-rsa": "RSA"}


def known_hosts_file(host: Host) -> Path:
    """The file to which an accepted key is added."""
    return host.known_hosts or Path("~/.ssh/known_hosts").expanduser()


class _KeyWatcher(asyncssh.SSHClient):
    """Refuses each key that known_hosts does not have, and keeps the last one for the message."""

    refused: tuple[str, str, int, asyncssh.SSHKey] | None = None

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        self.refused = (host, addr, port, key)
        return False


async def open_ssh(host: Host) -> SSHConnection:
    """Log in with a key.

    UnknownHostKey if the host's key is not known, HostError if the host cannot be reached, its key
    has changed, or it refuses the login.
    """
    known, watcher = _known(host), _KeyWatcher()
    login: dict[str, Any] = {"username": host.user, "port": host.port}
    if host.identity is not None:
        login["client_keys"] = [str(host.identity)]
    try:
        connection = await asyncssh.connect(
            host.name,
            known_hosts=known,
            client_factory=lambda: watcher,
            preferred_auth="publickey",
            connect_timeout=CONNECT_S,
            login_timeout=LOGIN_S,
            keepalive_interval=KEEPALIVE_S,
            keepalive_count_max=KEEPALIVES,
            **{key: value for key, value in login.items() if value is not None},
        )
    except asyncssh.HostKeyNotVerifiable as error:
        raise _about_key(host, known, watcher, error) from error
    except asyncssh.PermissionDenied as error:
        raise HostError(host.name, _refusal(host)) from error
    except asyncssh.KeyImportError as error:
        raise HostError(
            host.name, f"identity {host.identity}: {_identity_problem(error)}"
        ) from error
    except (OSError, asyncssh.Error, ValueError) as error:
        raise HostError(host.name, _unreachable(host, error)) from error
    socket_name = connection.get_extra_info("sockname")
    return SSHConnection(host, socket_name[0] if socket_name else None, connection)


def _known(host: Host) -> asyncssh.SSHKnownHosts:
    """All known keys; an empty list if there are no files, so that no key is accepted unseen."""
    files = [file for file in (known_hosts_file(host), GLOBAL_KNOWN_HOSTS) if file.is_file()]
    try:
        return asyncssh.read_known_hosts([str(file) for file in files])
    except (OSError, ValueError) as error:
        raise HostError(host.name, f"{' or '.join(map(str, files))}: {error}") from error


def _about_key(
    host: Host, known: asyncssh.SSHKnownHosts, watcher: _KeyWatcher, error: Exception
) -> HostError:
    if watcher.refused is None:  # a revoked key, or a certificate
        return HostError(host.name, f"host key refused: {error}")
    name, address, port, key = watcher.refused
    fingerprint = key.get_fingerprint()
    algorithm = key.get_algorithm()
    kind = KINDS.get(algorithm, "ECDSA" if algorithm.startswith("ecdsa") else algorithm)
    place = name if port == SSH_PORT else f"[{name}]:{port}"
    file = known_hosts_file(host)
    if known.match(name, address, None if port == SSH_PORT else port)[0]:
        return HostError(
            host.name,
            f"the host key has changed (now {kind}, fingerprint {fingerprint}): someone may be"
            " listening. If the change is expected: ssh-keygen -R"
            f" {shlex.quote(place)} -f {shlex.quote(str(file))}",
        )
    public = key.export_public_key().decode().split()
    return UnknownHostKey(host.name, kind, fingerprint, file, f"{place} {public[0]} {public[1]}")


def _refusal(host: Host) -> str:
    who = f"user {host.user!r}" if host.user else "your user name there"
    key = f"the key {host.identity}" if host.identity else "your keys (~/.ssh, ssh-agent)"
    return f"the host refused {key} for {who}: add the public key to its authorized_keys"


def _identity_problem(error: Exception) -> str:
    if "passphrase" in str(error).lower():
        return "has a passphrase: run ssh-add, and leave out identity"
    return f"is no private key ({error})"


def _unreachable(host: Host, error: Exception) -> str:
    port = host.port or SSH_PORT
    if isinstance(error, TimeoutError):
        return f"no answer from port {port} in {CONNECT_S:g} s"
    if isinstance(error, OSError):
        number = error.errno or 0  # below 0: of the resolver, which has words of its own
        why = os.strerror(number) if number > 0 else error.strerror or error
        return f"cannot be reached at port {port} ({why})"
    return f"no ssh connection at port {port} ({error})"


class SSHConnection(HostConnection):
    """A login on another machine."""

    def __init__(
        self, host: Host, own_address: str | None, connection: asyncssh.SSHClientConnection
    ) -> None:
        super().__init__(host, own_address)
        self._connection = connection
        self._kills: set[asyncio.Task[None]] = set()

    async def start(self, argv: Sequence[str], *, env: Mapping[str, str] = NO_ENV) -> RemoteProcess:
        try:
            async with asyncio.timeout(START_S):
                process = await self._exec(command(argv, SAFE_PATH | dict(env)))
                # what `command` makes the shell say first
                pid = (await process.stdout.readline()).strip()
                known = pid.isdigit() and len(pid) <= MOST_DIGITS
                answer = b"" if known else pid or await process.stderr.read(MOST_QUOTED)
        except TimeoutError:
            raise HostError(self.host.name, f"its shell is silent for {START_S:g} s") from None
        except LOST as error:
            raise HostError(self.host.name, f"lost the connection ({error})") from error
        if not known:
            text = answer[:MOST_QUOTED].decode(errors="replace")
            raise HostError(self.host.name, f"the shell there failed: {text or 'no output'}")
        kill = partial(self._kill_soon, process, int(pid))
        return RemoteProcess(self.host, process, LOST, process.wait_closed, kill)

    async def close(self) -> None:
        with suppress(TimeoutError, OSError, asyncssh.Error):
            async with asyncio.timeout(CONNECT_S):
                await asyncio.gather(*self._kills)
                self._connection.close()
                await self._connection.wait_closed()

    async def _exec(self, line: str) -> asyncssh.SSHClientProcess[bytes]:
        try:
            return await self._connection.create_process(line, encoding=None)
        except LOST as error:
            raise HostError(self.host.name, f"lost the connection ({error})") from error

    def _kill_soon(self, process: asyncssh.SSHClientProcess[bytes], pid: int) -> None:
        """Kill a session there; the server may refuse to do it (for root it does)."""
        if process.returncode is not None:  # its id may be that of another process now
            return
        task = asyncio.create_task(self._kill(pid))
        self._kills.add(task)
        task.add_done_callback(self._kills.discard)

    async def _kill(self, pid: int) -> None:
        with suppress(HostError):  # without a connection nothing can be sent
            process = await self._exec(f"kill -KILL -- -{pid}")
            await process.wait()


def command(argv: Sequence[str], env: Mapping[str, str] = NO_ENV) -> str:
    """Format a command for the shell of a login; its first line of output is its process id.

    Not all servers accept variables, so `env` sets them.
    """
    words = [f"{key}={_word(value)}" for key, value in env.items()]
    shell = [*(["env", *words] if words else []), "sh", "-c", shlex.quote('echo $$; exec "$@"')]
    # the shell starts the command: `env` would run a program for another processor as a script
    return " ".join(["exec", *shell, "sh", *map(_word, argv)])


def _word(text: str) -> str:
    if text == "~":
        return '"$HOME"'
    if text.startswith("~/"):
        return f'"$HOME"/{shlex.quote(text[2:])}' if text != "~/" else '"$HOME"/'
    return shlex.quote(text)
