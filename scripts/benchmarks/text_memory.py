"""What forked edges of a pretrained text model need in memory before their first step.

A model file of random numbers at BERT-base's shapes (440 MB; --quick: a tiny one), LoRA. The parent
loads data and model as the warm parent of a wall-clock run does, then forks edges. Each builds its
side of the run. The rows have the proportional set size (PSS): shared pages count once in all.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import tempfile
import time
from pathlib import Path

import psutil
from table import Row, arguments, host_line, report, run, say

from edgefl.config.experiment import Experiment
from edgefl.errors import UserError, needs
from edgefl.hosts.processes import fork, keep_freed_memory
from edgefl.hosts.setup.learning import Learning, learning
from edgefl.hosts.wall.edge.side import side
from edgefl.models.workspace import frozen_bytes
from edgefl.protocol.messages import Setup

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "intermediate_size": 3072, "vocab_size": 30522}  # fmt: skip  # a table
TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 64, "vocab_size": 200}  # fmt: skip  # a table
GOAL_MB = 60
MB = 1e6
WORDS = ("cat", "dog", "king", "river", "city", "team", "bank", "storm")
PATIENCE_S = 120.0


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--edges", type=int, default=10, metavar="N", help="forked edges")
    parser.add_argument("--quick", action="store_true", help="a tiny model: a quick check")
    options, host = parser.parse_args(), host_line()
    if options.edges < 2:
        raise UserError(f"--edges {options.edges}: expected 2 or more")
    with tempfile.TemporaryDirectory(prefix="bench-text-") as scratch:
        os.environ["EDGEFL_CACHE"] = f"{scratch}/cache"
        rows = measured(Path(scratch), TINY if options.quick else BASE, options.edges)
    report("Memory of text models", host, rows, options.json)


def measured(scratch: Path, shapes: dict[str, int], edges: int) -> list[Row]:
    say("writing the model")
    size = write_model(scratch / "model", shapes)
    write_data(scratch)
    say("loading it")
    keep_freed_memory()
    began_s = time.perf_counter()
    learned = learning(experiment_of(scratch, edges), None)
    data_digest = learned.data_digest()
    learned.frozen_digest()
    loaded_s = time.perf_counter() - began_s
    gc.collect()
    gc.freeze()
    one, many = (pss_of(learned, data_digest, count) for count in (1, edges))
    return [
        Row("model file", size / MB, "MB"),
        Row("frozen part", frozen_bytes(learned.workspace.model) / MB, "MB"),
        Row("what an update carries", 4 * learned.layout.size / MB, "MB"),
        Row("data and model loaded in", loaded_s, "s"),
        Row("parent and the first edge", one / MB, "MB"),
        Row(f"parent and {edges} edges", many / MB, "MB"),
        Row("each further edge", (many - one) / (edges - 1) / MB, "MB", f"<= {GOAL_MB}"),
    ]


def write_model(directory: Path, shapes: dict[str, int]) -> int:
    """Write a BERT of random numbers with a small vocabulary file; return its size in bytes."""
    with needs("text", "this benchmark"):
        from transformers import BertConfig, BertModel, BertTokenizer, logging
    logging.disable_progress_bar()
    directory.mkdir()
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (directory / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    BertTokenizer.from_pretrained(str(directory)).save_pretrained(str(directory))
    BertModel(BertConfig(**shapes)).save_pretrained(str(directory))
    return (directory / "model.safetensors").stat().st_size


def write_data(directory: Path) -> None:
    """Write a hundred made-up texts."""
    rows = [
        {"text": f"{WORDS[number % 8]} {WORDS[number // 8 % 8]}", "label": number % 2}
        for number in range(100)
    ]
    for part in ("train", "test"):
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (directory / f"{part}.jsonl").write_text(lines)


def experiment_of(directory: Path, edges: int) -> Experiment:
    return Experiment.model_validate(
        {
            "name": "memory",
            "data": {"name": "sentences", "dir": str(directory), "length": 16},
            "model": {"name": "bert_classifier", "path": "model", "train": "lora"},
            "edges": {"count": edges},
            "partition": {"name": "iid"},
            "stop": {"versions": 1},
            "strategies": [{"strategy": "fedavg"}],
        }
    )


def pss_of(learned: Learning, data_digest: str, count: int) -> float:
    """Fork so many edges, and return the PSS of them and of this process, in bytes."""
    say(f"forking {count} edge{'' if count == 1 else 's'}")
    setup = Setup("", "fedavg")
    reader, writer = os.pipe()

    def wait(edge: str) -> None:
        made = side(learned, edge, 0, data_digest, setup)
        os.write(writer, b"x")
        signal.pause()
        del made

    names = list(learned.shards)[:count]
    children = [fork(f"edge {name}", lambda name=name: wait(name)) for name in names]
    try:
        ready, until_s = 0, time.monotonic() + PATIENCE_S
        while ready < count and time.monotonic() < until_s:
            ready += len(os.read(reader, count))
        processes = [psutil.Process(), *map(psutil.Process, children)]
        return float(sum(process.memory_full_info().pss for process in processes))
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(reader), os.close(writer)


if __name__ == "__main__":
    run(main)
