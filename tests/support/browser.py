"""
A headless Chromium, driven by its DevTools protocol (https://chromedevtools.github.io/devtools-protocol/).

It is Debian's package. Only what the tests of the page need is here, so there is no driver to install.
"""

import asyncio
import base64
import itertools
import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp

PATIENCE: Final = 60.0
"""Seconds until a state must be there; normally a moment is enough."""
_FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",  # root cannot have Chromium's own; the page is ours
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
_LARGEST: Final = 64 * 2**20  # bytes of a message: a screenshot is one


def chromium() -> str:
    """The program; raises FileNotFoundError, which says how to install it."""
    found = shutil.which("chromium")
    if found is None:
        raise FileNotFoundError("Chromium is missing: `make test-ui`, run as root on Debian, installs it")
    return found


class Page:
    """One tab; *errors*: what the console, the network and the policy complained about."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.errors: list[str] = []
        self.requested: list[str] = []

    async def listen(self) -> None:
        """Receive until the tab is closed."""
        async for message in self._socket:
            content = json.loads(message.data)
            if "id" in content:
                self._waiting.pop(content["id"]).set_result(content)
            else:
                self._note(content["method"], content["params"])

    def _note(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.errors.append(json.dumps(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.requested.append(params["request"]["url"])

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call *method* of the protocol."""
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE):
            answer = await self._waiting[number]
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        found: dict[str, Any] = answer["result"]
        return found

    async def evaluate(self, script: str) -> Any:
        """The value of *script* in the page."""
        answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    async def wait(self, script: str) -> None:
        """Return when the value of *script* is true."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not await self.evaluate(f"Boolean({script})"):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"never true: {script}; errors: {self.errors}") from None

    async def navigate(self, url: str) -> None:
        """Open *url*."""
        await self.call("Page.navigate", url=url)

    async def show(self, *, width: int = 1280, height: int = 800, is_dark: bool = False) -> None:
        """Set the size of the window, and the colour scheme."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def press(self, key: str) -> None:
        """Press and release *key*."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = "\r" if key == "Enter" else ""
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text
            )

    async def window(self) -> bytes:
        """A picture of what the window shows, as PNG, when nothing moves on it any more."""
        await self.evaluate("Promise.all(document.getAnimations().map((each) => each.finished.catch(() => 0)))")
        answer = await self.call("Page.captureScreenshot", optimizeForSpeed=False)
        return base64.b64decode(answer["data"])

    async def screenshot(self) -> bytes:
        """A picture of the whole page, as PNG."""
        answer = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(answer["data"])


@asynccontextmanager
async def browsing(folder: Path) -> AsyncIterator[Page]:
    """A tab of a Chromium that keeps its files in *folder*."""
    process = await asyncio.create_subprocess_exec(
        chromium(),
        *_FLAGS,
        f"--user-data-dir={folder}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "HOME": str(folder)},
    )
    draining = None
    try:
        endpoint = await _endpoint(process)
        draining = asyncio.create_task(_drain(process))
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{endpoint}/json/list") as answer:
                tabs = await answer.json(content_type=None)
            url = next(each["webSocketDebuggerUrl"] for each in tabs if each["type"] == "page")
            async with session.ws_connect(url, max_msg_size=_LARGEST) as socket:
                page = Page(socket)
                listening = asyncio.create_task(page.listen())
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await page.call(f"{domain}.enable")
                yield page
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        if draining is not None:
            await asyncio.gather(draining, return_exceptions=True)


async def _endpoint(process: asyncio.subprocess.Process) -> str:
    """The host and port at which *process* listens, as it prints them."""
    assert process.stderr is not None
    printed = b""
    async with asyncio.timeout(PATIENCE):
        async for line in process.stderr:
            printed += line
            if found := re.search(rb"DevTools listening on ws://([^/]+)/", line):
                return found[1].decode()
    raise RuntimeError(f"Chromium did not start: {printed.decode(errors='replace')}")


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Read what it prints, so that it never waits for us."""
    assert process.stderr is not None
    while await process.stderr.read(65536):
        pass
