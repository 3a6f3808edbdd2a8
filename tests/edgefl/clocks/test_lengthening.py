"""Finished runs, and runs that were broken off, go on with longer stop keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from broken_off import begin_folder, begin_run
from builders import EXAMPLES, experiment
from kills import Killed, files_of
from recorded_items import HandRun, items

from edgefl.clocks.choices import RUN, VIRTUAL
from edgefl.clocks.setup.learning import learning
from edgefl.clocks.setup.resumption import Origin, RunStage, read_resumption
from edgefl.clocks.virtual.run import Saving, run_virtual
from edgefl.clocks.wall.coordinator import thread_messages as messages
from edgefl.commands.running import RunTask, resumed
from edgefl.config.experiment import Experiment
from edgefl.disk import OwnDisk
from edgefl.errors import UserError
from edgefl.record.journal import read
from edgefl.results.run_files import read_config, read_summary
from emulator.units import NS_PER_S as S

OWN: dict[str, Any] = {
    "task": "my_task.py:build",
    "links": {"up_mbit_s": 0.01, "down_mbit_s": 0.04, "latency_ms": 10.0},
    "devices": {
        "samples_per_s": 100.0,
        "slowest_ratio": 5.0,
        "energy": {"idle_w": 1.0, "compute_w": 3.0},
    },
    "strategies": [{"strategy": "fedbuff", "concurrency": 3, "buffer_size": 2}],
    "evaluation": {"every_versions": 1, "every_s": 0.7, "edges": {"every_versions": 4}},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("runs") / "run"


def begun(folder: Path, stop: Mapping[str, Any], keep_state: bool = False) -> Experiment:
    """A run under the virtual clock, to its end."""
    given = experiment(**OWN, stop=stop, record={"keep_state": keep_state})
    begin_folder(folder, given, Origin(RUN, VIRTUAL, EXAMPLES))
    run_virtual(learning(given, EXAMPLES), 0, folder / "fedbuff")
    return given


def longer(folder: Path, *words: str) -> RunTask:
    """The task of ``edgefl run --resume FOLDER WORDS``, once it has begun."""
    task = RunTask.resumed(resumed(folder, RUN, (Path(words[0]) if words else None, words[1:])))
    task.claim()
    return task


def gone_on(folder: Path, *words: str) -> list[str]:
    """Lengthen the run, and do it; returns what was said."""
    task, said = longer(folder, *words), list[str]()
    learned, saving = learning(task.experiment, EXAMPLES), Saving(say=said.append)
    run_virtual(learned, 0, folder / "fedbuff", resume=True, saving=saving)
    return said


def files(folder: Path) -> tuple[dict[str, Any], Any]:
    """The files of a run, and how it was lengthened."""
    found = files_of(folder / "fedbuff")
    return found, found["summary.json"].pop("lengthened", None)


# ------------------------------------------------------------------ under the virtual clock
@pytest.mark.parametrize("keep_state", [False, True])
@pytest.mark.parametrize(
    ("before", "word", "after"),
    [
        ({"emulated_s": 12.0}, "stop.emulated_s=25.0", {"emulated_s": 25.0}),
        ({"versions": 6}, "stop.versions=11", {"versions": 11}),
        ({"updates": 7, "versions": 99}, "stop.updates=20", {"updates": 20, "versions": 99}),
        ({"versions": 6}, "stop={emulated_s=25.0}", {"emulated_s": 25.0}),
        ({"target_joules": 40.0}, "stop.target_joules=90.0", {"target_joules": 90.0}),
        (
            {"versions": 15, "target": {"metric": "test_loss", "value": 0.6}},
            "stop.target.value=0.1",
            {"versions": 15, "target": {"metric": "test_loss", "value": 0.1}},
        ),
        (
            {"versions": 15, "no_progress_s": 0.5},
            "stop.no_progress_s=6.0",
            {"versions": 15, "no_progress_s": 6.0},
        ),
    ],
)
@pytest.mark.slow
def test_a_lengthened_run_leaves_the_bytes_of_one_that_was_begun_with_these_keys(
    folder: Path, before: Any, word: str, after: Any, keep_state: bool
) -> None:
    begun(folder, before, keep_state)
    ended = read_summary(folder / "fedbuff")
    begun(folder.with_name("whole"), after, keep_state)
    said = gone_on(folder, word)
    (found, lengthened), (whole, _) = files(folder), files(folder.with_name("whole"))
    assert found["summary.json"]["emulated_s"] > ended["emulated_s"]
    assert found == whole
    (entry,) = lengthened
    assert entry["at_s"] == ended["emulated_s"] and entry["at"].endswith("+00:00")
    assert {**before, **entry["after"]}.keys() >= after.keys() and entry["before"]
    goes_on = keep_state and ended["finished"] == "emulated_s"
    assert any("begins anew" in line for line in said) != goes_on
    now = read_resumption(folder)
    assert [run.stage for run in now.runs] == [RunStage.finished]
    assert now.asked.stop.model_dump(exclude_none=True).keys() == after.keys()
    assert read_config(folder / "fedbuff")["run"]["lengthened"] == lengthened


@pytest.mark.slow
def test_a_run_is_lengthened_twice_and_broken_off_between(folder: Path) -> None:
    begun(folder, {"emulated_s": 9.0}, keep_state=True)
    begun(folder.with_name("whole"), {"emulated_s": 30.0}, keep_state=True)
    gone_on(folder, "stop.emulated_s=15.0")
    task, steps = longer(folder, "stop.emulated_s=20.0"), 0
    assert read_summary(folder / "fedbuff")["finished"] == "lengthened"
    assert "(stop.emulated_s from 15 to 20): going on with fedbuff" in task.resumption.told()  # type: ignore[union-attr]

    def progress(now: int, run: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == 7:
            raise Killed

    learned, saving = learning(task.experiment, EXAMPLES), Saving(every_steps=3, say=print)
    with pytest.raises(Killed):
        run_virtual(learned, 0, folder / "fedbuff", progress, resume=True, saving=saving)
    assert read_resumption(folder).runs[0].stage is RunStage.broken_off
    said = gone_on(folder, "stop.emulated_s=30.0")
    assert not any("anew" in line for line in said)
    (found, lengthened), (whole, _) = files(folder), files(folder.with_name("whole"))
    assert found == whole
    assert [entry["after"]["emulated_s"] for entry in lengthened] == [15.0, 20.0, 30.0]


def test_a_run_that_another_key_has_ended_stays_as_it_is(folder: Path) -> None:
    begun(folder, {"versions": 3, "emulated_s": 500.0})
    with pytest.raises(UserError) as caught:
        longer(folder, "stop.emulated_s=900.0")
    assert str(caught.value) == (
        "runs/run: nothing to lengthen: its runs have ended by versions, and stop.emulated_s"
        " changes"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["stop.emulated_s=5.0"], "stop.emulated_s: a run can only be lengthened: expected more"),
        (["stop={versions=1}"], "stop.versions: fedbuff has reached "),
        (["stop.versions=-3"], "stop.versions: expected greater than or equal to 1, found -3"),
        (["stop.no_progress_s=-3"], "stop.no_progress_s: expected greater than 0, found -3"),
        (["stop.target.metric=acuracy"], "found 'acuracy' (nearest: 'accuracy')"),
        (["stop.emulated_m=50"], "stop.emulated_m: unknown key (nearest: 'emulated_s')"),
        (["stop.emulated_s=50", "seed=3"], "of which only stop keys may change: seed is 3"),
    ],
)
def test_what_does_not_lengthen_is_one_line_and_changes_nothing(
    folder: Path, words: list[str], said: str
) -> None:
    begun(folder, {"emulated_s": 12.0})
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(UserError) as caught:
        longer(folder, *words)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


# ------------------------------------------------------------------ on the wall clock
def wall(folder: Path, stop: Mapping[str, Any], *ended: str, **sections: Any) -> Path:
    """Runs that have ended for these reasons; returns the first."""
    given = experiment(stop=stop, **sections)
    begin_folder(folder, given)
    runs = [begin_run(folder, given, *each) for each in enumerate(ended)]
    for run in runs:
        (run / "journal").mkdir()
        (run / "journal" / "journal-000000.jsonl").touch()
    return runs[0]


def test_a_finished_run_without_its_journal_is_refused(folder: Path) -> None:
    run = wall(folder, {"versions": 9}, "versions")
    (run / "journal" / "journal-000000.jsonl").unlink()
    with pytest.raises(UserError) as caught:
        longer(folder, "stop.versions=20")
    assert str(caught.value) == (
        "runs/run/fedavg: cannot be lengthened, because its journal was deleted at its end: on the"
        " wall clock expected a run with record.keep_state = true"
    )


TARGET = {"versions": 9, "target": {"value": 0.5, "for_evaluations": 2}}


@pytest.mark.parametrize(
    ("stop", "word", "said"),
    [
        ({"versions": 9}, "stop.target.value=0.5", "stop.target: expected none"),
        ({"versions": 9}, "stop.no_progress_s=5.0", "stop.no_progress_s: expected none"),
        (TARGET, "stop.target.value=0.4", "stop.target: expected a harder target"),
        (TARGET, "stop.target.for_evaluations=1", "stop.target: expected a harder target"),
        (TARGET, "stop.target.metric=test_loss", "stop.target: expected a harder target"),
        (TARGET, "stop.target.value=0.7", ""),
        (TARGET, "stop={versions=19}", ""),
    ],
)
def test_scores_so_far_count_only_for_their_own_target(
    folder: Path, stop: Any, word: str, said: str
) -> None:
    wall(folder, stop, "target")
    if not said:
        task = longer(folder, word)
        assert read_summary(folder / "fedavg")["finished"] == "lengthened"
        assert task.resumption is not None and task.resumption.lengthening is not None
        return
    with pytest.raises(UserError, match=said):
        longer(folder, word)


@pytest.mark.parametrize(
    ("stop", "words", "limit", "place"),
    [
        ({"versions": 9}, ["stop.versions=20"], 20, "fedbuff/config.toml"),
        ({"updates": 9}, ["stop.versions=20"], 20, "experiment.toml"),
        ({"versions": 9}, [], 20, "fedbuff/config.toml"),
        ({"versions": 9}, ["stop.versions=15"], 15, "experiment.toml"),
    ],
)
def test_a_lengthening_that_was_broken_off_is_completed(
    folder: Path,
    stop: dict[str, int],
    words: list[str],
    limit: int,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the same words, by none, or by others."""
    strategies = [{"strategy": "fedavg"}, {"strategy": "fedbuff"}]
    wall(folder, stop, *stop, "interrupted", strategies=strategies)
    replace = OwnDisk.replace

    def until(disk: OwnDisk, path: Path, *rest: Any, **options: Any) -> None:
        if path == folder / place:
            raise Killed
        replace(disk, path, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(OwnDisk, "replace", until)
        with pytest.raises(Killed):
            longer(folder, "stop.versions=20")
    longer(folder, *words)
    after = {**stop, "versions": limit}
    assert read_resumption(folder).asked.stop.model_dump(exclude_none=True) == after
    ended = read_summary(folder / "fedavg")["finished"]
    assert ended == ("lengthened" if "versions" in stop else "updates")
    for name in ("fedavg", "fedbuff"):
        config = read_config(folder / name)
        assert config["stop"] == after
        (entry,) = config["run"]["lengthened"]
        assert entry["before"] == {key: stop[key] for key in stop if key == "versions"}
        assert entry["after"] == {"versions": limit}


ROUNDS: dict[str, Any] = {
    "strategies": [{"strategy": "fedavg", "clients_per_round": 3}],
    "record": {"keep_state": True},
}
SHORT: list[dict[str, Any]] = [{"emulated_s": 3.5}, {"updates": 1}, {"emulated_s": 10.0}]


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("stop", SHORT)
def test_a_journal_goes_on_where_the_run_had_ended(
    stop: dict[str, Any], checkpoint: bool, tmp_path: Path
) -> None:
    """What came after that is not handled, now or in a later resumption."""
    run = HandRun(tmp_path / "run", **ROUNDS, stop=stop)
    for item in items(run):
        if checkpoint and isinstance(item, messages.HostSaid) and item.at_ns == 2 * S:
            run.checkpoint()
        due = run.logic.core.next_due()
        if not run.logic.ended and due < getattr(item, "now", 0):
            run.give(messages.Rang(due))
        run.give(item)
    assert run.logic.ended
    run.logic.journal.flush()
    since = 1 if checkpoint else 0
    ends = [entry.end for entry in read(tmp_path / "run" / "journal", since=since)]
    assert ends.count("ends") == 1 and ends[ends.index("ends") + 1 :] == ["over"] * ends.count(
        "over"
    )
    again = HandRun(tmp_path / "run", resume=True, **ROUNDS, stop=stop)
    assert again.logic.ended, "with the same keys it ends again"
    states = set()
    for _ in range(3):
        longer_run = HandRun(tmp_path / "run", resume=True, **ROUNDS, stop={"emulated_s": 60.0})
        core = longer_run.logic.core
        assert not core.ended and core.coordinator.finished is None
        assert core.next_due() <= 60 * S
        rows = longer_run.files()["events.jsonl"]
        assert b'"finished"' not in rows
        states.add(longer_run.state())
    assert len(states) == 1
    longer_run.give(messages.Resumed(core.now, 5.0, 3000.0))
    while not core.ended:
        longer_run.give(messages.Rang(core.next_due()))
    assert core.coordinator.finished == "emulated_s" and core.now == 60 * S
    final = longer_run.files()["events.jsonl"]
    assert orjson.loads(final.splitlines()[-1])["fact"] == "finished"
