"""Tiny text files in IMDb's formats."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

TRAIN = [("A good, good film!", 1), ("Bad.<br /><br />Really bad", 0), ('good\u2028bad "it\'s"', 1)]
TEST = [("An unknown word; good", 0), ("bad", 1)]


def write_jsonl(
    root: Path,
    row: Callable[[str, int], Any] = lambda text, label: {"text": text, "label": label},
    pack: str = "",
) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for part, rows in (("train", TRAIN), ("test", TEST)):
        content = b"".join(orjson.dumps(row(*each)) + b"\n" for each in rows)
        packed = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[pack](content)
        (root / f"{part}.jsonl{pack}").write_bytes(packed)
