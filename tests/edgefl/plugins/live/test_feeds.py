"""The runs that the page can show, and one run's files that grow."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import small_run

from edgefl.errors import UserError
from edgefl.plugins.live import feeds as module
from edgefl.plugins.live.feeds import SILENT_S, Feeds, RunFeed, check
from edgefl.plugins.live.run_model import Seen


def feeds_of(*paths: Path) -> Feeds:
    return Feeds(paths)


def test_runs_get_names_that_tell_them_apart(tmp_path: Path) -> None:
    for place in ("one/fedavg", "one/fedbuff", "two/fedavg", "three/fedasync/seed1"):
        small_run.write(tmp_path / place)
    rows = feeds_of(tmp_path / "one", tmp_path / "two", tmp_path / "three").told(0.0)
    assert [(row["id"], row["name"]) for row in rows] == [
        ("r1", "one/fedavg"),
        ("r2", "fedbuff"),
        ("r3", "two/fedavg"),
        ("r4", "fedasync seed 1"),
    ]
    assert rows[0]["experiment"] == "small" and rows[0]["seed"] == 3
    assert rows[0]["clock"] == "virtual" and rows[0]["path"] == str(tmp_path / "one" / "fedavg")


def test_runs_that_appear_later_are_found(tmp_path: Path) -> None:
    feeds = feeds_of(tmp_path / "later")
    assert feeds.told(0.0) == [] and feeds.ids() == []
    small_run.write(tmp_path / "later" / "fedavg")
    assert feeds.look() and not feeds.look()
    small_run.end(small_run.write(tmp_path / "later" / "fedbuff"))
    assert feeds.look()
    assert [row["state"] for row in feeds.told(0.0)] == ["running", "finished"]
    shutil.rmtree(tmp_path / "later" / "fedavg")  # a new experiment has taken the place
    assert [row["id"] for row in feeds.told(0.0)] == ["r2"]


def test_the_seeds_of_a_strategy_are_one_group(tmp_path: Path) -> None:
    for place in ("fedavg/seed1", "fedavg/seed2", "fedbuff/seed1", "fedprox"):
        small_run.write(tmp_path / place)
    small_run.go_on(tmp_path / "fedavg" / "seed2")
    small_run.end(tmp_path / "fedavg" / "seed2")
    (tmp_path / "fedavg" / "seed2" / "summary.json").write_text('{"emulated_s": 5.0}')
    feeds = feeds_of(tmp_path)
    assert [row["name"] for row in feeds.told(0.0)][:2] == ["fedavg seed 1", "fedavg seed 2"]
    first, second = feeds.seeds("r2")
    rows = [[0, 0, 0.1, 2, 2.1, 0.1, 0, 0]]
    assert first == {"id": "r1", "metrics": rows, "reached": None, "end_s": None}
    assert (second["id"], second["end_s"]) == ("r2", 5.0)
    assert [row[1] for row in second["metrics"]] == [0.0, 3.0]
    assert second["reached"] == (3.0, 375_000), "seconds, and bytes up and down"
    assert feeds.seeds("r3") == [], "a single seed"
    assert feeds.seeds("r4") == [] and feeds.seeds("r9") == []


def test_another_run_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("one/fedavg", "two/fedbuff", "two/fedasync"):
        small_run.write(tmp_path / "runs" / place)
    feeds = feeds_of(tmp_path / "runs" / "one")
    two = tmp_path / "runs" / "two"
    assert feeds.nearby() == [str(two / "fedasync"), str(two / "fedbuff")]
    feeds.add(str(two / "fedbuff"))
    assert feeds.ids() == ["r1", "r2"] and feeds.nearby() == [str(two / "fedasync")]
    assert feeds.add(str(two)) == ["r2", "r3"]
    assert feeds.add(str(two) + "/") == ["r2", "r3"]
    with pytest.raises(UserError, match="~nobody-of-this-name"):
        feeds.add("~nobody-of-this-name/x")
    assert feeds.ids() == ["r1", "r2", "r3"] and feeds.nearby() == []
    monkeypatch.setattr(module, "MOST_RUNS", 3)
    small_run.write(tmp_path / "three" / "fedavg")
    with pytest.raises(UserError, match="three: 3 runs are served already"):
        feeds.add(str(tmp_path / "three"))


def test_folders_without_a_run(tmp_path: Path) -> None:
    small_run.write(tmp_path / "quickstart" / "fedavg")
    (tmp_path / "empty").mkdir()
    check(tmp_path / "quickstart")
    with pytest.raises(UserError, match=r"quickstrat: no such directory \(nearest: 'quickstart'\)"):
        check(tmp_path / "quickstrat")
    with pytest.raises(UserError, match=r"zzz: no such directory$"):
        check(tmp_path / "zzz")
    with pytest.raises(UserError, match=r"empty: no run in it: expected the directory of a run"):
        check(tmp_path / "empty")
    with pytest.raises(UserError, match="no such directory"):
        feeds_of(tmp_path).add(str(tmp_path / "x" / "y"))


NOW_S = 1_000_000.0


def feed_of(run: Path) -> RunFeed:
    touched(run)
    return RunFeed(run)


def touched(run: Path) -> None:
    for path in run.iterdir():
        os.utime(path, (NOW_S, NOW_S))


def news(feed: RunFeed, seen: Seen, clock_s: float = NOW_S) -> dict[str, Any]:
    touched(feed.run)
    while feed.read(clock_s):
        pass
    return feed.news(seen, clock_s) or {}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return small_run.write(tmp_path / "small" / "fedasync")


def test_the_first_message_is_whole(run: Path) -> None:
    feed, seen = feed_of(run), Seen()
    found = news(feed, seen)
    assert found["full"] and found["edges"] == ["a", "b"] and found["now_s"] == 2.0
    assert found["config"]["target"] == 0.6 and found["config"]["stop"]["versions"] == 4
    assert found["config"]["setup"] == ["2 edges", "1 Mbit/s up, 2 Mbit/s down", "until 4 versions"]
    assert found["state"] == "running" and found["rate"] == 0.0, "the virtual clock has no rate"
    assert found["states"] == [[0, "sending", 0, 2.0], [1, "training", 1, 1.0]]
    assert found["metrics"] == [[0, 0.0, 0.1, 2.0, 2.1, 0.1, 0, 0]]
    assert [0, 2, "receive", 0.0, 1.0, 0, 125000] in found["slices"]
    assert [0, 0, "training", 1.0, 2.0, 0, None] in found["slices"]
    assert [0, 1, "send", 2.0, None, 0, None] in found["open"]
    assert [1, 0, "training", 1.0, None, 1, None] in found["open"]
    assert found["log"] == [[0.0, "info", "the run begins with 2 edges"]]
    assert found["head"]["version"] == 0 and found["head"]["bytes_down"] == 250000
    assert found["fidelity"]["verdict"] is None


def test_later_messages_have_only_what_is_new(run: Path) -> None:
    feed, seen = feed_of(run), Seen()
    news(feed, seen)
    assert feed.news(seen, NOW_S) is None
    small_run.go_on(run)
    found = news(feed, seen)
    assert not found["full"] and "edges" not in found and "config" not in found
    assert found["metrics"] == [[1, 3.0, 0.2, 1.0, 1.1, 0.7, 125000, 250000]]
    assert found["slices"] == [
        [1, 0, "training", 1.0, 3.5, 1, None],
        [0, 1, "send", 2.0, 3.0, 0, 125000],
    ]
    assert found["marks"] == [
        ["merge", 3.0, 0, "version 1"],
        ["corrupt", 3.6, 1, ""],
        ["publish", 3.0, -1, "version 1"],
    ]
    assert found["staleness"] == [[3.0, 0, 0]] and found["staleness_counts"] == {"0": 1}
    assert found["learned"] == {"alpha": [[3.0, 0.5, 0]]}
    assert found["log"] == [
        [3.6, "warn", "injected fault: corrupt of b"],
        [3.0, "good", "accuracy 0.6 reached with version 1"],
    ]
    assert found["head"]["applied"] == 1 and found["head"]["accuracy"] == 0.7
    assert found["head"]["reached"] == (3.0, 375_000)
    small_run.add(run / "metrics.csv", ["2,2.5,0.2,1.0,1.1,0.6,100000,200000"])  # out of order
    assert news(feed, seen)["head"]["reached"] == (2.5, 300_000)
    small_run.end(run)
    found = news(feed, seen)
    assert found["state"] == "finished" and found["finished"] == "version limit"
    assert found["fidelity"]["verdict"] == "faithful" and found["fidelity"]["warnings"] == ["one"]
    assert found["staleness"] == [[4.5, 1, 1]] and found["head"]["version"] == 2
    # both edges have version 0 until the run's end at 5 s
    assert found["head"]["age_s"] == 5.0 and found["head"]["age_versions"] == 2.0


def test_a_killed_run_is_silent_and_shown_as_far_as_it_got(run: Path) -> None:
    small_run.go_on(run)
    with (run / "events.jsonl").open("a") as file:
        file.write('{"t": 3.7, "fact": "upda')
    feed, seen = feed_of(run), Seen()
    found = news(feed, seen)
    assert found["state"] == "running" and found["head"]["version"] == 1
    later = news(feed, seen, NOW_S + SILENT_S + 1)
    assert later["state"] == "silent" and later["now_s"] == 3.6 and later["rate"] == 0.0


def test_the_clock_of_a_run_on_the_wall_stands_while_edges_come_in(tmp_path: Path) -> None:
    config = {"run": {"strategy": "fedasync", "clock": "wall"}, "speed": 2.0}
    run = small_run.write(tmp_path / "wall", config)
    begin = (run / "events.jsonl").read_text()
    (run / "events.jsonl").write_text("")  # edges come in
    (run / "links.csv").write_text("")
    feed, seen = feed_of(run), Seen()
    early = news(feed, seen)
    assert (early["state"], early["now_s"], early["rate"]) == ("running", 0.0, 0.0)
    (run / "events.jsonl").write_text(begin)
    feed.read(NOW_S + 10)
    found = feed.news(seen, NOW_S + 11)
    assert found is not None and (found["now_s"], found["rate"]) == (2.0 + 2.0, 2.0)


def test_a_run_that_no_page_shows_any_more_ends_in_the_list_too(tmp_path: Path) -> None:
    run = small_run.write(tmp_path / "fedavg")
    feeds = feeds_of(tmp_path)
    feed = feeds.get("r1")
    assert feed is not None
    feed.read(NOW_S)
    small_run.end(run)
    assert feeds.told(NOW_S + 0.5)[0]["state"] == "running", "the page reads it"
    assert feeds.told(NOW_S + 100.0)[0]["state"] == "finished"


def test_a_run_that_begins_anew_is_told_anew(run: Path) -> None:
    feed, seen = feed_of(run), Seen()
    small_run.go_on(run)
    assert news(feed, seen)["head"]["version"] == 1
    rows = (run / "events.jsonl").read_text().splitlines(keepends=True)
    (run / "events.jsonl").write_text("".join(rows[:4]))  # resumed at an earlier moment
    small_run.add_events(run, [{"t": 1.0, "fact": "resumed", "outage_s": 9.0}])
    found = news(feed, seen)
    assert found["full"] and found["head"]["version"] == 0 and found["head"]["outage_s"] == 9.0
    (run / "config.toml").write_text("name = 'other'\n")
    assert news(feed, seen)["full"] and feed.model.facts.experiment == "other"


def test_rows_of_another_version_are_counted_and_left_out(run: Path) -> None:
    strange = {"t": 2.5, "event": "update_arrived", "version": 0, "decisions": [{"what": 1}]}
    small_run.add_events(run, [strange, {"t": "x", "fact": "resumed"}])
    small_run.add(run / "events.jsonl", ["no json", "[]"])
    small_run.go_on(run)
    feed, seen = feed_of(run), Seen()
    found = news(feed, seen)
    assert found["head"]["version"] == 1 and found["head"]["applied"] == 1
    assert found["head"]["strange_rows"] >= 1


@pytest.mark.slow
def test_a_long_run_is_read_in_steps_that_need_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP_BYTES", 1000)
    run = small_run.write(tmp_path / "long")
    versions = range(300)
    small_run.add_events(run, [small_run.arrived(v + 3.0, "a", 2 * v, v, v) for v in versions])
    ups = [f"a,up,update,1000,{v + 2.0},{v + 3.0},{v + 3.0}" for v in versions]
    small_run.add(run / "links.csv", ups)
    feed, steps = feed_of(run), 0
    while feed.read(NOW_S):
        steps += 1
    assert steps > 20, "few rows at a time"
    found = feed.news(Seen(), NOW_S) or {}
    sent = [one for one in found["slices"] if one[2] == "send"]
    assert len(sent) == 300 and found["head"]["version"] == 300
    assert found["head"]["bytes_up"] == 300_000
