"""A headless Chromium driven through the DevTools protocol over a pipe; standard library only.

    with Chromium(tmp_path) as browser:
        page = browser.open(path, width=390, height=844, dark=True)
        page.evaluate("document.title")

The pipe is Chromium's `--remote-debugging-pipe`: JSON messages that end with NUL, read by it from file descriptor 3
and written to 4. No port, no web socket, nothing that another process could meet.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

LIMIT_S = 60.0
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--remote-debugging-pipe",
)


class BrowserError(Exception):
    """Chromium ended, answered with an error, or did not answer in time."""


@dataclass(kw_only=True)
class Page:
    """One loaded page. `console` are messages of any level, `requests` URLs that were asked for beside the page."""

    browser: Chromium
    session: str
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, as JSON. Raises BrowserError when it throws."""
        answer = self.browser.call(
            "Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True}, self.session
        )
        if "exceptionDetails" in answer:
            raise BrowserError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        shot = self.browser.call(
            "Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True}, self.session
        )
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, path: Path) -> None:
        """The page as it would be printed on A4."""
        printed = self.browser.call(
            "Page.printToPDF", {"printBackground": True, "preferCSSPageSize": True}, self.session
        )
        path.write_bytes(base64.b64decode(printed["data"]))


class Chromium:
    """A browser with a profile of its own in `folder`; ended at the end of the `with` block."""

    def __init__(self, folder: Path, program: str = "chromium") -> None:
        self._folder, self._program = folder, program
        self._next = 0
        self._buffer = b""
        self._listeners: dict[str, Callable[[str, Mapping[str, Any]], None]] = {}

    def __enter__(self) -> Chromium:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        redirect = 'exec "$@" 3<&"$MLBENCH_IN" 4>&"$MLBENCH_OUT"'
        profile = self._folder / "profile"
        self._process = subprocess.Popen(
            ["bash", "-c", redirect, "bash", self._program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            env={**os.environ, "MLBENCH_IN": str(to_browser), "MLBENCH_OUT": str(from_browser)},
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._process.poll() is None:
                self.call("Browser.close", {})
        except BrowserError:
            self._process.kill()
        finally:
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(timeout=10)
            os.close(self._write)
            os.close(self._read)

    def open(self, path: Path, *, width: int, height: int, dark: bool = False) -> Page:
        """Load a file and wait until it is whole."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(browser=self, session=session)
        url = path.resolve().as_uri()
        loaded: list[bool] = []

        def listen(method: str, told: Mapping[str, Any]) -> None:
            if method == "Runtime.consoleAPICalled":
                page.console.append(f"{told['type']}: {[item.get('value') for item in told['args']]}")
            elif method == "Runtime.exceptionThrown":
                page.console.append(f"exception: {told['exceptionDetails']['text']}")
            elif method == "Log.entryAdded":
                page.console.append(f"{told['entry']['level']}: {told['entry']['text']}")
            elif method == "Network.requestWillBeSent" and told["request"]["url"] not in (url, "data:,"):
                page.requests.append(told["request"]["url"])
            elif method == "Page.loadEventFired":
                loaded.append(True)

        self._listeners[session] = listen
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", {}, session)
        phone = width < 600
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", metrics, session)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", {"features": scheme}, session)
        self.call("Page.navigate", {"url": url}, session)
        end = time.monotonic() + LIMIT_S
        while not loaded:
            self._message(end)
        return page

    def call(self, method: str, parameters: Mapping[str, Any], session: str | None = None) -> dict[str, Any]:
        """Send one command and wait for its answer; events that come meanwhile go to the page's listener."""
        self._next += 1
        number = self._next
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + LIMIT_S
        while True:
            answer = self._message(end)
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                found: dict[str, Any] = answer["result"]
                return found

    def _message(self, end: float) -> dict[str, Any]:
        """The next message, told to its listener when it is an event. Raises BrowserError after `end`."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise BrowserError(f"Chromium did not answer in {LIMIT_S:.0f} s")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise BrowserError(f"Chromium ended with status {self._process.poll()}")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        listener = self._listeners.get(message.get("sessionId", ""))
        if listener is not None and "method" in message:
            listener(message["method"], message.get("params", {}))
        return message
