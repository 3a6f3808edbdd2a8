"""`edgefl data get`: from a server or a directory; interrupted, damaged and hostile downloads."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from picture_files import check10, write_binary10

from edgefl.commands import data as command
from edgefl.data import cifar10
from edgefl.data.download import CHUNK, Download, fetch
from edgefl.errors import UserError

pytestmark = pytest.mark.processes

BIG = np.random.default_rng(1).bytes(300_000)


class Web(ThreadingHTTPServer):
    """Serves ``files`` under their paths; the first ``breaks`` answers end after ``cut`` bytes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.ranges, self.cut, self.breaks = True, 100_000, 0
        self.asked: list[tuple[str, str | None]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Web

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append((self.path, wanted))
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        first = (
            int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.ranges else 0
        )
        if first >= len(content) and first:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        part = content[first:]
        if self.server.breaks:
            self.server.breaks -= 1
            part = part[: self.server.cut]
        self.wfile.write(part)
        self.close_connection = True

    def log_message(self, *words: Any) -> None:
        """Silent."""


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def md5(content: bytes) -> str:
    return f"md5:{hashlib.md5(content).hexdigest()}"


def archive(folder: Path, name: str) -> bytes:
    """``folder`` as ``name`` in a tar.gz."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        packed.add(folder, name)
    return out.getvalue()


def quiet(file: str, done: int, total: int) -> None:
    """No progress."""


def get(
    web: Web, directory: Path, content: bytes = BIG, checksum: str | None = None, folder: str = ""
) -> Path:
    web.files["/big.bin"] = content
    (found,) = fetch(
        [Download(f"{web.address}/big.bin", checksum or md5(content), folder)],
        directory,
        "own",
        None,
        quiet,
    )
    return found


def test_a_published_archive_becomes_a_data_set(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_binary10(tmp_path / "made")
    packed = archive(tmp_path / "made", "cifar-10-batches-bin")
    web.files["/kriz/cifar-10-binary.tar.gz"] = packed
    url = f"{web.address}/kriz/cifar-10-binary.tar.gz"
    monkeypatch.setattr(cifar10, "DOWNLOADS", (Download(url, md5(packed), "cifar-10-batches-bin"),))
    command.get("cifar10", tmp_path / "data")
    check10(tmp_path / "data")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["cifar-10-batches-bin"], (
        "neither the archive nor a part of it is left"
    )
    said = capsys.readouterr()
    assert (
        "cifar-10-batches-bin" in said.out
        and "cifar-10-binary.tar.gz" in said.err
        and "100 %" in said.err
    )
    command.get("cifar10", tmp_path / "data")
    assert len(web.asked) == 1, "what is there is not asked for again"


@pytest.mark.parametrize("kind", ["directory", "address"])
def test_from_another_place(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    write_binary10(tmp_path / "made")
    packed = archive(tmp_path / "made", "cifar-10-batches-bin")
    monkeypatch.setattr(
        cifar10,
        "DOWNLOADS",
        (
            Download(
                "http://127.0.0.1:9/gone/cifar-10-binary.tar.gz",
                md5(packed),
                "cifar-10-batches-bin",
            ),
        ),
    )
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "cifar-10-binary.tar.gz").write_bytes(packed)
    web.files["/m/cifar-10-binary.tar.gz"] = packed
    command.get(
        "cifar10",
        tmp_path / "data",
        str(tmp_path / "mirror") if kind == "directory" else f"{web.address}/m/",
    )
    check10(tmp_path / "data")
    assert (tmp_path / "mirror" / "cifar-10-binary.tar.gz").exists()


def test_a_broken_connection_is_taken_up_where_it_broke(web: Web, tmp_path: Path) -> None:
    web.breaks = 2
    assert get(web, tmp_path).read_bytes() == BIG
    kept = 6 * CHUNK  # of 100,000 bytes
    assert [wanted for _, wanted in web.asked] == [None, f"bytes={kept}-", f"bytes={2 * kept}-"]


@pytest.mark.parametrize("part", [BIG, BIG + b"longer"])
def test_a_part_that_is_whole_or_too_long(web: Web, tmp_path: Path, part: bytes) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "big.bin.part").write_bytes(part)
    assert get(web, tmp_path).read_bytes() == BIG


def test_a_checksum_that_differs(web: Web, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=f"big.bin: its checksum differs from the published {md5(b'else')}"
    ):
        get(web, tmp_path, checksum=md5(b"else"))
    assert not list((tmp_path / "own").iterdir()), "nothing of it is left to go on from"
    (tmp_path / "big.bin").write_bytes(b"other")
    with pytest.raises(UserError, match=f"^{tmp_path}/big.bin: its checksum differs"):
        fetch(
            [Download(f"{web.address}/big.bin", md5(b"else"), "")],
            tmp_path,
            "own",
            str(tmp_path),
            quiet,
        )


def hostile_tar(name: str, link: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        member = tarfile.TarInfo(name)
        if link:
            member.type, member.linkname = tarfile.SYMTYPE, link
        member.size = 0 if link else 3
        packed.addfile(member, None if link else io.BytesIO(b"bad"))
    return out.getvalue()


@pytest.mark.parametrize(
    "content", [b"no archive", hostile_tar("set/a")[:-20]], ids=["no archive", "cut short"]
)
def test_a_damaged_archive_is_named(web: Web, tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UserError, match="big.bin: cannot be unpacked"):
        get(web, tmp_path, content, folder="set")
    assert not (tmp_path / "set").exists()
