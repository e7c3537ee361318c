"""Names that resolve to something else each time: nothing but a checked address is connected to."""

from __future__ import annotations

import contextlib
import ipaddress
import random
from collections.abc import Iterator, Sequence

import httpcore
import httpx
import pytest

from app.hubs.clients.http import HubHttpClient, TransferLimits
from app.infra.egress.addresses import is_public
from app.infra.egress.allowlist import Allowlist
from app.infra.egress.client import Egress
from app.webhooks.sender import Sender
from modelkin.core.foreign_json import Raw
from modelkin.errors import InvalidParameter, ModelkinError
from modelkin.webhooks import new_secret
from tests.support.egress_addresses import INSIDE, OUTSIDE
from tests.support.fixtures import Figure
from tests.support.repetitions import repetitions

SEED = 1906
SCHEDULES = 20
SECRET = new_secret()


class Rebound:
    """A resolver whose name is at other addresses with each look, by a schedule of its own.

    Args:
        schedule: which one: the kinds alternate, are mixed in one answer, or come at any time.
    """

    def __init__(self, schedule: int) -> None:
        self._draw = random.Random(f"{SEED}/{schedule}")
        self._kind = schedule % 5
        self._looks = 0
        self.given: list[str] = []

    def __call__(self, host: str, port: int) -> Sequence[str]:
        self._looks += 1
        self.given = self._answer()
        return self.given

    def _answer(self) -> list[str]:
        out, inside = self._draw.choice(OUTSIDE), self._draw.choice(INSIDE)
        if self._kind == 0:  # public when it is checked, inside when it is connected to
            return [out if self._looks % 2 else inside]
        if self._kind == 1:  # both in one answer
            return self._draw.sample([out, inside], 2)
        if self._kind == 2:  # inside for once, after many looks
            return [inside if self._looks % 7 == 0 else out]
        if self._kind == 3:  # several public ones, the last of which is not
            return [*self._draw.sample(OUTSIDE, 3), inside]
        return [self._draw.choice((out, inside))]


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a connection was tried to; none is made."""
    tried: list[str] = []

    def connect_tcp(self: object, host: str, port: int, **options: object) -> None:
        tried.append(host)
        raise httpcore.ConnectError("this network has no way out")

    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", connect_tcp)
    return tried


def hub(egress: Egress) -> HubHttpClient:
    """A client of a hub, without a token."""
    return HubHttpClient(
        "http://rebound.example",
        egress,
        authorization=None,
        limits=TransferLimits(1 << 20, timeout=1.0, total=60.0),
        refusal=lambda *args, **kwargs: None,
    )


def requests(egress: Egress) -> Iterator[None]:
    """What a service does with a name that a client gave: check, deliver, ask a hub."""
    with contextlib.suppress(InvalidParameter):
        egress.check_url("http://rebound.example/", "url")
    yield
    outcome = Sender(egress, deadline=1.0).send("http://rebound.example/", "id", b"{}", [SECRET])
    assert not outcome.succeeded
    yield
    client = hub(egress)
    with contextlib.suppress(ModelkinError):
        client.json("http://rebound.example/api/models", Raw)
    client.close()
    yield


def test_schedules_of_rebinding(attempts: list[str], figure: Figure) -> None:
    """Whatever a name resolves to next, each address that was tried is public and of the very
    answer that was checked; an answer with one address inside is not used at all.
    """
    total = tried = 0
    tls = httpx.create_ssl_context()
    for schedule in range(SCHEDULES):
        resolver = Rebound(schedule)
        egress = Egress(Allowlist(), resolve=resolver, tls=tls)
        for _ in range(repetitions(200, few=4)):
            for _ in requests(egress):
                total += 1
                shown = f"seed {SEED}, schedule {schedule}: {resolver.given}, tried {attempts}"
                given = set(map(ipaddress.ip_address, resolver.given))
                assert set(map(ipaddress.ip_address, attempts)) <= given, shown
                assert not attempts or all(map(is_public, given)), shown
                tried += len(attempts)
                attempts.clear()
    assert tried > SCHEDULES
    figure(
        f"{SCHEDULES} schedules, {total:,} requests, {tried:,} connections tried, 0 to an address "
        f"inside, seed {SEED}"
    )
