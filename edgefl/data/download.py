"""Download a published data set, check it against the published checksum, and unpack it.

An interrupted download is resumed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.archives import BadArchive, unpack
from edgefl.errors import UserError, needs

# file name, bytes received, bytes in total (0: not known)
Progress = Callable[[str, int, int], None]
ATTEMPTS = 4  # number of connections before a download fails
TIMEOUT_S = 30.0  # longest time without a byte
MOST_BYTES, MOST_ENTRIES = 1 << 36, 4_000_000  # of an unpacked archive
CHUNK = 1 << 14  # bytes; a broken connection loses at most one chunk


@dataclass(frozen=True, slots=True)
class Download:
    """A published file.

    ``checksum``: "md5:..." or similar, as published; ``folder``: the folder inside an archive, ""
    for a file that is not unpacked.
    """

    url: str
    checksum: str
    folder: str = ""

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


def fetch(
    downloads: Sequence[Download],
    directory: Path,
    own_folder: str,
    origin: str | None,
    progress: Progress,
) -> list[Path]:
    """Download every file that is missing in ``directory``, and return the paths of all.

    Archives become the folders that they contain; other files go to ``own_folder``. ``origin``: a
    directory or another address with files of the same names. UserError if something fails; the
    received bytes are kept.
    """
    found = []
    for download in downloads:
        place = (
            directory / download.folder
            if download.folder
            else directory / own_folder / download.name
        )
        if not (download.folder and place.exists()):
            file = _retrieved(
                download, directory if download.folder else place.parent, origin, progress
            )
            if download.folder:
                _unpacked(file, place)
        found.append(place)
    return found


def _retrieved(download: Download, folder: Path, origin: str | None, progress: Progress) -> Path:
    with needs("lab", "a download"):
        import pooch  # here: only this command needs it
        import requests

    pooch.get_logger().setLevel("ERROR")
    copied = origin is not None and "://" not in origin
    bring: Callable[..., None] = (
        Copying(Path(origin or "")) if copied else Resuming(folder, progress)
    )
    url = (
        f"{origin.rstrip('/')}/{download.name}"
        if origin is not None and "://" in origin
        else download.url
    )
    if not url.startswith(("http://", "https://")):
        raise UserError(
            f"{url}: expected an address that begins with http:// or https://, or a directory"
        )
    try:
        if isinstance(bring, Copying):
            bring.file(download.name)  # fails before a folder is created
        folder.mkdir(parents=True, exist_ok=True)
        return Path(
            pooch.retrieve(
                url, download.checksum, fname=download.name, path=folder, downloader=bring
            )
        )
    except (
        requests.ConnectionError,
        requests.Timeout,
        requests.exceptions.ChunkedEncodingError,
    ) as error:
        raise UserError(
            f"{url}: cannot be reached, or the connection broke; the received bytes are kept, and"
            " the same command continues from there"
        ) from error
    except requests.RequestException as error:
        raise UserError(f"{url}: {error}") from error
    except ValueError as error:  # pooch raises it for a wrong checksum and has deleted the file
        source = Path(origin or "") / download.name if copied else url
        raise UserError(
            f"{source}: its checksum differs from the published {download.checksum}: a damaged or"
            " another file"
        ) from error
    except OSError as error:
        raise UserError(f"{folder / download.name}: {error.strerror or error}") from error


class Copying:
    """A downloader for pooch that copies files from a directory."""

    def __init__(self, source: Path) -> None:
        self.source = source

    def __call__(self, url: str, output_file: str, pooch: Any, check_only: bool = False) -> None:
        shutil.copyfile(self.file(url.rpartition("/")[2]), output_file)

    def file(self, name: str) -> Path:
        """Return the file of that name; UserError if there is none."""
        file = self.source.expanduser() / name
        if not file.is_file():
            raise UserError(f"--from {self.source}: no file {name} there")
        return file


class Resuming:
    """A downloader for pooch that resumes.

    A ``.part`` file next to the target keeps the received bytes; the next call continues from it.
    """

    def __init__(self, folder: Path, progress: Progress) -> None:
        self.folder, self.progress = folder, progress

    def __call__(self, url: str, output_file: str, pooch: Any, check_only: bool = False) -> None:
        import requests

        part = self.folder / f"{url.rpartition('/')[2]}.part"
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._go_on(url, part)
                break
            except (
                requests.ConnectionError,
                requests.Timeout,
                requests.exceptions.ChunkedEncodingError,
            ):
                if attempt == ATTEMPTS:
                    raise
        os.replace(part, output_file)

    def _go_on(self, url: str, part: Path) -> None:
        import requests

        have = part.stat().st_size if part.exists() else 0
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_S) as answer:
            if (
                answer.status_code == requests.codes.requested_range_not_satisfiable
            ):  # the part is complete, or it belongs to another file
                if answer.headers.get("Content-Range", "").rpartition("/")[2] != str(have):
                    part.unlink()
                    self._go_on(url, part)
                return
            answer.raise_for_status()
            if answer.status_code != requests.codes.partial_content:
                have = 0  # the server cannot resume
            self._write(answer, part, have)

    def _write(self, answer: Any, part: Path, have: int) -> None:
        import requests

        total = have + int(answer.headers.get("Content-Length", 0))
        with open(part, "ab" if have else "wb") as file:
            for chunk in answer.iter_content(CHUNK):
                file.write(chunk)
                have += len(chunk)
                self.progress(part.stem, have, max(total, 0))
        if have < total:
            raise requests.ConnectionError(f"it ended after {have} of {total} bytes")


def _unpacked(archive: Path, place: Path) -> None:
    """Move the folder of that name in the archive to ``place``, and delete the archive.

    ``place`` appears complete or not at all.
    """
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as scratch:
        try:
            unpack(archive, Path(scratch), MOST_BYTES, MOST_ENTRIES)
        except (BadArchive, OSError) as error:
            raise UserError(f"{archive}: cannot be unpacked ({error})") from error
        inner = Path(scratch) / place.name
        if not inner.is_dir():
            raise UserError(
                f"{archive}: expected a folder {place.name} in it, found"
                f" {', '.join(sorted(os.listdir(scratch))[:5]) or 'nothing'}"
            )
        inner.rename(place)
    archive.unlink()
