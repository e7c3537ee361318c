"""put_many of fingerprints has the shape of put_many of models, with both clients."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from modelkin import AsyncClient, FingerprintItem
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.errors import InvalidParameter
from tests.support.models.made_fingerprints import made_fingerprint
from tests.support.servers.batch_service import A, Service, refusal

Open = Callable[[Service], Any]
FIRST, SECOND = made_fingerprint(1), made_fingerprint(2)
PATH = "/v1/fingerprints"


def pairs(n: int) -> list[tuple[str, Fingerprint]]:
    """``n`` items."""
    return [(f"m{i}", FIRST) for i in range(n)]


def test_a_second_run_sends_nothing_again(opened: Open, tmp_path: Path) -> None:
    """What is noted is skipped; what failed, is new or has changed in any way is sent."""
    service = Service("m1", path=PATH)
    many = opened(service).fingerprints.put_many
    many(pairs(3), resume=tmp_path / "j")
    service.batches.clear()
    licensed = FingerprintItem("m0", FIRST, license="mit")
    items = [*pairs(2), ("m2", SECOND), ("new", FIRST), licensed]
    summary = many(items, resume=str(tmp_path / "j"))
    assert (1, 3, 1) == (summary.skipped, summary.created, summary.failed)
    assert [["m1", "m2", "new", "m0"]] == service.names


def test_an_interruption_loses_nothing(opened: Open, tmp_path: Path) -> None:
    """After an error in the middle, acknowledged items are skipped and all others sent."""
    service = Service(path=PATH)
    many = opened(service).fingerprints.put_many

    def items() -> Iterator[tuple[str, Fingerprint]]:
        yield from pairs(7)
        raise RuntimeError("the disk went away")

    with pytest.raises(RuntimeError, match="went away"):
        many(items(), batch_size=2, concurrency=1, resume=tmp_path / "j")
    noted = {json.loads(x)["model"] for x in (tmp_path / "j").read_text().splitlines()[1:]}
    service.batches.clear()
    summary = many(pairs(9), resume=tmp_path / "j")
    assert 4 <= len(noted)
    assert (9, len(noted)) == (summary.total, summary.skipped)
    assert {f"m{i}" for i in range(9)} - noted == set(itertools.chain(*service.names))


def test_a_journal_is_of_fingerprints_or_of_a_space(opened: Open, tmp_path: Path) -> None:
    """That of the one is refused for the other, and left as it is."""
    client = opened(Service(path=PATH))
    client.fingerprints.put_many(pairs(1), resume=tmp_path / "j")
    before = (tmp_path / "j").read_bytes()
    with pytest.raises(InvalidParameter, match="is of another upload: its space is None"):
        client.put_many("digits", [("a", A)], resume=tmp_path / "j")
    assert before == (tmp_path / "j").read_bytes()
    models = opened(Service())
    models.put_many("digits", [("a", A)], resume=tmp_path / "of-a-space")
    with pytest.raises(InvalidParameter, match="its kind is None, here it is fingerprints"):
        models.fingerprints.put_many(pairs(1), resume=tmp_path / "of-a-space")


def test_batches_progress_and_names_that_cannot_be(opened: Open) -> None:
    """As many lines a request as are asked for; a name that no model has fails by itself."""
    service, counts = Service(path=PATH), list[tuple[int, int | None]]()
    items = [*pairs(4), ("a//b", FIRST)]
    summary = opened(service).fingerprints.put_many(
        items,
        batch_size=2,
        concurrency=1,
        progress=lambda done, total: counts.append((done, total)),
    )
    assert [["m0", "m1"], ["m2", "m3"]] == service.names
    assert (4, ["a//b"]) == (summary.created, [each.model for each in summary.failures])
    assert (5, 5) == max(counts)


def test_two_fingerprints_of_a_model_are_not_under_way_at_once(opened: Open) -> None:
    """The second waits until the first has arrived, so that the last one stands."""
    service = Service(path=PATH)
    items = [("a", FIRST), ("b", FIRST), ("a", SECOND), ("c", FIRST)]
    opened(service).fingerprints.put_many(items, batch_size=1, concurrency=4)
    sent = [batch[0]["fingerprint"] for batch in service.batches if batch[0]["model"] == "a"]
    assert 2 == len(set(sent))
    again = Service(path=PATH)
    opened(again).fingerprints.put_many([("a", FIRST)])
    assert sent[0] == again.batches[0][0]["fingerprint"]


def test_a_refusal_of_all_ends_it(opened: Open, tmp_path: Path) -> None:
    """The error is raised, and nothing is noted."""
    service = Service(path=PATH)
    service.first = [refusal(403, "forbidden")]
    with pytest.raises(Exception, match="forbidden"):
        opened(service).fingerprints.put_many(pairs(1), resume=tmp_path / "j")
    assert 1 == len((tmp_path / "j").read_text().splitlines())


def test_an_asynchronous_iterable_is_read(tmp_path: Path) -> None:
    """By the asynchronous client, one by one, also to resume."""
    service = Service(path=PATH)

    async def items() -> AsyncIterator[tuple[str, Fingerprint]]:
        for pair in pairs(3):
            await asyncio.sleep(0)
            yield pair

    async def use() -> list[int]:
        transport = httpx.MockTransport(service)
        async with AsyncClient("http://kin.test", transport=transport) as client:
            first = await client.fingerprints.put_many(items(), batch_size=2, resume=tmp_path / "j")
            again = await client.fingerprints.put_many(items(), resume=tmp_path / "j")
            return [first.created, again.skipped]

    assert [3, 3] == asyncio.run(use())
    assert ["m0", "m1", "m2"] == sorted(itertools.chain(*service.names))
