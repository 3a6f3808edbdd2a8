"""Tells what a machine is, and answers measurements of its clock and its network.

Its source runs on a host that may have nothing but an old Python 3: only the standard library, and
no newer syntax. It reads commands from stdin, one a line, and answers in lines of JSON:

    facts ASKED          what the machine and this Python are, see ``facts``; ASKED is a JSON text
    clock                when the command came and when the answer goes (ns since 1970)
    take N               reads N bytes, then answers
    give N               sends N bytes
    connect HOST PORT TOKEN    answers; then serves the same commands on this TCP connection
"""

import hashlib
import json
import os
import platform
import shutil
import socket
import struct
import sys
import sysconfig
import time
from contextlib import suppress
from typing import IO

BLOCK = 1 << 16
CONNECT_S = 5.0


def free_bytes(folder: str) -> int:
    """Return the free space in ``folder``, or where it would be made."""
    place = os.path.abspath(os.path.expanduser(folder))
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    return shutil.disk_usage(place).free


def text_of(path: str) -> str:
    """Return the text of a small file; "" if it cannot be read."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8", errors="replace") as file:
            return file.read(BLOCK)
    except OSError:
        return ""


def memory_bytes() -> tuple:  # type: ignore[type-arg]  # an old Python evaluates annotations
    """Return the memory of the machine, and what of it is free; None where it is not known."""
    lines = [line.split() for line in text_of("/proc/meminfo").splitlines()]
    known = {words[0]: int(words[1]) * 1024 for words in lines if len(words) > 1}
    if "MemTotal:" in known:
        return known["MemTotal:"], known.get("MemAvailable:")
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), None
    except (AttributeError, OSError, ValueError):
        return None, None


def value_of(path: str, wanted: str, separator: str) -> str:
    """Return the first value of a key in a file of keys and values; "" if it has none."""
    for line in text_of(path).splitlines():
        key, _, value = line.partition(separator)
        if key.strip() == wanted:
            return value.strip("\"' \t")
    return ""


def version_of(package: str) -> str:
    """Return the version of an installed package; "" if it is not installed."""
    try:
        from importlib import metadata

        return metadata.version(package)
    except Exception:  # Python 3.7 has no such module; a package may be damaged
        return ""


def edgefl_version() -> str:
    """Return the version of the edgefl that this Python imports; "" if there is none."""
    try:
        import edgefl

        return str(edgefl.__version__)
    except Exception:
        return ""


def facts(asked: dict) -> dict:  # type: ignore[type-arg]  # as above
    """Return what `MachineFacts` of edgefl.plugins.launch.installer holds.

    ``asked``: ``folder`` and ``data`` (paths, "" for none). For an installation also ``venv`` (path
    of the environment), ``stamp`` and ``made`` (names of files in it), ``packages`` (names) and
    ``files`` (path in the packages -> SHA-256): then it is what `PythonFacts` there holds.
    """
    total, available = memory_bytes()
    sees_cores = hasattr(os, "sched_getaffinity")
    libc, libc_version = platform.libc_ver()
    found = {
        "system": platform.system(),
        "name": value_of("/etc/os-release", "PRETTY_NAME", "=")
        or (platform.system() + " " + platform.release()).strip(),
        # that of a Raspberry Pi, else of the processor
        "board": text_of("/proc/device-tree/model").strip("\0\n ")
        or value_of("/proc/cpuinfo", "model name", ":"),
        "machine": platform.machine(),
        "bits": struct.calcsize("P") * 8,
        "libc": libc,
        "cores": len(os.sched_getaffinity(0)) if sees_cores else os.cpu_count() or 1,
        "memory_bytes": total,
        "available_bytes": available,
        "free_bytes": free_bytes(asked["folder"]),
        "python": list(sys.version_info[:3]),
        "implementation": sys.implementation.name,
        "executable": sys.executable,
        "edgefl": edgefl_version(),
        "torch": version_of("torch"),
        "has_data": bool(asked["data"]) and os.path.isdir(os.path.expanduser(asked["data"])),
    }
    if "venv" not in asked:
        return found
    venv = os.path.expanduser(asked["venv"])
    found.update(
        libc_version=libc_version,
        in_venv=sys.prefix != sys.base_prefix,
        exists=os.path.isfile(os.path.join(venv, "bin", "python")),
        stamp=text_of(os.path.join(venv, asked["stamp"])),
        made=text_of(os.path.join(venv, asked["made"])),
    )
    if sys.version_info < (3, 11):  # noqa: UP036  # it runs on the Python that a host has
        return found  # the rest needs a newer Python, and is not asked for
    from importlib.util import find_spec

    versions = {name: version_of(name) for name in asked["packages"]}
    found.update(
        # Debian has the pip for environments in a package of its own
        can_make_environments=bool(find_spec("venv") and find_spec("ensurepip")),
        packages={name: version for name, version in versions.items() if version},
        same_code=same_files(asked["files"]),
        site=sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}),
    )
    return found


def same_files(files: dict) -> bool:  # type: ignore[type-arg]  # as above
    """Whether the edgefl that this Python imports has these files."""
    from importlib.util import find_spec

    try:
        spec = find_spec("edgefl")
    except ValueError:
        return False
    if spec is None or spec.origin is None:
        return False
    root = os.path.dirname(os.path.dirname(spec.origin))
    for name, digest in files.items():
        try:
            with open(os.path.join(root, name), "rb") as file:
                if hashlib.sha256(file.read()).hexdigest() != digest:
                    return False
        except OSError:
            return False
    return True


def now_ns() -> int:
    """Return the ns since 1970."""
    return time.time_ns() if hasattr(time, "time_ns") else int(time.time() * 1e9)


def serve(source: IO[bytes], target: IO[bytes]) -> None:
    """Answer commands until ``source`` ends."""
    while True:
        line = source.readline()
        came_ns = now_ns()
        if not line:
            return
        command, _, rest = line.decode().strip().partition(" ")
        if command == "facts":
            answer(target, facts(json.loads(rest)))
        elif command == "clock":
            answer(target, {"came_ns": came_ns, "goes_ns": now_ns()})
        elif command == "take":
            left = int(rest)
            while left:
                block = source.read(min(left, BLOCK))
                if not block:
                    return
                left -= len(block)
            answer(target, {})
        elif command == "give":
            for start in range(0, int(rest), BLOCK):
                target.write(bytes(min(BLOCK, int(rest) - start)))
            target.flush()
        elif command == "connect":
            connect(target, *rest.split())


def connect(target: IO[bytes], host: str, port: str, token: str) -> None:
    """Connect to the measuring machine, and serve it there until it hangs up."""
    try:
        link = socket.create_connection((host, int(port)), CONNECT_S)
    except OSError as error:
        answer(target, {"error": error.strerror or str(error)})
        return
    link.settimeout(None)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.sendall(token.encode() + b"\n")
    answer(target, {})
    with suppress(OSError):  # the other side tells why
        serve(link.makefile("rb"), link.makefile("wb"))
    link.close()


def answer(target: IO[bytes], found: dict) -> None:  # type: ignore[type-arg]  # as above
    """Send a line of JSON."""
    target.write(json.dumps(found).encode() + b"\n")
    target.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
