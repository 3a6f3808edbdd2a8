"""Archives of other people: what is unpacked, and what is refused with the entry's name."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from edgefl.archives import BadArchive, unpack
from edgefl.plugins.launch.connections import HostError, LocalConnection
from edgefl.plugins.launch.host_session import RemoteCoordinator
from edgefl.plugins.launch.inventory import CoordinatorPlace, Host

MOST = 1 << 20
Member = tuple[str, bytes | None, str]  # name, type of tar, target of a link


def tar(*members: Member, content: bytes = b"bad", mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as packed:  # type: ignore[call-overload]  # the mode is given
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind or tarfile.REGTYPE, link
            member.size = len(content) if kind is None else 0
            packed.addfile(member, io.BytesIO(content) if member.size else None)
    return out.getvalue()


def zipped(*names: str, attributes: int = 0) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in names:
            entry = zipfile.ZipInfo(name)
            entry.external_attr, entry.compress_type = attributes, zipfile.ZIP_DEFLATED
            packed.writestr(entry, b"bad")
    return out.getvalue()


def sparse() -> bytes:
    """A file of 1 TiB, of which 3 bytes are stored (an old GNU header)."""
    data = bytearray(tar(("sparse", None, "")))
    data[156:157] = tarfile.GNUTYPE_SPARSE
    data[257:265] = b"ustar  \0"
    data[386:398], data[398:410] = b"%011o\0" % 0, b"%011o\0" % 3
    data[483:495] = b"\x80" + (1 << 40).to_bytes(11, "big")
    data[148:156] = b"        "
    data[148:156] = b"%06o\0 " % sum(data[:512])
    return bytes(data)


def long_head() -> bytes:
    """A few KiB that tell tarfile to read a head of 8 MiB into memory."""
    member = tarfile.TarInfo("head")
    member.type, member.size = tarfile.XHDTYPE, 8 << 20
    return gzip.compress(member.tobuf() + bytes(8 << 20))


ONE = ("a/b", None, "")
REFUSED: dict[str, tuple[bytes, str]] = {
    "a parent": (tar(("../out", None, "")), "'../out': leads outside"),
    "a parent within": (tar(("a/../../out", None, "")), "'a/../../out': leads outside"),
    "absolute": (tar(("/tmp/out", None, "")), "'/tmp/out': leads outside"),
    "a drive": (tar(("C:/out", None, "")), "'C:/out': has a drive or a backslash"),
    "a share": (tar(("\\\\host\\out", None, "")), "has a drive or a backslash"),
    "a control sign": (tar(("a\x1b[2J", None, "")), "is no name of a file"),
    "a long name": (tar(("a/" * 600, None, "")), "is no name of a file"),
    "a link": (tar(("a", tarfile.SYMTYPE, "/etc")), "'a': is neither a file nor a folder"),
    "a hard link": (tar(("a", tarfile.LNKTYPE, "/etc/passwd")), "'a': is neither a file nor"),
    "a device": (tar(("a", tarfile.CHRTYPE, "")), "'a': is neither a file nor a folder"),
    "a pipe": (tar(("a", tarfile.FIFOTYPE, "")), "'a': is neither a file nor a folder"),
    # CVE-2025-4517: the link is checked against a path that is later another one
    "a link and a file through it": (
        tar(("a", tarfile.DIRTYPE, ""), ("a/l", tarfile.SYMTYPE, ".."), ("a/l/out", None, "")),
        "'a/l': is neither a file nor a folder",
    ),
    "twice": (tar(ONE, ONE), "'a/b': comes twice"),
    "twice in other words": (tar(ONE, ("a/./b", None, "")), "'a/./b': comes twice"),
    "below a file": (tar(ONE, ("a/b/c", None, "")), "'a/b/c': is below a file"),
    "a file for a folder": (tar(ONE, ("a", None, "")), "'a': comes twice"),
    "sparse": (sparse(), "'sparse': is neither a file nor a folder"),
    "too large": (tar(ONE, content=bytes(MOST + 1)), "'a/b': has more than 1 MiB"),
    "a gzip bomb": (tar(ONE, content=bytes(50 * MOST), mode="w:gz"), "has more than 1 MiB"),
    "a long head": (long_head(), "has the head of an entry with"),
    "too many": (tar(*((str(each), None, "") for each in range(11))), "has more than 10 entries"),
    "a zip that leads outside": (zipped("../out"), "'../out': leads outside"),
    "a zip with a link": (zipped("a", attributes=0o120777 << 16), "'a': is neither a file nor"),
    "a zip with a name twice": (zipped("a", "./a"), "'./a': comes twice"),
    "no archive": (b"no archive", "is damaged"),
    "a damaged gzip": (gzip.compress(tar(ONE))[:-30], "is damaged"),
    "a gzip with another checksum": (gzip.compress(tar(ONE))[:-8] + bytes(8), "is damaged"),
    "a bzip2 with another checksum": (bz2.compress(tar(ONE))[:-4] + bytes(4), "is damaged"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    data, message = REFUSED[name]
    archive, into = tmp_path / "x.tar", tmp_path / "up" / "into"
    archive.write_bytes(data)
    into.mkdir(parents=True)
    with pytest.raises(BadArchive) as caught:
        unpack(archive, into, MOST, 10)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert [*tmp_path.rglob("out")] == []
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz", "zip"])
def test_files_and_folders_are_unpacked(mode: str, tmp_path: Path) -> None:
    members = (("./d", tarfile.DIRTYPE, ""), ("./d/a", None, ""), ("e/f/b", None, ""))
    data = zipped("./d/", "./d/a", "e/f/b") if mode == "zip" else tar(*members, mode=mode)
    (tmp_path / "x").write_bytes(data)
    unpack(tmp_path / "x", tmp_path / "into", MOST, 10)
    found = {path.relative_to(tmp_path / "into").as_posix() for path in tmp_path.rglob("into/**/*")}
    assert found == {"d", "d/a", "e", "e/f", "e/f/b"}
    assert (tmp_path / "into" / "d" / "a").read_bytes() == b"bad"


@pytest.mark.processes  # the connection to this machine runs commands
def test_a_host_cannot_write_outside_the_results(tmp_path: Path) -> None:
    host = Host("pi", via="local", folder=str(tmp_path / "work"))

    async def fetched(data: bytes) -> None:
        remote = RemoteCoordinator(CoordinatorPlace(host, None, 0), "r", lambda *line: None)
        remote.session.connection = connection = LocalConnection(host)
        results = Path(remote.results)
        results.mkdir(parents=True, exist_ok=True)
        # the host makes another archive than it was asked for
        kept = tmp_path / "crafted"
        kept.write_bytes(data)
        old = connection.run

        async def run(words, **options):  # type: ignore[no-untyped-def]  # as the connection has it
            if words[0] == "sh":
                words = ["cp", str(kept), f"{results}.tar"]
            return await old(words, **options)

        connection.run = run  # type: ignore[method-assign]  # a host that lies
        await remote.fetch("name", tmp_path / "target")

    with pytest.raises(HostError, match=r"^pi: the archive of its results '\.\./out': leads outs"):
        asyncio.run(fetched(tar(("../out", None, ""))))
    asyncio.run(fetched(tar(("name/fedavg/a", None, ""), ("name/experiment.toml", None, ""))))
    assert (tmp_path / "target" / "fedavg" / "a").read_bytes() == b"bad"
    assert not (tmp_path / "target" / "experiment.toml").exists()
