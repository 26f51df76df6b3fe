"""A browser for the tests of pages: the system's Chromium, driven by chromedriver over the WebDriver protocol.

The protocol is JSON over HTTP and the tests use a dozen of its commands, so the standard library serves; Selenium would bring an
asynchronous runtime and may download browsers.
"""
from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

KEYS = {"right": "\ue014", "left": "\ue012", "home": "\ue011", "end": "\ue010", "enter": "\ue007", "escape": "\ue00c", "space": " "}
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"      # the key under which W3C WebDriver hands out elements
START_S, COMMAND_S = 60, 120                         # a loaded machine takes its time


def missing() -> str:
    """Why there is no browser; '' when there is one."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"no {' and no '.join(absent)} (Debian packages chromium and chromium-driver)" if absent else ""


class Browser:
    """One headless window. Every command raises RuntimeError with the browser's message."""

    def __init__(self, width: int = 1280, height: int = 860, dark: bool = False) -> None:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}       # a sanitizer meant for Python alone
        self.process = subprocess.Popen([shutil.which("chromedriver"), f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env=env)
        self.base = f"http://127.0.0.1:{port}"
        self.session = ""
        try:
            self._wait()
            args = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},{height}",
                    "--disable-background-networking", "--no-first-run"]
            options = {"browserName": "chrome", "goog:chromeOptions": {"binary": shutil.which("chromium"), "args": args},
                       "goog:loggingPrefs": {"browser": "ALL"}}
            self.session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": options}})["sessionId"]
            self.media(dark)
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        end = time.monotonic() + START_S
        while True:
            try:
                if self._call("GET", "/status")["ready"]:
                    return
            except OSError:
                pass
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError("chromedriver does not answer")
            time.sleep(0.05)

    def _call(self, method: str, path: str, body: object = None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=COMMAND_S) as answer:
                return json.loads(answer.read())["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise RuntimeError(json.loads(error.read())["value"]["message"]) from None

    def _do(self, method: str, path: str, body: object = None):
        return self._call(method, f"/session/{self.session}{path}", body)

    def media(self, dark: bool) -> None:
        """Light or dark mode."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._do("POST", "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}})

    def resize(self, width: int, height: int) -> None:
        self._do("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}})

    def open(self, path: object) -> None:
        """A file from disk."""
        self._do("POST", "/url", {"url": path.resolve().as_uri()})

    def run(self, script: str, *args: object):
        """The value of JavaScript statements with a `return`."""
        return self._do("POST", "/execute/sync", {"script": script, "args": list(args)})

    def text(self, selector: str) -> str:
        """What is shown of an element."""
        return self.run("const e = document.querySelector(arguments[0]); return e ? e.innerText : null", selector)

    def press(self, *keys: str) -> None:
        """Keys by name, one after the other, as a person would press them."""
        actions = []
        for key in keys:
            value = KEYS.get(key, key)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self._do("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def _element(self, selector: str) -> dict[str, str]:
        return {ELEMENT: self._do("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]}

    def click(self, selector: str, times: int = 1) -> None:
        """A real click (or two) in the middle of an element."""
        actions = [{"type": "pointerMove", "origin": self._element(selector), "x": 0, "y": 0}]
        actions += [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}] * times
        self._do("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": actions}]})

    def hover(self, selector: str) -> None:
        self._do("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [
            {"type": "pointerMove", "origin": self._element(selector), "x": 0, "y": 0}]}]})

    def drag(self, selector: str, dx: int, dy: int) -> None:
        """From the top left quarter of an element."""
        rect = self.run("const r = document.querySelector(arguments[0]).getBoundingClientRect(); return [r.left + 6, r.top + 6]", selector)
        x, y = round(rect[0]), round(rect[1])
        move = {"type": "pointerMove", "origin": "viewport", "duration": 30}
        self._do("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [
            {**move, "x": x, "y": y}, {"type": "pointerDown", "button": 0}, {**move, "x": x + dx, "y": y + dy}, {"type": "pointerUp", "button": 0}]}]})

    def wheel(self, selector: str, delta: int) -> None:
        self._do("POST", "/actions", {"actions": [{"type": "wheel", "id": "wheel", "actions": [
            {"type": "scroll", "origin": self._element(selector), "x": 0, "y": 0, "deltaX": 0, "deltaY": delta}]}]})

    def log(self) -> list[str]:
        """Messages on the console since the last call: errors of scripts, and what the page's policy stopped."""
        return [f"{e['level']}: {e['message']}" for e in self._do("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, path: object) -> None:
        path.write_bytes(base64.b64decode(self._do("GET", "/screenshot")))

    def close(self) -> None:
        if self.session:
            with contextlib.suppress(OSError, RuntimeError):
                self._do("DELETE", "")
            self.session = ""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
