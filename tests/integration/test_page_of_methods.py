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
