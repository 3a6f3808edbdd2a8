"""Checkpoint files: written whole or not at all, damaged ones are named and passed over."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from safetensors.numpy import load_file

from edgefl.checkpoints.codec import Encoded, decode, encode
from edgefl.checkpoints.files import Checkpoints
from edgefl.disk import OwnDisk

STATE: dict[str, Any] = {
    "model": np.arange(1000, dtype=np.float32).reshape(10, 100),
    "mask": np.array([True, False]),
    "small": [np.float64(3), np.arange(3, dtype=np.uint16), np.array(2.5)],
    "odd": np.array([1 + 2j]),
    "count": 7,
}


def never(line: str) -> None:
    raise AssertionError(line)


def write(folder: Path, *numbers: int, keep: int = 2, durable: bool = False) -> Checkpoints:
    found = Checkpoints(OwnDisk(), folder, keep, durable)
    for number in numbers:
        found.write(number, encode(STATE | {"number": number}), {"t": number, "sizes": {"a": 1}})
    return found


def number_of(encoded: Encoded) -> int:
    found: Any = decode(encoded)
    return int(found["number"])


@pytest.mark.parametrize("durable", [False, True])
def test_a_checkpoint_comes_back(tmp_path: Path, durable: bool) -> None:
    kept = write(tmp_path / "made" / "here", 3, durable=durable)
    found = kept.latest(never)
    assert found is not None and found.number == 3
    assert found.meta == {"t": 3, "sizes": {"a": 1}}
    state: Any = decode(found.encoded)
    assert state["model"].tolist() == STATE["model"].tolist() and state["number"] == 3
    assert state["odd"].tolist() == [1 + 2j] and state["small"][2].shape == ()


def test_the_name_of_its_folder_survives_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(OwnDisk, "sync_folder", lambda disk, folder: synced.append(folder))
    write(tmp_path / "checkpoints", 1, 2, durable=True)
    assert synced[0] == tmp_path and set(synced[1:]) == {tmp_path / "checkpoints"}


def test_both_files_can_be_read_by_others_and_are_private(tmp_path: Path) -> None:
    write(tmp_path, 0)
    names = ["checkpoint-000000.json", "checkpoint-000000.safetensors"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert all(path.stat().st_mode & 0o77 == 0 for path in tmp_path.iterdir())
    read = orjson.loads((tmp_path / names[0]).read_bytes())
    assert read["checkpoint"]["meta"]["t"] == 0 and len(read["digest"]) == 32
    arrays = load_file(tmp_path / names[1])
    assert arrays["a0"].tolist() == STATE["model"].tolist()
    assert arrays["a0"].dtype == np.float32 and arrays["a1"].dtype == np.bool_


def test_old_ones_and_leftovers_are_removed(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-000009.json.part").write_bytes(b"torn")
    (tmp_path / "checkpoint-000001.safetensors").write_bytes(b"its JSON file was never written")
    (tmp_path / "journal.bin").write_bytes(b"of another")
    kept = write(tmp_path, *range(2, 7), keep=2)
    assert kept.numbers() == [5, 6]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(f"checkpoint-00000{n}.{kind}" for n in (5, 6) for kind in ("json", "safetensors")),
        "journal.bin",
    ]
    assert write(tmp_path, 1_000_000, 1_000_001, keep=3).numbers() == [6, 1_000_000, 1_000_001]


DAMAGES = {
    "torn": (".json", lambda data: data[:-20], "its digest differs"),
    "empty": (".json", lambda data: b"", "its digest differs"),
    "a bit": (".json", lambda data: data.replace(b'"sizes"', b'"sixes"'), "its digest differs"),
    "short": (".safetensors", lambda data: data[:-1], "checkpoint-000002.safetensors: "),
    "a byte": (
        ".safetensors",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        "checkpoint-000002.safetensors: its digest differs",
    ),
    "gone": (
        ".safetensors",
        None,
        "(checkpoint-000002.safetensors: cannot be read: No such file or directory)",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_the_one_before_a_damaged_one_is_used(tmp_path: Path, name: str) -> None:
    suffix, damage, why = DAMAGES[name]
    kept = write(tmp_path, 1, 2)
    path = tmp_path / f"checkpoint-000002{suffix}"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    said: list[str] = []
    found = kept.latest(said.append)
    assert found is not None and found.number == 1 and number_of(found.encoded) == 1
    assert len(said) == 1 and why in said[0] and "\n" not in said[0]
    start = f"{tmp_path / 'checkpoint-000002.json'}: checkpoint 2 is damaged ("
    assert said[0].startswith(start) and said[0].endswith("checkpoint 1, the one before, is used")


class FullDisk(OwnDisk):
    """A disk that is full from the given call of ``append`` on."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def append(self, path: Path, keep_bytes: int = 0, private: bool = False) -> Any:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().append(path, keep_bytes, private)


@pytest.mark.parametrize("calls", [0, 1])
def test_a_full_disk_leaves_the_one_before(tmp_path: Path, calls: int) -> None:
    write(tmp_path, 1)
    full = Checkpoints(FullDisk(calls), tmp_path)
    with pytest.raises(OSError, match="No space left on device: '.*checkpoint-000002"):
        full.write(2, encode(STATE | {"number": 2}), {})
    assert not list(tmp_path.glob("*.part"))
    found = full.latest(never)
    assert found is not None and found.number == 1 and number_of(found.encoded) == 1
    write(tmp_path, 2)
    found = full.latest(never)
    assert found is not None and number_of(found.encoded) == 2
