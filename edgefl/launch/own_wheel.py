"""The wheel of this edgefl, for other machines.

From a checkout it is built anew; an installed edgefl is packed again from its files. In both cases
the hosts get the code that runs here.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from edgefl.errors import UserError, needs, printable

NAME = "edgefl"
PACKAGES = ("edgefl/", "emulator/")
ROOT = Path(__file__).parents[2]  # of a checkout; else the folder of installed packages
PROJECT = "pyproject.toml"
SOURCES = (PROJECT, "README.md", "LICENSE", "edgefl", "emulator", "configs")
# what an installer adds to the files of a wheel
ADDED = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
EARLIEST = (1980, 1, 1, 0, 0, 0)  # for zip files


@dataclass(frozen=True, slots=True)
class OwnWheel:
    """A wheel, and the SHA-256 (hex) of each file of its packages by path."""

    path: Path
    files: Mapping[str, str]

    def digest(self) -> str:
        """Return a digest that changes with the code, and not with dates of files."""
        listed = "\n".join(f"{name} {digest}" for name, digest in sorted(self.files.items()))
        return hashlib.sha256(listed.encode()).hexdigest()[:16]


def own_wheel(folder: Path) -> OwnWheel:
    """Write the wheel of this edgefl to ``folder``, which is new. UserError if that fails."""
    if (ROOT / PROJECT).is_file():
        return opened(_built(ROOT, folder))
    try:
        installed = distribution(NAME)
    except PackageNotFoundError as error:
        raise UserError(
            f"no wheel of edgefl can be made: {ROOT} has no {PROJECT}, and edgefl is not installed"
        ) from error
    return opened(_packed(installed, folder))


def opened(path: Path) -> OwnWheel:
    """Read the digests of a wheel's files."""
    with zipfile.ZipFile(path) as archive:
        files = {
            name: hashlib.sha256(archive.read(name)).hexdigest()
            for name in archive.namelist()
            if name.startswith(PACKAGES)
        }
    return OwnWheel(path, files)


def _built(checkout: Path, folder: Path) -> Path:
    """Build the wheel without changing the checkout, where setuptools would leave its files."""
    with needs("launch", "building the wheel"):
        from build import BuildBackendException, BuildException, ProjectBuilder
        from pyproject_hooks import quiet_subprocess_runner

    source = folder / "source"
    source.mkdir(parents=True)
    for name in SOURCES:
        (source / name).symlink_to(checkout / name)
    try:
        builder = ProjectBuilder(source, runner=quiet_subprocess_runner)
        missing = sorted(" ".join(chain) for chain in builder.check_dependencies("wheel"))
        if missing:
            raise UserError(f"building the wheel needs {', '.join(missing)}: pip install it")
        built = Path(builder.build("wheel", str(folder)))
    except (BuildBackendException, BuildException) as error:
        raise UserError(
            f"{checkout}: the wheel cannot be built: {printable(str(error))}"
        ) from error
    shutil.rmtree(source)
    return built


def _packed(installed: Distribution, folder: Path) -> Path:
    """Write the wheel from which ``installed`` was installed."""
    folder.mkdir(parents=True, exist_ok=True)
    about = f"{NAME}-{installed.version}.dist-info"
    path = folder / f"{NAME}-{installed.version}-py3-none-any.whl"
    record: list[tuple[str, str, str]] = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(installed.files or (), key=str):
            name = file.as_posix()
            about_it = name.startswith(about) and file.name not in ADDED
            if "__pycache__" not in file.parts and (name.startswith(PACKAGES) or about_it):
                record.append(_added(archive, name, Path(str(file.locate())).read_bytes()))
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows([*record, (f"{about}/RECORD", "", "")])
        _added(archive, f"{about}/RECORD", lines.getvalue().encode())
    return path


def _added(archive: zipfile.ZipFile, name: str, content: bytes) -> tuple[str, str, str]:
    """Add a file, and return its row in RECORD."""
    entry = zipfile.ZipInfo(name, EARLIEST)
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return name, f"sha256={digest}", str(len(content))
