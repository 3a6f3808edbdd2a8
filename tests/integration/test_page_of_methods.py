"""The live page in a real browser: parts of some strategies, older times, a command's own page."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import small_run
from browser import Page, browser, refusal
from live_pages import opened, shown
from processes import start, wait_for
from terminals import end

pytest.importorskip("starlette", reason="the extra live is not installed")
pytest.importorskip("uvicorn", reason="the extra live is not installed")

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(bool(refusal()), reason=refusal() or "a browser can be driven"),
]
TDMA = {"medium": {"kind": "tdma", "rate_mbit_s": 1.0, "slot_ms": 500.0}}
SLOTS = ["begins_s,ends_s,edge,direction,kind", "0.0,0.5,a,down,task", "2.5,3.0,a,up,update"]
MERGED = {"refresh_point": 2.0, "beta": 0.25}


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


def finished(folder: Path, config: dict[str, Any] | None = None) -> Path:
    run = small_run.write(folder, config)
    small_run.go_on(run)
    small_run.end(run)
    return run


def test_slots_of_a_tdma_channel(chromium: Page, tmp_path: Path) -> None:
    run = finished(tmp_path / "runs" / "small" / "fedasync", TDMA)
    small_run.add(run / "slots.csv", SLOTS)
    with opened(chromium, run) as page:
        page.wait("document.querySelectorAll('table.slots tbody tr').length === 2")
        rows = page.texts("table.slots tbody tr")
        assert rows == ["52.500 saupupdate", "00.000 sadowntask"]  # slot, begin, device, ...
        assert page.colours(".slots-map") > 4


def test_reported_numbers_and_requests_for_fresher_models(chromium: Page, tmp_path: Path) -> None:
    run = small_run.write(tmp_path / "runs" / "small" / "fedasmu")
    update = small_run.arrived(3.0, "a", 0, 0, 0)
    update["numbers"] |= MERGED
    answer = {"do": "send_fresh", "edge": "a", "task": 0, "version": 1}
    request = {"t": 2.0, "event": "fresh_requested", "version": 1, "edge": "a", "task": 0}
    request |= {"base_version": 0, "step": 1, "until_ns": 0, "decisions": [answer]}
    small_run.add_events(run, [request, update])
    with opened(chromium, run) as page:
        page.wait("document.getElementById('reported').checkVisibility()")
        page.wait("document.querySelector('#reported select').options.length >= 2")
        options = page.texts("#reported select option")
        assert [option.split(",")[0] for option in options] == ["alpha", "beta"]
        assert "alpha" in page.js("return document.querySelector('#reported select').value")
        assert page.text("#reported .note") == "fedasmu: 1 merged; asked after epoch 2.0 on average"
        page.js(
            "const it = document.querySelector('#reported select'); it.value = 'beta';"
            "it.dispatchEvent(new Event('change'))"
        )
        page.wait("document.querySelector('#reported .legend b').textContent === '0.25'")


def test_a_killed_run_is_shown_as_far_as_it_got(chromium: Page, tmp_path: Path) -> None:
    run = small_run.write(tmp_path / "runs" / "small" / "fedasync")
    small_run.go_on(run)
    with (run / "events.jsonl").open("a") as file:
        file.write('{"t": 99.0, "eve')
    with opened(chromium, run) as page:
        assert page.text("td.version") == "1"
        assert page.text("td.verdict") == "\N{EN DASH}"
        assert page.colours(".tl-canvas") > 4


SERIES = """
const { merged, cut } = await import(new URL("page/charts.js", location));
const { Points } = await import(new URL("page/series.js", location));
const points = new Points(["t", "value"], 4);
for (const t of [0, 1, 3, 2, 4, 5, 6, 7, 8]) points.add([t, 10 * t]);
return [
  merged([{x: [1, 2, 2], y: [10, 20, 21]}, {x: [2, 3], y: [5, 6]}]),
  cut({x: [0, 1, 2, 3, 4], y: [0, 1, NaN, 3, 4]}, 1.5, 2.5, 100),
  [...points.column("t").subarray(0, points.count)],
  [...points.column("value").subarray(0, points.count)],
];
"""


def test_series_share_an_axis_and_stay_small(chromium: Page, tmp_path: Path) -> None:
    with opened(chromium, finished(tmp_path / "runs" / "small" / "fedasync")) as page:
        joined, part, times, values = page.later(SERIES)
    assert joined == [[1, 2, 2, 3], [10, 20, 21, None], [None, 5, None, 6]]
    assert part == {"x": [1, 2, 3], "y": [1, None, 3]}  # and one point on each side
    assert len(times) <= 4 and times[0] == 0 and times[-1] == 8
    assert times == sorted(times) and values == [10 * t for t in times]


OLDER = """
const { Run } = await import(new URL("page/run.js", location));
const { LaneSet } = await import(new URL("page/lanes.js", location));
const { Timeline } = await import(new URL("page/timeline.js", location));
const { View } = await import(new URL("page/view.js", location));
const run = new Run({id: "r9", name: "old", state: "finished"}, 0);
run.take({run: "r9", full: true, now_s: 100, edges: ["a"], slices_from: 50,
  slices: [[0, 0, "training", 60, 90, 1, null]]});
const view = new View();
view.setEnd(100);
const asked = [];
const line = new Timeline(view, {show() {}, hide() {}},
  (of, from, to) => asked.push([of.id, from, to]));
document.querySelector("main").prepend(line.root);
line.show(run);
const used = () => {
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [line.canvas.width, line.canvas.height];
  const context = copy.getContext("2d", {willReadFrequently: true});
  context.drawImage(line.canvas, 0, 0);
  return [0, 25, 75].map((t) => {
    const x = Math.min(copy.width - 1, Math.round(t / 100 * copy.width));
    return context.getImageData(x, 6, 1, 1).data[3] > 0;
  });
};
const { timeUse } = await import(new URL("page/time_use.js", location));
const use = () => timeUse(run, [0], {from: 0, to: 100, now: 100}).training;
const shareOf = [use()];
run.archive = {from: 0, to: 50, exact: false, first_s: 0, bin_s: 10,
  bins: [[0, 0, "training", [0, 1, 1, 0, 0]]]};
line.draw();
const shares = used();
shareOf.push(use());
const lanes = new LaneSet();
lanes.put([0, 0, "training", 20, 30, 0, null]);
run.archive = {from: 0, to: 50, exact: true, lanes};
line.draw();
const exact = used();
shareOf.push(use());
const before = asked.length;
view.show(60, 90);
line.draw();
line.root.remove();
return {first: asked[0], shareOf, shares, exact, later: asked.length - before};
"""


def test_older_times_come_from_the_server(chromium: Page, tmp_path: Path) -> None:
    with opened(chromium, finished(tmp_path / "runs" / "small" / "fedasync")) as page:
        found = page.later(OLDER)
    assert found["first"] == ["r9", 0, 50]  # what ended before 50 s is not on the page
    # of 50 s: 30; of 100 s: those and two bins of 10; those and 20 to 30 s
    assert found["shareOf"] == pytest.approx([0.6, 0.5, 0.4])
    # in the row of computing at 0, 25 and 75 s
    assert found["shares"] == found["exact"] == [False, True, True]
    assert found["later"] == 0  # all of 60..90 s is there


def test_the_page_of_a_running_experiment(
    chromium: Page, folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    process = start(started, "run", "small.toml", "--live", "0", "stop.versions=100000")
    assert process.stdout is not None
    found = (
        re.search(r"(http://127\.0\.0\.1:\d+/\S+/)$", line.rstrip()) for line in process.stdout
    )
    address = next(match[1] for match in found if match)
    with shown(chromium, address) as page:
        page.wait("document.querySelectorAll('.tl-edge:not([hidden])').length === 3")
        picture = page.picture("#curves .chart:first-child canvas")
        before = int(page.text("td.version"))
        states = set()

        def changed() -> bool:
            states.update(
                page.js(
                    "return [...document.querySelectorAll('.tl-edge')]"
                    ".map((it) => `${it.dataset.edge} ${it.dataset.state}`)"
                )
            )
            return len(states) > 3 and int(page.text("td.version").replace(",", "")) > before

        wait_for(changed)
        wait_for(lambda: page.picture("#curves .chart:first-child canvas") != picture)
        process.send_signal(signal.SIGINT)
        page.wait("document.body.dataset.connection === 'ended'")
        assert "has ended" in page.text("#connection")
    assert end(process)[0] != 0
