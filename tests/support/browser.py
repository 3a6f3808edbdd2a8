"""The system's Chromium, driven by selenium: what it asks for and what its console says."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from processes import wait_for

BROWSER, DRIVER = "chromium", "chromedriver"
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root
    "--disable-dev-shm-usage",
    "--disable-gpu",
    # A page that the browser holds for covered gets no frames, and so never shows a number.
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-background-timer-throttling",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-device-scale-factor=1",
    "--hide-scrollbars",
)
NETWORK = ("http", "https", "ws", "wss", "ftp")
# Other tests make network devices. Chromium then gives up what it is loading, from this host, too.
NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"
LOADS = 10


def refusal() -> str:
    """Why no browser can be driven here; "" if one can."""
    if importlib.util.find_spec("selenium") is None:
        return "selenium is not installed"
    if missing := [name for name in (BROWSER, DRIVER) if shutil.which(name) is None]:
        return f"{' and '.join(missing)} not found"
    return ""


class Page:
    """A page in the browser, with what a test asks about it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self._complaints: list[str] = []

    def open(self, url: str) -> None:
        """Open an address, once more if the machine's network changed meanwhile."""
        for _ in range(LOADS):
            self.driver.get(url)
            if not self._network_changed():
                return
        raise AssertionError(f"{url}: the network changed during each of {LOADS} loads")

    def js(self, script: str, *given: Any) -> Any:
        """Return what the body of a JavaScript function returns; ``arguments`` has ``given``."""
        return self.driver.execute_script(script, *given)

    def later(self, script: str) -> Any:
        """Return what an asynchronous body of a JavaScript function returns."""
        wrapped = (
            "const done = arguments[0];"
            f"(async () => {{{script}}})()"
            ".then((it) => done([it, null]), (error) => done([null, String(error)]));"
        )
        found, error = self.driver.execute_async_script(wrapped)
        assert error is None, error
        return found

    def text(self, selector: str) -> str:
        """The text of the first element; "" if there is none."""
        script = "return document.querySelector(arguments[0])?.textContent ?? ''"
        return str(self.js(script, selector))

    def texts(self, selector: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((it) => it.textContent)"
        return list(self.js(script, selector))

    def wait(self, script: str, *given: Any) -> Any:
        """Wait until an expression is true, and return it."""
        return wait_for(lambda: self.js(f"return {script}", *given))

    def press(self, keys: str, selector: str = "body") -> None:
        from selenium.webdriver.common.by import By

        self.driver.find_element(By.CSS_SELECTOR, selector).send_keys(keys)

    def click(self, selector: str) -> None:
        from selenium.webdriver.common.by import By

        self.driver.find_element(By.CSS_SELECTOR, selector).click()

    def size(self, width: int, height: int) -> None:
        """Set the size of the page itself, also below what a window can have."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def prefers(self, scheme: str) -> None:
        """Set what the system prefers: "light" or "dark"."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def colours(self, selector: str) -> int:
        """How many different colours a canvas has."""
        return int(
            self.js(
                "const it = document.querySelector(arguments[0]);"
                "const copy = document.createElement('canvas');"
                "[copy.width, copy.height] = [it.width, it.height];"
                "const context = copy.getContext('2d', {willReadFrequently: true});"
                "context.drawImage(it, 0, 0);"
                "const { data } = context.getImageData(0, 0, it.width, it.height);"
                "return new Set(new Uint32Array(data.buffer)).size",
                selector,
            )
        )

    def picture(self, selector: str) -> str:
        """What a canvas shows, to be compared with another moment."""
        return str(self.js("return document.querySelector(arguments[0]).toDataURL()", selector))

    def complaints(self) -> list[str]:
        """Warnings and errors of the console since the last call.

        What the machine's network did is not the page's fault, and is left out.
        """
        self._network_changed()
        found, self._complaints = self._complaints, []
        return found

    def _network_changed(self) -> bool:
        """Read the console; tell whether something was not loaded because the network changed."""
        lines = [f"{it['level']}: {it['message']}" for it in self.driver.get_log("browser")]
        self._complaints += [line for line in lines if NETWORK_CHANGED not in line]
        return any(NETWORK_CHANGED in line for line in lines)

    def hosts(self) -> set[str]:
        """Hosts that the page has asked for something since the last call."""
        found = set()
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = urlsplit(message["params"]["request"]["url"])
                if url.scheme in NETWORK:
                    found.add(url.hostname or url.geturl())
        return found

    def shoot(self, path: Path) -> None:
        """Save a picture of the whole page."""
        whole = self.js("return document.documentElement.scrollHeight")
        width = self.js("return innerWidth")
        self.size(width, whole)
        self.wait("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 300, true)))")
        self.driver.save_screenshot(str(path))


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Start the browser with a new profile below ``folder``."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which(BROWSER) or BROWSER
    for option in (*OPTIONS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(shutil.which(DRIVER)))
    driver.set_script_timeout(60)
    try:
        yield Page(driver)
    finally:
        driver.quit()
