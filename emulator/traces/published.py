"""Published traces: the catalog of them, and how to get one: download, check and convert it.

The catalog is published.toml: where each trace is, its checksum, its licence, and what to cite.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from emulator.errors import BadValue, not_installed
from emulator.plain_text import write_file
from emulator.traces.formats import FORMATS, converted, trace_of


class Collection(msgspec.Struct, frozen=True):
    """Traces of one publication. ``note``: what to know before using them."""

    format_name: str
    page: str
    licence: str
    citation: str
    note: str = ""


class TraceFile(msgspec.Struct, frozen=True):
    """A file of a trace; published.toml says what its fields mean."""

    directions: tuple[str, ...]
    url: str = ""
    checksum: str = ""
    member: str = ""
    pattern: str = ""

    @property
    def name(self) -> str:
        """The file's name, or the pattern of its name."""
        return self.url.rpartition("/")[2] or self.pattern


class PublishedTrace(msgspec.Struct, frozen=True):
    """An entry of the catalog."""

    title: str
    collection: Collection
    files: tuple[TraceFile, ...]


def _catalog() -> dict[str, PublishedTrace]:
    content = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))
    for name, collection in content["collections"].items():
        collection["format_name"] = name
    for trace in content["traces"].values():
        trace["collection"] = content["collections"][trace["collection"]]
    return msgspec.convert(content["traces"], dict[str, PublishedTrace])


PUBLISHED: Mapping[str, PublishedTrace] = _catalog()
RAW = "raw"  # folder of the downloads, below the folder of the traces


@dataclass(frozen=True, slots=True)
class ObtainedTrace:
    """A trace file that a config can name, and the remarks of its reader."""

    path: Path
    direction: str
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A published file on this machine.

    ``compared``: whether there was a checksum to compare with, published or of an earlier ``get``.
    """

    path: Path
    source: TraceFile
    checksum: str
    compared: bool


def obtain(
    name: str, entry: PublishedTrace, to: Path, origin: Path | None
) -> tuple[list[ObtainedTrace], list[CheckedFile]]:
    """Write the traces of ``entry`` to ``to``, and NAME.json with licence, citation and checksums.

    ``origin``: a folder with copies of the published files, in place of a download. BadValue for a
    missing file, a different checksum, a broken file, no network.
    """
    about = to / f"{name}.json"
    recorded = _recorded(about)
    checked = []
    for file in entry.files:
        raw = _copy_in(origin, file) if origin else _downloaded(name, file, to / RAW, entry)
        checked.append(_checked(raw, file, recorded, about, may_remove=origin is None))
    try:
        to.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadValue(f"{to}: {error.strerror or error}") from error
    obtained = [
        one for found in checked for one in _written(name, entry.collection.format_name, found, to)
    ]
    write_file(about, _facts(entry, checked).encode())
    return obtained, checked


def digest(path: Path, kind: str) -> str:
    """The checksum of a file, "sha256:..." or "git-sha1:..."."""
    if kind == "git-sha1":
        # the id of a file in git: SHA-1 over a header and the content
        state = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    else:
        state = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            state.update(chunk)
    return f"{kind}:{state.hexdigest()}"


def _copy_in(origin: Path, file: TraceFile) -> Path:
    """The local copy of a published file."""
    found = sorted(path for path in origin.glob(file.name) if path.is_file())
    if len(found) == 1:
        return found[0]
    if not found:
        raise BadValue(f"--from {origin}: no file {file.name} there")
    names = ", ".join(path.name for path in found[:3])
    raise BadValue(f"--from {origin}: expected one file {file.name}, found {names}")


def _downloaded(name: str, file: TraceFile, folder: Path, entry: PublishedTrace) -> Path:
    page = entry.collection.page
    if not file.url:
        raise BadValue(
            f"{name} has no address of one file: get a file {file.pattern} by {page}, then emulator"
            f" traces get {name} --from DIR"
        )
    try:
        import pooch  # here: only a download needs it
        import requests
    except ModuleNotFoundError as error:
        raise not_installed("a download (without --from DIR)", error) from error
    pooch.get_logger().setLevel("ERROR")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Path(pooch.retrieve(file.url, None, fname=file.name, path=folder))
    except requests.RequestException as error:
        answer = getattr(error, "response", None)
        reason = "cannot be reached" if answer is None else f"the server says {answer.status_code}"
        raise BadValue(
            f"{file.url}: {reason} (its page: {page}; --from DIR takes a local copy)"
        ) from error
    except OSError as error:
        raise BadValue(f"{folder / file.name}: {error.strerror or error}") from error


def _checked(
    path: Path, file: TraceFile, recorded: Mapping[str, str], about: Path, may_remove: bool
) -> CheckedFile:
    """Compare a file with the published checksum, or with the one that an earlier get recorded."""
    expected = file.checksum or recorded.get(file.name, "")
    kind = expected.partition(":")[0] or "sha256"
    try:
        found = digest(path, kind)
    except OSError as error:
        raise BadValue(f"{path}: {error.strerror or error}") from error
    if expected and found != expected:
        if may_remove:
            path.unlink()
        what = "the published" if file.checksum else f"that of the first get in {about}"
        raise BadValue(
            f"{path}: its checksum {found} differs from {what}, {expected}: a damaged or another"
            " file"
        )
    return CheckedFile(path, file, found, bool(expected))


def _written(name: str, format_name: str, found: CheckedFile, to: Path) -> list[ObtainedTrace]:
    """The trace files made of one published file."""
    obtained = []
    for direction in found.source.directions:
        stem = f"{name}.{direction}" if direction else name
        if format_name not in FORMATS:  # mahimahi: read as it is
            path = to / stem
            write_file(path, found.path.read_bytes())
            obtained.append(ObtainedTrace(path, direction, ()))
            continue
        recording = converted(
            found.path, format_name, direction or None, member=found.source.member
        )
        path = to / f"{stem}.csv"
        trace_of(recording, f"trace {found.path}")  # refuses what is no capacity
        write_file(path, recording.csv().encode())
        obtained.append(ObtainedTrace(path, direction, recording.remarks))
    return obtained


def _facts(entry: PublishedTrace, checked: list[CheckedFile]) -> str:
    """NAME.json: where the trace is from, so that it is known years later."""
    collection = entry.collection
    facts: dict[str, Any] = {
        "title": entry.title,
        "page": collection.page,
        "licence": collection.licence,
        "citation": collection.citation,
        "note": collection.note,
        "files": [
            {
                "file": found.source.name,
                "url": found.source.url,
                "member": found.source.member,
                "checksum": found.checksum,
            }
            for found in checked
        ],
    }
    return json.dumps(facts, indent=2, ensure_ascii=False) + "\n"


def _recorded(about: Path) -> dict[str, str]:
    """File name -> checksum, as an earlier get wrote them."""
    try:
        files = json.loads(about.read_text(encoding="utf-8"))["files"]
        return {str(each["file"]): str(each["checksum"]) for each in files}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError):
        raise BadValue(f"{about}: expected the file that a get wrote; delete it") from None
