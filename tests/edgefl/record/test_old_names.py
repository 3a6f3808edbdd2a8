"""Old run directories and configs, which call refresh points "slots"."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from builders import Desk, make

from edgefl.config import file as config_file
from edgefl.config.file import strategy_warnings
from edgefl.protocol.messages import Update
from edgefl.record.journal import BLOBS, LINES, OLD, Journal, read, replay, segment_name
from edgefl.results.read import read_events
from edgefl.strategies.fedasmu import FedASMU, FedASMUOptions

OPTIONS: dict[str, Any] = {"dispatch": "replace", "concurrency": 1, "meta_rate": 0.5}
SAID = {"refresh_point": 2.0, "asked": 1.0, "merged": 1.0, "reward": 1.0, "baseline": 0.0}


@pytest.fixture
def old_run(tmp_path: Path) -> Path:
    """A run of FedASMU whose files have the old names."""
    desk = Desk(tmp_path, make(FedASMU, **OPTIONS))
    desk.record.journal = Journal(tmp_path / "journal")
    desk.start("a")
    for number in range(2):
        base = desk.coordinator.tasks.open[number]
        said = {"samples": 1.0, "steps": 8.0, "learning_rate": 0.01, **SAID}
        update = Update(number, base.version, {"weights": base.base + 1}, said)
        desk.hear("a", update, now=number)
    desk.summary()
    events = tmp_path / "events.jsonl"
    events.write_text(events.read_text().replace('"refresh_point"', '"slot"'))
    old, new = (tmp_path / "journal" / name for name in (OLD, segment_name(0)))
    Path(f"{old}{LINES}").write_bytes(b"".join(_old(Path(f"{new}{LINES}"))))
    Path(f"{new}{BLOBS}").rename(f"{old}{BLOBS}")
    Path(f"{new}{LINES}").unlink()
    return tmp_path


def _old(path: Path) -> Iterator[bytes]:
    for line in path.read_bytes().splitlines():
        text = line.partition(b" ")[2].replace(b'"refresh_point"', b'"slot"')
        yield b"%08x %b\n" % (crc32(text), text)


def test_events_of_old_are_read_with_todays_names(old_run: Path) -> None:
    assert '"slot"' in (old_run / "events.jsonl").read_text()
    events = [event for event in read_events(old_run / "events.jsonl") if "event" in event]
    arrived = [event for event in events if event["event"] == "update_arrived"]
    assert [event["numbers"]["refresh_point"] for event in arrived] == [2.0, 2.0]
    assigned = [each for event in events for each in event["decisions"] if each["do"] == "assign"]
    assert len(assigned) == 3 and all("refresh_point" in each["numbers"] for each in assigned)
    assert "slot" not in json.dumps(events)


def test_a_journal_of_old_replays(old_run: Path) -> None:
    assert b'"slot"' in (old_run / "journal" / f"{OLD}{LINES}").read_bytes()
    result = replay(old_run / "journal", make(FedASMU, **OPTIONS))
    assert result.version == 2 and result.events == len(list(read(old_run / "journal")))


# ------------------------------------------------------------------ the key of the config
CONFIG = """\
[stop]
emulated_s = 10.0
[training]
epochs = 5
[[strategies]]
strategy = "fedasmu"
selector = "fixed"
"""


def config(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "some.toml"
    path.write_text(CONFIG + "".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("lines", "overrides"), [(["slot = 2"], []), ([], ["strategies.fedasmu.slot=2"])]
)
def test_the_old_key_is_accepted_with_a_warning(
    tmp_path: Path, lines: list[str], overrides: list[str]
) -> None:
    experiment = config_file.load(config(tmp_path, *lines), overrides)
    options = FedASMUOptions.model_validate(experiment.strategies[0].options())
    assert options.refresh_point == 2
    assert strategy_warnings(experiment, tmp_path) == [
        "fedasmu: option slot is now named refresh_point: write refresh_point = 2"
    ]
