"""Wheels of a few bytes and a Python with torch, for tests of installations."""

from __future__ import annotations

import subprocess
import sys
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


def python_with_torch(folder: Path) -> str:
    """A Python with all packages of the tests, but without edgefl."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    ours = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    # Python does not read the .pth files in there, one of which names the checkout.
    (site / "packages_of_the_tests.pth").write_text("\n".join(ours))
    return str(folder / "bin" / "python")
