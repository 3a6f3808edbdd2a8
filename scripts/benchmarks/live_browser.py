"""A headless browser with the live page, for ``live.py``: how much memory the page takes."""

from __future__ import annotations

import shutil
from types import TracebackType
from typing import Any

from edgefl.errors import UserError, needs

PROGRAMS = ("chromium", "chromedriver")


class Browser:
    """Debian's chromium with its driver; a context."""

    def __init__(self) -> None:
        found = [shutil.which(name) for name in PROGRAMS]
        if None in found:
            raise UserError(f"--browser: expected the programs {' and '.join(PROGRAMS)}")
        with needs("dev", "--browser"):
            from selenium import webdriver
        options = webdriver.ChromeOptions()
        options.binary_location = str(found[0])
        for switch in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
            options.add_argument(switch)
        options.add_argument("--window-size=1280,900")
        self._driver: Any = webdriver.Chrome(options, webdriver.ChromeService(found[1]))

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._driver.quit()

    def open(self, address: str) -> None:
        self._driver.get(address)

    def heap_bytes(self) -> int:
        """The memory of the page's objects that are in use, after a collection of garbage."""
        self._driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        return int(self._driver.execute_cdp_cmd("Runtime.getHeapUsage", {})["usedSize"])

    def errors(self) -> list[str]:
        """What the page has written to its console as errors."""
        log = self._driver.get_log("browser")
        return [entry["message"] for entry in log if entry["level"] == "SEVERE"]
