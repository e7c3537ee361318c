"""A reader beside a fault, which keeps what it is answered."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence

import httpx

from tests.support.declared_problems import checked

__all__ = ["Asking"]

_PAUSE_S = 0.02


class Asking(threading.Thread):
    """Asks for some paths in turn until it is stopped.

    Args:
        url: of the service.
        paths: of what to read.
        pause: seconds before each request.

    Attributes:
        answers: how many there were of each status.
        longest: seconds that one took.
        bodiless: refusals that do not say why.
        seen: what each path was answered with a 200.
        statuses: of each path.
    """

    def __init__(self, url: str, paths: Sequence[str], pause: float = _PAUSE_S) -> None:
        super().__init__()
        self._url = url
        self._paths = paths
        self._pause = pause
        self._over = threading.Event()
        self.answers: Counter[int] = Counter()
        self.longest = 0.0
        self.bodiless: list[str] = []
        self.seen: defaultdict[str, set[bytes]] = defaultdict(set)
        self.statuses: defaultdict[str, set[int]] = defaultdict(set)

    def run(self) -> None:
        paths = itertools.cycle(self._paths)
        with checked(httpx.Client(base_url=self._url, timeout=60, trust_env=False)) as http:
            while not self._over.wait(self._pause):
                self._ask(http, next(paths))

    def _ask(self, http: httpx.Client, path: str) -> None:
        began = time.monotonic()
        answer = http.get(path)
        self.longest = max(self.longest, time.monotonic() - began)
        self.answers[answer.status_code] += 1
        self.statuses[path].add(answer.status_code)
        if answer.status_code == 200:
            self.seen[path].add(answer.content)
        if answer.status_code == 503 and not answer.json()["detail"]:
            self.bodiless.append(answer.text)

    def stop(self) -> None:
        """End it behind the request under way."""
        self._over.set()
        self.join()
