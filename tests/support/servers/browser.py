"""A headless Chromium, driven by the DevTools protocol over a pipe, and what it saw of a page."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final

__all__ = ["BROWSER", "Browser", "Visit"]

BROWSER: Final = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
"""The path of a browser on this machine, if there is one."""

_TIMEOUT_S = 60.0
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
    "--remote-debugging-pipe",
)


@dataclass
class Visit:
    """What a browser saw of one page.

    Attributes:
        requests: the addresses it asked, but for ``data:``.
        complaints: violations of the page's policy, requests that failed, errors of scripts, and
            dialogs; not the statuses of answers.
    """

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


class Browser:
    """A browser.

    Args:
        profile: the folder of its settings, which it fills.
        flags: more of its command line.
    """

    def __init__(self, profile: Path, *flags: str) -> None:
        assert BROWSER is not None
        reading, to_browser = os.pipe()
        from_browser, writing = os.pipe()
        # The browser reads descriptor 3 and writes 4; numbers above 9 cannot be one of them.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (reading, writing)]
        script = f'exec "$0" "$@" 3<&{ends[0]} 4>&{ends[1]}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, BROWSER, *_FLAGS, *flags, f"--user-data-dir={profile}"],
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (reading, writing, *ends):
            os.close(end)
        self._out = to_browser
        self._messages: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._ids = itertools.count(1)
        self._reader = Thread(target=self._read, args=(from_browser,), daemon=True)
        self._reader.start()

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._out, b'{"id":0,"method":"Browser.close"}\0')
        os.close(self._out)
        self._process.wait(_TIMEOUT_S)
        self._reader.join(_TIMEOUT_S)

    @contextlib.contextmanager
    def page(self, url: str, *, until: str = "true") -> Iterator[tuple[Visit, Page]]:
        """A page that is loaded, and on which the JavaScript expression ``until`` is truthy."""
        visit = Visit()
        target = self.call(visit, None, "Target.createTarget", url="about:blank")["targetId"]
        session = self.call(visit, None, "Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        page = Page(self, visit, session)
        for domain in ("Network", "Page", "Log", "Runtime", "Audits"):
            page.call(f"{domain}.enable")
        page.call("Page.navigate", url=url)
        page.wait_for(f"document.readyState === 'complete' && ({until})")
        try:
            yield visit, page
        finally:
            self.call(visit, None, "Target.closeTarget", targetId=target)

    def call(
        self, visit: Visit, session: str | None, method: str, **parameters: Any
    ) -> dict[str, Any]:
        """The result of a command; what happens until then is noted in ``visit``."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            try:
                got = self._messages.get(timeout=_TIMEOUT_S)
            except Empty:
                raise AssertionError(f"the browser does not answer {method}") from None
            if got.get("id") == number:
                assert "error" not in got, got
                result: dict[str, Any] = got["result"]
                return result
            _note(visit, got.get("method", ""), got.get("params", {}))

    def _read(self, end: int) -> None:
        with open(end, "rb") as pipe:
            rest = b""
            while chunk := pipe.read1(1 << 20):
                *whole, rest = (rest + chunk).split(b"\0")
                for message in whole:
                    self._messages.put(json.loads(message))


class Page:
    """A tab of the browser."""

    def __init__(self, browser: Browser, visit: Visit, session: str) -> None:
        self._browser = browser
        self._visit = visit
        self._session = session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command to this tab."""
        return self._browser.call(self._visit, self._session, method, **parameters)

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page, a promise's when it is kept."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until an expression is truthy."""
        end = time.monotonic() + _TIMEOUT_S
        while not self.value(f"!!({expression})"):
            assert time.monotonic() < end, (expression, self._visit)
            time.sleep(0.05)


def _note(visit: Visit, event: str, facts: dict[str, Any]) -> None:
    if event == "Network.requestWillBeSent":
        url = facts["request"]["url"]
        if not url.startswith("data:"):
            visit.requests.append(url)
    elif event == "Log.entryAdded":
        entry = facts["entry"]
        if "the server responded with a status" not in entry["text"]:
            visit.complaints.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")
    elif event == "Audits.issueAdded" and "contentSecurityPolicyIssueDetails" in (
        details := facts["issue"]["details"]
    ):
        visit.complaints.append(f"policy: {details['contentSecurityPolicyIssueDetails']}")
    elif event in {"Runtime.exceptionThrown", "Page.javascriptDialogOpening"}:
        visit.complaints.append(f"{event}: {facts}")
    elif event == "Runtime.consoleAPICalled" and facts["type"] == "error":
        visit.complaints.append(f"console: {facts['args']}")
