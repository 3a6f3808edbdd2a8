"""The report in a real browser, opened from the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Page, browser, refusal
from builders import small_run

from edgefl.plugins.html_report.document import write

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(bool(refusal()), reason=f"no browser: {refusal()}"),
]

FACTS = """
return {
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  broken: [...document.images].filter(image => !image.naturalWidth).length,
  images: document.images.length,
  ground: getComputedStyle(document.body).backgroundColor,
};
"""
GROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 24, 28)"}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seen")
    small_run(folder, stop={"versions": 3})
    write([folder], folder / "report.html")
    return folder / "report.html"


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_from_the_disk(report: Path, page: Page, width: int, scheme: str) -> None:
    page.size(width, 900)
    page.prefers(scheme)
    page.hosts()  # of the browser's own first page
    page.open(report.as_uri())
    seen = page.js(FACTS)
    assert seen["images"] >= 4 and seen["broken"] == 0
    assert seen["wide"] <= 0, "nothing but tables and figures scrolls sideways"
    assert seen["ground"] == GROUNDS[scheme]
    assert page.hosts() <= {report.as_uri()}, "no request but for the file itself"
    assert page.complaints() == [], "the console is empty"
