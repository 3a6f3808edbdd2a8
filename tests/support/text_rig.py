"""A data directory with small text sets and tiny models, made once per process."""

from __future__ import annotations

import atexit
import json
import shutil
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from builders import experiment
from paths import ROOT

from edgefl.config.experiment import Experiment

sys.path.append(str(ROOT / "scripts" / "studies"))
from make_tiny_models import tiny_bert, tiny_causal

for package in ("transformers", "peft"):  # an import takes seconds, in each worker
    if find_spec(package) is None:
        pytest.skip("needs the extra text", allow_module_level=True)

NOUNS = ("cat", "dog", "king", "river", "city", "team", "bank", "storm")
VERBS = ("sees", "likes", "leaves", "finds", "wins", "loses")
HEADER = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
LENGTH = 24


def pairs(count: int, start: int) -> list[tuple[int, str, str]]:
    """Made-up pairs: a paraphrase has the same nouns in another order."""
    found = []
    for number in range(start, start + count):
        one, two = NOUNS[number % 8], NOUNS[(number // 8 + 3) % 8]
        verb = VERBS[number % 6]
        other = two if number % 3 else NOUNS[(number + 5) % 8]
        found.append(
            (int(number % 3 > 0), f'the {one} {verb} a "{two}" {number}', f"a {other} {verb} {one}")
        )
    return found


def write_mrpc(folder: Path, train: int = 60, test: int = 20) -> None:
    folder.mkdir(parents=True)
    for name, rows in (("train", pairs(train, 0)), ("test", pairs(test, train))):
        lines = "".join(f"{label}\t1\t2\t{a}\t{b}\n" for label, a, b in rows)
        (folder / f"msr_paraphrase_{name}.txt").write_text(HEADER + lines, encoding="utf-8")


def sums(count: int, start: int) -> list[dict[str, str]]:
    """Made-up sums in the form of GSM8K."""
    return [
        {
            "question": f"what is {a} + {b}?",
            "answer": f"{a} + {b} = {a + b}\n#### {a + b}",
        }
        for a, b in ((number % 10, number // 10 % 10) for number in range(start, start + count))
    ]


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


@cache
def text_data() -> Path:
    """A directory with mrpc/, gsm8k/, models/bert and models/causal. Do not change it."""
    root = Path(tempfile.mkdtemp(prefix="edgefl-text-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    write_mrpc(root / "mrpc")
    write_jsonl(root / "gsm8k" / "train.jsonl", sums(40, 0))
    write_jsonl(root / "gsm8k" / "test.jsonl", sums(10, 40))
    texts = [text for _, a, b in pairs(80, 0) for text in (a, b)]
    tiny_bert(root / "models" / "bert", texts, hidden=16, positions=LENGTH)
    written = [text for row in sums(50, 0) for text in row.values()]
    tiny_causal(root / "models" / "causal", written, vocabulary=300, hidden=16, positions=64)
    return root


def text_experiment(model: dict[str, Any] | None = None, **sections: Any) -> Experiment:
    """An experiment with MRPC and the tiny encoder.

    ``model``: further keys of the model, or another one with its name.
    """
    given: dict[str, Any] = {
        "data": {"name": "mrpc", "dir": str(text_data()), "length": LENGTH},
        "model": _model(model or {}, "bert_classifier", "models/bert"),
        "training": {"batch_size": 8, "learning_rate": 0.05},
    }
    return experiment(**given | sections)


def causal_experiment(model: dict[str, Any] | None = None, **sections: Any) -> Experiment:
    """An experiment with the made-up sums and the tiny causal model."""
    given: dict[str, Any] = {
        "data": {"name": "gsm8k", "dir": str(text_data()), "length": 48},
        "model": _model(model or {}, "causal_lm", "models/causal"),
        "training": {"batch_size": 8, "learning_rate": 0.05},
        "partition": {"name": "iid"},
    }
    return experiment(**given | sections)


def _model(keys: dict[str, Any], name: str, path: str) -> dict[str, Any]:
    return keys if "name" in keys else {"name": name, "path": path} | keys
