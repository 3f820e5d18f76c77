"""Headless Chromium, driven by selenium: opens pages from disk and says what went wrong on them.

What a page must show is left to the tests. No name is resolved, so that nothing can be loaded from a network, and
selenium, which is given the driver, downloads none.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium.common.exceptions import ElementClickInterceptedException, TimeoutException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

CHROMIUM, DRIVER = "chromium", "chromedriver"
DESKTOP, PHONE = (1280, 900), (390, 844)
SCREENSHOTS = "TWINSTEP_SCREENSHOTS"
# What stands in the page itself.
_WITHIN = frozenset({"data", "blob", "about"})
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-quic",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


class Browser:
    """One tab. Errors and requests are of the page that is open, from when it was opened on."""

    def __init__(self, driver: Chrome, screenshots: Path) -> None:
        self._driver = driver
        self._screenshots = screenshots
        self._page = ""
        self._errors: list[str] = []
        self._requests: list[str] = []

    def open(self, path: Path, fragment: str = "", *, dark: bool = False, phone: bool = False) -> None:
        """A page on disk, anew, as it looks in the dark or on a phone; `fragment` is what follows the #."""
        self.go("about:blank")  # else another fragment of the same page would not load it again
        self.console_errors()
        self.requests()
        self._page, self._errors, self._requests = path.resolve().as_uri(), [], []
        colours = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[colours])
        width, height = PHONE if phone else DESKTOP
        scale = 2 if phone else 1
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        self.go(self._page + (f"#{fragment}" if fragment else ""))

    def go(self, address: str) -> None:
        """To another address; of the open page, if only the fragment differs."""
        self._driver.get(address)

    def command(self, name: str, **parameters: Any) -> dict[str, Any]:
        """One of the Chrome DevTools Protocol."""
        found: dict[str, Any] = self._driver.execute_cdp_cmd(name, parameters)
        return found

    def evaluate(self, expression: str, *arguments: object) -> Any:
        """What a JavaScript expression gives, as JSON can say it; `arguments` are `arguments[0]` and so on."""
        return self._driver.execute_script(f"return ({expression})", *arguments)

    def wait_until(self, expression: str, seconds: float = 20) -> Any:
        """What a JavaScript expression gives once that is true.

        Raises:
            AssertionError: it does not become true, with what the console says.
        """
        wait = WebDriverWait(self._driver, seconds, poll_frequency=0.05)
        try:
            return wait.until(lambda _: self.evaluate(expression))
        except TimeoutException:
            raise AssertionError(f"never true: {expression}; console: {self.console_errors()}") from None

    def console_errors(self) -> list[str]:
        """What the console shows in red: uncaught errors, rejected promises, what could not be loaded."""
        entries = self._driver.get_log("browser")  # gives each entry once
        self._errors += [entry["message"] for entry in entries if entry["level"] == "SEVERE"]
        return self._errors

    def requests(self) -> list[str]:
        """The addresses that the page asked for beyond its own file, whether there was an answer or not."""
        for entry in self._driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] in {"Network.requestWillBeSent", "Network.webSocketCreated"}:
                parameters = message["params"]
                self._requests.append(parameters.get("url") or parameters["request"]["url"])
        return [one for one in self._requests if urlsplit(one).scheme not in _WITHIN and one != self._page]

    def find(self, selector: str) -> WebElement:
        """The first element of a CSS selector, which must be there."""
        return self._driver.find_element(By.CSS_SELECTOR, selector)

    def click(self, selector: str) -> None:
        """Scroll an element into view and click its middle; again if a chart moved it while being drawn."""

        def is_clicked(_: object) -> bool:
            self.show(selector)
            self.find(selector).click()
            return True

        moved = [ElementClickInterceptedException]
        WebDriverWait(self._driver, 10, poll_frequency=0.05, ignored_exceptions=moved).until(is_clicked)

    def show(self, selector: str) -> None:
        """Scrolls an element to the middle of the window."""
        self._driver.execute_script(
            "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", self.find(selector)
        )

    def drag(self, selector: str, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """The mouse from one place on an element to another, as shares of its width and height."""
        self._move(selector, begin).click_and_hold().perform()
        self._move(selector, end).release().perform()

    def hover(self, selector: str, at: tuple[float, float]) -> None:
        """The mouse to a place on an element, as shares of its width and height, where it does not quite rest."""
        self._move(selector, at).move_by_offset(1, 0).perform()

    def _move(self, selector: str, at: tuple[float, float]) -> ActionChains:
        element = self.find(selector)
        x, y = (round((share - 0.5) * element.size[side]) for share, side in zip(at, ("width", "height"), strict=True))
        return ActionChains(self._driver, duration=20).move_to_element_with_offset(element, x, y)

    def keep(self, name: str, selector: str = "html") -> None:
        """A screenshot where a folder for screenshots is given; drawing a long page takes seconds."""
        if SCREENSHOTS in os.environ:
            self.screenshot(name, selector)

    def screenshot(self, name: str, selector: str = "html") -> Path:
        """A PNG of all of an element, also of what is out of sight, in the folder for screenshots."""
        box = "(({x, y, width, height}) => ({x: x + scrollX, y: y + scrollY, width, height, scale: 1}))"
        clip = self.evaluate(f"{box}(arguments[0].getBoundingClientRect())", self.find(selector))
        found = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path = self._screenshots / f"{name}.png"
        path.write_bytes(base64.b64decode(found["data"]))
        return path

    def render(self, name: str) -> tuple[Path, int]:
        """A PDF of the page in the folder for screenshots, and how many pages it has."""
        content = base64.b64decode(
            self.command("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"]
        )
        path = self._screenshots / f"{name}.pdf"
        path.write_bytes(content)
        return path, len(re.findall(rb"/Type\s*/Page\b", content))


@contextmanager
def start(folder: Path) -> Iterator[Browser]:
    """Chromium with a profile of its own in `folder`; where it is not installed the tests skip, but fail in CI."""
    binary, driver = shutil.which(CHROMIUM), shutil.which(DRIVER)
    if binary is None or driver is None:
        missing = CHROMIUM if binary is None else DRIVER
        sentence = f"{missing} is not on PATH; Debian has it in the packages chromium and chromium-driver"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(sentence)
    options = ChromeOptions()
    options.binary_location = binary
    for flag in (*_FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    screenshots = Path(os.environ.get(SCREENSHOTS) or folder / "screenshots")
    screenshots.mkdir(parents=True, exist_ok=True)
    with Chrome(options, Service(driver)) as chrome:
        chrome.set_page_load_timeout(60)
        yield Browser(chrome, screenshots)
