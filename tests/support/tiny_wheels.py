"""Wheels of a few bytes, for tests of what is chosen, sent and installed."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    tag: str = "py3-none-any",
    needs: Sequence[str] = (),
    code: str = "",
    files: Mapping[str, str] | None = None,
) -> Path:
    """Write a wheel with one module, ``code``, or with ``files``, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    about = f"{name}-{version}.dist-info"
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {each}" for each in needs)]
    with zipfile.ZipFile(path, "w") as archive:
        for path_in_it, text in (files or {f"{name}/__init__.py": code}).items():
            archive.writestr(path_in_it, text)
        archive.writestr(f"{about}/METADATA", "\n".join(["Metadata-Version: 2.1", *lines, ""]))
        archive.writestr(
            f"{about}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n"
        )
        rows = [f"{entry},," for entry in archive.namelist()]
        archive.writestr(f"{about}/RECORD", "\n".join([*rows, f"{about}/RECORD,,", ""]))
    return path
