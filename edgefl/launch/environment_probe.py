"""Tells what a Python on a host has. Its source runs there, so it needs nothing but Python.

It reads JSON from stdin: ``files`` (path in the packages -> SHA-256), ``packages`` (names),
``folder``, ``stamp`` and ``made`` (paths). It prints one JSON object.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
import sysconfig
from typing import Any


def same_files(files: dict[str, str]) -> bool:
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


def versions(names: list[str]) -> dict[str, str]:
    """Return the version of each of these packages that is installed."""
    from importlib import metadata

    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def free_bytes(folder: str) -> int:
    """Return the free space in ``folder``, or where it would be made."""
    place = os.path.abspath(folder)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    return shutil.disk_usage(place).free


def can_make_environments() -> bool:
    """Whether this Python has venv and the pip for it; Debian has them in a package of its own."""
    from importlib.util import find_spec

    return find_spec("venv") is not None and find_spec("ensurepip") is not None


def text_of(path: str) -> str:
    """Return the content of a file, "" if there is none."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def facts(asked: dict[str, Any]) -> dict[str, Any]:
    """Return what ``Facts`` of edgefl.launch.installer holds."""
    found: dict[str, Any] = {
        "python": list(sys.version_info[:3]),
        "implementation": sys.implementation.name,
        "machine": platform.machine(),
        "system": platform.system(),
        "bits": sys.maxsize.bit_length() + 1,
        "libc": list(platform.libc_ver()),
        "executable": sys.executable,
        "in_venv": sys.prefix != sys.base_prefix,
    }
    if sys.version_info < (3, 11):  # noqa: UP036  # it runs on the Python that a host has
        return found  # the rest needs a newer Python, and is not asked for
    found["stamp"], found["made"] = text_of(asked["stamp"]), text_of(asked["made"])
    found["free_bytes"] = free_bytes(os.path.expanduser(asked["folder"]))
    found["can_make_environments"] = can_make_environments()
    found["packages"] = versions(asked["packages"])
    found["same_code"] = same_files(asked["files"])
    found["site"] = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    return found


if __name__ == "__main__":
    print(json.dumps(facts(json.load(sys.stdin))))
