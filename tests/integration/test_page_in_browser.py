"""The live page in a real browser: what it shows of a run that grows, and how it is used."""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import small_run
from browser import Page, browser, refusal
from live_pages import opened
from processes import SMALL, wait_for
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.record import files

TIMES = {  # the column of each table that says when its row was written
    files.LINKS: "finished_s",
    files.METRICS: "emulated_s",
    files.SLOTS: "ends_s",
    files.HOSTS: "emulated_s",
}


class GrowingRun:
    """Writes the rows of the finished run ``source`` into ``directory`` as time goes on."""

    def __init__(self, source: Path, directory: Path) -> None:
        self.source, self.directory = source, directory
        directory.mkdir(parents=True)
        shutil.copy(source / files.CONFIG, directory)
        self._rows: list[tuple[float, int, str, str]] = []  # (t, place, file, line)
        self._take_events()
        for name in TIMES:
            self._take_table(name)
        self._rows.sort()
        self._written = 0

    @property
    def end_s(self) -> float:
        """Emulated seconds of the last row."""
        return self._rows[-1][0]

    def grow(self, until_s: float) -> None:
        """Append all rows up to an emulated second."""
        lines: dict[str, list[str]] = {}
        while self._written < len(self._rows) and self._rows[self._written][0] <= until_s:
            _, _, name, line = self._rows[self._written]
            lines.setdefault(name, []).append(line)
            self._written += 1
        for name, new in lines.items():
            with (self.directory / name).open("a") as file:
                file.writelines(new)

    def finish(self) -> None:
        """Append what is left, and the files of a run's end."""
        self.grow(float("inf"))
        shutil.copy(self.source / files.SUMMARY, self.directory)

    def _take_events(self) -> None:
        with (self.source / files.EVENTS).open() as file:
            for line in file:
                self._add(orjson.loads(line)["t"], files.EVENTS, line)

    def _take_table(self, name: str) -> None:
        path = self.source / name
        if not path.exists():
            return
        rows = list(csv.reader(io.StringIO(path.read_text())))
        (self.directory / name).write_text(",".join(rows[0]) + "\n")
        at = rows[0].index(TIMES[name])
        for row in rows[1:]:
            self._add(float(row[at]), name, ",".join(row) + "\n")

    def _add(self, t_s: float, name: str, line: str) -> None:
        self._rows.append((t_s, len(self._rows), name, line))


pytest.importorskip("starlette", reason="the extra live is not installed")
pytest.importorskip("uvicorn", reason="the extra live is not installed")

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(bool(refusal()), reason=refusal() or "a browser can be driven"),
]
SHOWN_RANGE = "document.getElementById('range').textContent"
SECOND = 'strategies = [{strategy = "fedasync", concurrency = 3}, {strategy = "fedavg"}]'


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs on the virtual clock."""
    folder = tmp_path_factory.mktemp("finished")
    config = SMALL.replace(SMALL[SMALL.index("strategies") :], SECOND)
    (folder / "small.toml").write_text(config)
    done = CliRunner().invoke(
        app, ["run", str(folder / "small.toml"), "--clock", "virtual", "--out", str(folder)]
    )
    assert done.exit_code == 0, done.output
    return folder / "small"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> GrowingRun:
    """A run that has written its first half."""
    found = GrowingRun(finished / "fedasync", tmp_path / "runs" / "fedasync")
    found.grow(found.end_s / 2)
    return found


@pytest.fixture
def page(chromium: Page, run: GrowingRun) -> Iterator[Page]:
    with opened(chromium, run.directory) as page:
        yield page


def version(page: Page) -> int:
    return int(page.text("td.version"))


def states(page: Page) -> dict[str, str]:
    """The state of each edge as the page says it."""
    script = (
        "return [...document.querySelectorAll('.tl-edge:not([hidden])')]"
        ".map((it) => [it.querySelector('.who').textContent, it.dataset.state])"
    )
    return dict(page.js(script))


def test_curves_grow_and_edges_change_their_state(page: Page, run: GrowingRun) -> None:
    before, states_before = version(page), states(page)
    accuracy = page.picture("#curves .chart:first-child canvas")
    lanes = page.picture(".tl-canvas")
    assert set(states_before) == {"e000", "e001", "e002"}
    assert page.colours(".tl-canvas") > 4
    run.grow(0.8 * run.end_s)
    wait_for(lambda: version(page) > before)
    wait_for(lambda: page.picture("#curves .chart:first-child canvas") != accuracy)
    wait_for(lambda: page.picture(".tl-canvas") != lanes)
    assert "fedasync 0." in page.js(
        "return document.querySelector('#curves figure').getAttribute('aria-label')"
    )
    run.finish()
    wait_for(lambda: page.text("td.state > span") == "finished")
    assert "8" in page.text("td.version")
    assert states(page) != states_before
    assert page.texts(".words li")


def test_zoom_by_keys_wheel_and_pointer(page: Page) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    whole, lanes = page.js(f"return {SHOWN_RANGE}"), page.picture(".tl-canvas")
    page.press("+")
    zoomed = page.wait(f"{SHOWN_RANGE} !== arguments[0] && {SHOWN_RANGE}", whole)
    wait_for(lambda: page.picture(".tl-canvas") != lanes)
    page.press(Keys.ARROW_LEFT)
    page.wait(f"{SHOWN_RANGE} !== arguments[0]", zoomed)
    page.press("0")
    page.wait(f"{SHOWN_RANGE} === arguments[0]", whole)

    canvas = page.driver.find_element(By.CSS_SELECTOR, ".tl-canvas")
    page.js("arguments[0].scrollIntoView({block: 'center'})", canvas)
    drag = ActionChains(page.driver).move_to_element(canvas)
    drag.key_down(Keys.SHIFT).click_and_hold().move_by_offset(150, 0).release().key_up(Keys.SHIFT)
    drag.perform()
    page.wait(f"{SHOWN_RANGE} !== arguments[0]", whole)
    ActionChains(page.driver).double_click(canvas).perform()
    page.wait(f"{SHOWN_RANGE} === arguments[0]", whole)
    page.js(
        "arguments[0].dispatchEvent(new WheelEvent('wheel',"
        " {deltaY: -300, ctrlKey: true, bubbles: true, cancelable: true, clientX: 700}))",
        canvas,
    )
    page.wait(f"{SHOWN_RANGE} !== arguments[0]", whole)


def test_pause_holds_what_is_shown_and_goes_on_with_all(page: Page, run: GrowingRun) -> None:
    before = version(page)
    page.press(" ")
    page.wait("document.getElementById('pause').getAttribute('aria-pressed') === 'true'")
    lanes = page.picture(".tl-canvas")
    run.finish()
    page.wait("document.getElementById('behind').textContent.match(/paused, [0-9.]*[1-9]/)")
    assert version(page) == before
    assert page.picture(".tl-canvas") == lanes
    page.press(" ")
    wait_for(lambda: version(page) == 8)
    assert page.text("#behind") == ""
    assert page.picture(".tl-canvas") != lanes


def test_a_second_run_is_added_and_hidden(page: Page, finished: Path) -> None:
    def add(path: str) -> None:
        page.js("document.getElementById('path').value = arguments[0]", path)
        page.click("dialog.add form button")

    page.click("#add")
    add("no/such/run")
    line = page.wait("document.querySelector('dialog.add .error').textContent")
    assert "no/such/run" in line
    add(str(finished / "fedavg"))
    page.wait("document.querySelectorAll('.runs tbody tr').length === 2")
    page.wait("document.querySelectorAll('.uses tbody tr').length === 2")
    page.wait(
        "[...document.querySelectorAll('td.version')].every((it) => /[0-9]/.test(it.textContent))"
    )
    names = page.texts("#curves figure:first-child .legend .entry")
    assert [name.split()[0] for name in names] == page.js(
        "return [...document.querySelectorAll('.runs tbody tr')].map((it) => it.dataset.run)"
    )
    # the browser's own console line about status 400 is the one that was asked for
    assert all("400" in each for each in page.complaints())
    page.js("document.querySelectorAll('.runs .close button')[1].click()")
    page.wait("document.querySelectorAll('.runs tbody tr').length === 1")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280, 1920])
def test_no_width_needs_sideways_scrolling(
    page: Page, run: GrowingRun, width: int, scheme: str, tmp_path: Path
) -> None:
    page.size(width, 900)
    page.prefers(scheme)
    page.wait("document.documentElement.dataset.theme === arguments[0]", scheme)
    page.wait("document.querySelector('.tl-canvas').clientWidth > 100")
    assert page.js("return document.documentElement.scrollWidth") <= width
    outside = page.js(
        "return [...document.querySelectorAll('button, select, input, canvas, h2')]"
        ".filter((it) => it.checkVisibility() && !it.closest('.scroll-x'))"
        ".map((it) => [it.outerHTML.slice(0, 80), it.getBoundingClientRect()])"
        ".filter(([, box]) => box.right > innerWidth + 1 || box.left < -1).map(([html]) => html)"
    )
    assert outside == []
    page.shoot(Path(os.environ.get("LIVE_PICTURES", tmp_path)) / f"page-{width}-{scheme}.png")


def test_everything_is_reached_by_the_keyboard(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    page.js("document.querySelector('.tl-scroll').focus()")
    page.press(Keys.ARROW_DOWN, ".tl-scroll")
    page.wait("document.querySelector('.tl-status').textContent.startsWith('e000')")
    page.press(Keys.ARROW_DOWN, ".tl-scroll")
    page.wait("document.querySelector('.tl-status').textContent.startsWith('e001')")
    page.press("?")
    page.wait("document.querySelector('dialog.help').open")
    page.press(Keys.ESCAPE, "dialog.help")
    page.wait("!document.querySelector('dialog.help').open")
    nameless = page.js(
        "return [...document.querySelectorAll('button, select, input, [tabindex=\"0\"]')].filter("
        "(it) => !(it.textContent.trim() || it.ariaLabel || it.labels?.length || it.placeholder))"
        ".map((it) => it.outerHTML.slice(0, 90))"
    )
    assert nameless == []


def ended(folder: Path, *names: str, **config: Any) -> Path:
    """A folder with finished runs of two edges; the target is 0.6, reached at 3 s."""
    for name in names:
        run = small_run.write(folder / name, config)
        small_run.go_on(run)
        small_run.end(run)
    return folder


def test_one_screen_has_the_answer(chromium: Page, tmp_path: Path) -> None:
    folder = ended(tmp_path / "small", "fedavg", "fedbuff")
    fedbuff = folder / "fedbuff" / "metrics.csv"
    fedbuff.write_text(fedbuff.read_text().replace("1,3.0,0.2", "1,2.5,0.2"))
    summary = orjson.loads((folder / "fedavg" / "summary.json").read_bytes())
    summary["fidelity"] = {"verdict": "strained", "reasons": ["7 of 39 transfers late"]}
    (folder / "fedavg" / "summary.json").write_bytes(orjson.dumps(summary | {"clock": "wall"}))
    with opened(chromium, folder) as page:
        page.wait("document.querySelectorAll('.best').length === 3")  # fewest bytes: both
        assert page.text("#title") == "small"
        assert page.text("#setup").startswith("2 edges \N{MIDDLE DOT} 1 Mbit/s up, 2 Mbit/s down")
        assert page.texts("td.reached > span") == ["3.00 s", "2.50 s"]
        assert page.texts("td.sent > span") == ["375 kB", "375 kB"]
        assert page.texts("td.reached.best > span") == ["2.50 s"]
        assert page.texts("td.verdict > span") == ["strained", "faithful"]
        assert "fedavg is strained: 7 of 39 transfers late" in page.text("#caveats")
        assert page.texts("td.state small") == ["version limit, 5.0 s"] * 2
        screen = page.js(
            "const plots = document.querySelectorAll(':is(#curves, #links, #stale) .u-over');"
            "const boxes = [...plots].map((it) => it.getBoundingClientRect().bottom);"
            "return [document.getElementById('curves').getBoundingClientRect().bottom, ...boxes]"
        )
        assert screen[0] < 900
        assert screen[1::2] == screen[2::2], "the axes of neighbours lie on one line"


def test_groups_of_edges_are_seen(chromium: Page, tmp_path: Path) -> None:
    groups = [{"name": "lte", "count": 1}, {"name": "dsl", "count": 1}]
    with opened(chromium, ended(tmp_path / "small", "fedavg", groups=groups)) as page:
        page.wait("document.querySelectorAll('.uses tbody tr').length === 3")
        assert page.texts(".uses tbody th") == ["fedavg", "lte, 1 edge", "dsl, 1 edge"]
        assert page.texts(".tl-edge:not([hidden]) .of") == ["lte", "dsl"]
        page.click(".uses .group-row + .group-row button")
        page.wait("document.querySelectorAll('.tl-edge:not([hidden])').length === 1")
        assert page.text(".tl-edge:not([hidden]) .who") == "b"


def test_many_runs(chromium: Page, tmp_path: Path) -> None:
    names = [f"run{number:02d}" for number in range(14)]
    with opened(chromium, ended(tmp_path / "small", *names)) as page:
        page.wait("document.querySelectorAll('.runs tbody tr').length === 12")
        assert page.text("#too-many").startswith("12 of 14 runs are shown")
        looks = page.js(
            "return [...document.querySelectorAll('.runs .key line')].map((it) =>"
            " it.getAttribute('stroke') + it.getAttribute('stroke-dasharray'))"
        )
        assert len(set(looks)) == 12


def test_seeds_are_a_band_around_the_mean_of_their_latest_values(
    chromium: Page, tmp_path: Path
) -> None:
    """Accuracies of FedAvg: seed 1 has 0.1 at 0 s, 0.5 at 4 s; seed 2 has 0.3 at 0 s, 0.9 at 6 s.
    Both runs end at 10 s.
    """
    head = "version,emulated_s,wall_s,train_loss,test_loss,accuracy,bytes_up,bytes_down\n"
    for seed, (first, at_s, last) in enumerate([(0.1, 4, 0.5), (0.3, 6, 0.9)], start=1):
        run = small_run.write(tmp_path / "fedavg" / f"seed{seed}", {"seed": seed})
        rows = f"0,0.0,0,1,1,{first},0,0\n1,{at_s},1,1,1,{last},1,1\n"
        (run / "metrics.csv").write_text(head + rows)
        small_run.end(run)
        summary = {"finished": "emulated_s", "versions": 1, "emulated_s": 10.0, "clock": "virtual"}
        verdict = {"fidelity": {"verdict": "faithful", "reasons": []}, "warnings": []}
        (run / "summary.json").write_bytes(orjson.dumps(summary | verdict))
    small_run.end(small_run.write(tmp_path / "fedbuff" / "seed1"))
    with opened(chromium, tmp_path) as page:
        assert page.texts(".runs tbody th > span:nth-child(2)") == [
            "fedavg seed 1",
            "fedbuff seed 1",
        ]
        assert page.texts("td.verdict")[0] == "virtual"
        legend = "document.querySelector('#curves .legend .entry').textContent"
        page.wait(f"{legend}.includes('mean of 2 seeds')")
        assert page.js(f"return {legend}") == "fedavg, mean of 2 seeds 0.7000"
        assert page.later(BAND) == [
            [0, 0.2, 0.3, 0.1],
            [4, 0.4, 0.5, 0.3],
            [6, 0.7, 0.9, 0.5],
            [10, 0.7, 0.9, 0.5],
        ]


BAND = """
const { Curves } = await import(new URL("page/curves.js", location));
const row = (time, score) => [0, time, 0, 1, 1, score, 0, 0];
const seeds = [{metrics: [row(0, 0.1), row(4, 0.5)], end_s: 10},
  {metrics: [row(0, 0.3), row(6, 0.9)], end_s: 10}];
const run = {seeds, name: "fedavg seed 1", place: 0, config: {}};
const lines = Curves.prototype._band.call({x: "emulated_s", view: {paused: false}}, run,
  "accuracy", true);
return lines[0].x.map((x, at) => [x, ...lines.map(({y}) => Number(y[at].toFixed(9)))]);
"""
