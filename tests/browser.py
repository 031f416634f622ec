"""A headless Chromium, driven through its DevTools protocol over a pipe: what a reader of a page would see and do."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")

PATIENCE = 60
"""Seconds."""

KEYS = {"Enter": 13, "Escape": 27, "Home": 36, "End": 35, "Tab": 9}
KEYS |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


def executable() -> str | None:
    """The first Chromium that is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a browser. `problems` are what its scripts threw, and what it logged as an error or warning."""

    def __init__(self, process: "subprocess.Popen[bytes]", write: int, read: int) -> None:
        self.process, self.write, self.read = process, write, read
        self.numbers, self.buffer = count(1), b""
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.loaded = False
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attach = {"targetId": target, "flatten": True}
        self.session: str | None = self.call("Target.attachToTarget", attach)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    session = None

    def send(self, method: str, parameters: dict[str, Any]) -> int:
        """Gives a command, and returns its number."""
        number = next(self.numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        return number

    def call(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """The result of a command."""
        number = self.send(method, parameters or {})
        while True:
            answer = self.message()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def message(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], PATIENCE)
            assert ready, f"the browser said nothing for {PATIENCE} s"
            data = os.read(self.read, 1 << 20)
            assert data, "the browser has gone"
            self.buffer += data
        text, self.buffer = self.buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        parameters = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(parameters["exceptionDetails"]))
            case "Log.entryAdded":
                self.problems.append(parameters["entry"]["text"])
            case "Page.javascriptDialogOpening":
                self.problems.append(f"dialog: {parameters['message']}")
                # It stands still until it is answered.
                self.send("Page.handleJavaScriptDialog", {"accept": False})
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Page.loadEventFired":
                self.loaded = True
        return message

    def open(self, page: Path, anchor: str = "") -> float:
        """Opens a file, and returns once it is drawn; the seconds that took."""
        self.loaded, since = False, time.monotonic()
        self.call("Page.navigate", {"url": page.as_uri() + anchor})
        while not self.loaded:
            self.message()
        self.settle()
        return time.monotonic() - since

    def settle(self) -> None:
        """Returns once what is to be drawn is drawn."""
        self.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def js(self, expression: str) -> Any:
        """The value of an expression."""
        parameters = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", parameters)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Presses a key and lets it go."""
        parameters = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        if key == "Enter":
            parameters["text"] = "\r"
        self.call("Input.dispatchKeyEvent", {"type": "keyDown"} | parameters)
        self.call("Input.dispatchKeyEvent", {"type": "keyUp"} | parameters)
        self.settle()

    def click(self, selector: str) -> None:
        """Clicks into the middle of an element."""
        self.js(f"document.querySelector({selector!r}).scrollIntoView({{block: 'nearest'}})")
        box = self.js(f"document.querySelector({selector!r}).getBoundingClientRect().toJSON()")
        at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        press = at | {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", {"type": "mouseMoved"} | at)
        self.call("Input.dispatchMouseEvent", {"type": "mousePressed"} | press)
        self.call("Input.dispatchMouseEvent", {"type": "mouseReleased"} | press)
        self.settle()

    def type(self, text: str) -> None:
        """Types into what has the focus."""
        self.call("Input.insertText", {"text": text})

    def view(self, width: int, height: int, scheme: str = "light") -> None:
        """Sets the window's size and whether it is light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", {"features": features})
        self.settle()

    def screenshot(self, to: Path) -> None:
        """A picture of what is to be seen."""
        to.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", {"format": "png"})["data"]))


@contextmanager
def browser(program: str, profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own, closed at the end."""
    # Its descriptors 3 and 4 are what it listens and talks on. Not every sh can name one above 9.
    to_browser, from_browser = os.pipe(), os.pipe()
    command = f'exec "$0" "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}'
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--remote-debugging-pipe",
    ]
    options += [
        "--no-first-run",
        "--disable-extensions",
        "--disable-background-networking",
        f"--user-data-dir={profile}",
    ]
    process = subprocess.Popen(
        ["bash", "-c", command, program, *options],
        pass_fds=(to_browser[0], from_browser[1]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser[0])
    os.close(from_browser[1])
    try:
        yield Browser(process, to_browser[1], from_browser[0])
    finally:
        # It closes by itself, and only then are the processes gone that write into its profile.
        with suppress(BrokenPipeError):
            os.write(to_browser[1], b'{"id": 0, "method": "Browser.close"}\0')
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(to_browser[1])
        os.close(from_browser[0])
