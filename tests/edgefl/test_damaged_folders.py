"""Whatever is in a folder of runs, a command that reads it ends in order: with its result, or with
one line. A traceback would be a bug.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from zlib import crc32

import pytest
from damaged_folders import COMMANDS, RESUME, command, damage, make

QUICK = [name for name in COMMANDS if name not in ("report", "plot", "plot timeline")]
SEEDS = 40


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make(tmp_path_factory.mktemp("runs"))


def ends_in_order(name: str, source: Path, folder: Path, seed: int) -> None:
    work, chance = folder / str(seed) / "small", random.Random(seed)
    shutil.copytree(source, work)
    told = damage(work, chance)
    status, errors = (COMMANDS | RESUME)[name](work)
    lines = errors.splitlines()
    refused = bool(lines) and lines[-1].startswith("edgefl: ")
    assert status == 0 or (status == 2 and refused), (seed, told, errors)
    shutil.rmtree(folder / str(seed))


@pytest.mark.parametrize("name", QUICK)
def test_a_command_ends_in_order(name: str, runs: tuple[Path, Path], tmp_path: Path) -> None:
    for seed in range(SEEDS // len(QUICK) + 5):
        ends_in_order(name, runs[0], tmp_path, 1000 * len(name) + seed)


@pytest.mark.parametrize("name", ["report", "plot", "plot timeline"])
def test_a_picture_ends_in_order(name: str, runs: tuple[Path, Path], tmp_path: Path) -> None:
    for seed in range(1):
        ends_in_order(name, runs[0], tmp_path, seed)


def test_a_resumption_ends_in_order(runs: tuple[Path, Path], tmp_path: Path) -> None:
    for seed in range(5):
        ends_in_order("resume", runs[1], tmp_path, seed)


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("compare", "fedavg/links.csv", None),
        ("compare", "fedavg/summary.json", b'"x"'),
        ("compare", "fedavg/summary.json", None),
        ("plot", "fedasync/summary.json", None),
        ("view", "fedavg/summary.json", b'{"fidelity": ["x"], "warnings": 3}'),
        ("view", "fedavg/links.csv", b'edge,direction\r\na,"\rb\r\n'),
        ("compare", "fedasync/links.csv", b"edge,edge\r\na,a\r\n"),
        ("compare", "fedasync/links.csv", b"edge,direction,kind,bytes,offered_s,finished_s\r\n"),
        *(("compare", "fedavg/config.toml", b"strategies = " + it) for it in (b"[1]", b"3", b"{}")),
        ("compare", "fedavg/config.toml", b"run = 3"),
        ("view", "fedavg/config.toml", b"run = [1]"),
        ("report", "fedavg/config.toml", b"medium = 3"),
        ("report", "fedavg/config.toml", b"[[strategies]]\nstrategy = [1]"),
        ("resume", "fedavg/config.toml", b"edges.availability = 3"),
        ("perfetto", "fedasync/events.jsonl", b'{"t":1,"event":"x","decisions":1.5}\n'),
        ("perfetto", "fedasync/events.jsonl", b'{"t":1,"event":"edge_joined","edge":7}\n'),
        (
            "replay",
            "fedasync/journal/journal-000000.jsonl",
            b"%08x []\n%08x {}\n" % (crc32(b"[]"), crc32(b"{}")),
        ),
        ("replay", "fedasync/journal/initial.safetensors", None),
    ],
)
def test_what_once_gave_a_traceback(
    name: str, file: str, content: bytes | None, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    """``content`` None: there is a folder in the file's place."""
    work = tmp_path / "small"
    shutil.copytree(runs[0], work)
    (work / file).unlink()
    if content is None:
        (work / file).mkdir()
    else:
        (work / file).write_bytes(content)
    status, errors = (COMMANDS | RESUME)[name](work)
    assert status == 0 or (status == 2 and Path(file).name in errors.splitlines()[-1]), errors


def test_a_loop_of_links_is_named(runs: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copytree(runs[0], tmp_path / "small")
    path = tmp_path / "small" / "fedavg" / "events.jsonl"
    path.unlink()
    path.symlink_to(path.name)
    status, errors = command(
        "export", "--to", "perfetto", "--out", tmp_path / "t.json", path.parent
    )
    assert status == 2
    assert errors == f"edgefl: {path}: cannot be read (Too many levels of symbolic links)\n"
