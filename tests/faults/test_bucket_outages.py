"""A bucket that is away or silent: new supports are refused in time, the rest goes on."""

from __future__ import annotations

import itertools
import json
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.support.app.backups import Copies
from tests.support.backends import SQLITE
from tests.support.blob_files import blob_files
from tests.support.declared_problems import checked
from tests.support.faults.asking import Asking
from tests.support.faults.ledger import WRITERS, check_answers, make_space
from tests.support.faults.places import Place, assert_nothing_leaks
from tests.support.fixtures import Figure
from tests.support.http_space import Space, family
from tests.support.repetitions import repetitions
from tests.support.servers.s3_proxy import S3Proxy, s3_proxy
from tests.support.servers.s3_server import S3
from tests.support.servers.server_process import Server
from tests.support.servers.waiting import wait_for
from tests.support.write_log import WriteLog, Writer, finish, start_writers, wait_for_writes

SEED = 1906
MOST_S = repetitions(12, few=30)
"""What a request may take: twice what a silent bucket is waited for, and a little; in the short
form also what a machine under load adds.
"""
M, K = 10_000, 300
REFUSAL = re.compile(r"(PUT|PATCH) /supports/\S+: 503 .*", re.DOTALL)


class Phase(NamedTuple):
    """One outage, amid which the service may be killed."""

    silent: bool
    kills: bool

    def outage(self, proxy: S3Proxy) -> AbstractContextManager[None]:
        return proxy.silent() if self.silent else proxy.away()


def phases() -> Iterator[Phase]:
    """All kinds in turn, in an order drawn from the seed."""
    draw = random.Random(SEED)
    kinds = [Phase(*each) for each in itertools.product((False, True), repeat=2)]
    while True:
        yield from draw.sample(kinds, len(kinds))


class Known:
    """Two spaces that no writer changes; of one, this machine loses all supports but ``m000``.

    Args:
        http: of a service that has just begun.
        fetched: the folder of the supports on its machine.
    """

    def __init__(self, http: httpx.Client, fetched: Path) -> None:
        self._fetched = fetched
        near, far = Space(http, M), Space(http, M)
        models = family(SEED, M, K, 3)
        near.put_all(models)
        far.put("m000", models.pop("m000"))  # a search by a model needs its own support
        there = blob_files(fetched)
        far.put_all(models)
        self._far = blob_files(fetched) - there
        self._near = _paths(near)
        self._support, self._search = _paths(far)
        self.paths = *self._near, self._support, self._search
        self._whole = {path: http.get(path).content for path in self.paths}

    def lose(self) -> None:
        """Lose the supports of the second space on this machine."""
        for path in self._far:
            path.unlink(missing_ok=True)

    def check(self, asking: Asking) -> int:
        """What is here is read as before, what is not is refused, or estimated and said to be so.

        Returns how many such estimates there were.
        """
        for path in self._near:
            assert ({200}, {self._whole[path]}) == (asking.statuses[path], asking.seen[path])
        assert asking.statuses[self._support] <= {200, 503}
        assert asking.seen[self._support] <= {self._whole[self._support]}
        assert {200} == asking.statuses[self._search]
        others = asking.seen[self._search] - {self._whole[self._search]}
        assert all(json.loads(answer)["degraded"] for answer in others)
        return len(others)

    def wait_until_whole(self, http: httpx.Client) -> None:
        """Until the bucket is asked again, and all is answered as before."""
        wait_for(lambda: all(http.get(path).content == self._whole[path] for path in self.paths))


def _paths(space: Space) -> tuple[str, str]:
    """Those of a support and a search."""
    search = f"{space.path('neighbors')}?model=m000&method=exact"
    return space.path("supports", "m001"), search


def beside_the_outage(server: Server, known: Known, writers: list[Writer]) -> tuple[float, int]:
    """Read until each writer was refused.

    Returns the seconds of the longest request, and how many different estimates there were.
    """
    asking = Asking(server.url, known.paths, pause=0.1)
    asking.start()
    for writer in writers:
        writer.join(2 * MOST_S)
        assert not writer.is_alive()
        assert writer.refused
    enough = asking.answers.total() + len(known.paths)
    wait_for(lambda: asking.answers.total() >= enough)
    asking.stop()
    assert [] == asking.bodiless
    longest = max([asking.longest, *(writer.longest for writer in writers)])
    return longest, known.check(asking)


@pytest.mark.long
def test_outages_of_a_bucket(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Figure
) -> None:
    """New supports are a 503 in time; what this machine has is read, and searches are whole or say
    otherwise. A service that dies meanwhile has lost nothing, on a machine without its files.
    """
    place, fetched, draw = Place(s3.bucket()), tmp_path / "fetched", random.Random(SEED)
    write_logs = [WriteLog() for _ in range(WRITERS)]
    longest, estimates, refused, seen = 0.0, 0, 0, Counter[str]()
    with s3_proxy(s3.url) as proxy, ExitStack() as stack:
        for name, value in s3.variables(proxy.url).items():
            monkeypatch.setenv(name, value)
        flags = *place.flags(tmp_path), "--support-cache-entries=0"
        server = Server(tmp_path, *flags).start()
        stack.callback(server.kill)
        make_space(server)
        with checked(httpx.Client(base_url=server.url, timeout=60, trust_env=False)) as http:
            known = Known(http, fetched)
            for number, phase in enumerate(itertools.islice(phases(), repetitions(100, few=4))):
                known.lose()
                writers = start_writers(server.url, "s", write_logs, number, through_faults=True)
                wait_for_writes(write_logs, more=6)
                with phase.outage(proxy):
                    if phase.kills:
                        time.sleep(draw.uniform(0.0, 0.5))
                        server.kill()
                        shutil.rmtree(fetched)
                    else:
                        took, estimated = beside_the_outage(server, known, writers)
                        longest, estimates = max(longest, took), estimates + estimated
                    refusals = finish(writers)
                assert all(map(REFUSAL.fullmatch, refusals)), refusals
                refused += len(refusals)
                seen[("silent" if phase.silent else "away") + ", killed" * phase.kills] += 1
                if phase.kills:
                    http.base_url = httpx.URL(server.start().url)
                known.wait_until_whole(http)
                check_answers(http, "s", write_logs)
        assert 0 == server.stop()
    assert longest < MOST_S
    assert estimates
    for name, value in s3.variables().items():
        monkeypatch.setenv(name, value)
    assert "" == Copies(SQLITE, tmp_path, **place.settings(tmp_path)).verify()
    assert_nothing_leaks(SQLITE, tmp_path, place)
    writes = sum(log.writes for log in write_logs)
    figure(
        f"outages {dict(seen)}, {writes:,} writes acknowledged, 0 lost, {refused} refused, the "
        f"longest request {longest:.1f} s; {estimates} degraded answers, seed {SEED}"
    )
