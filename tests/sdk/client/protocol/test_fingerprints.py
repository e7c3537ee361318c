"""``client.fingerprints`` against a service: what is sent is read, by both clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

import modelkin
from modelkin import AsyncClient, Client, FingerprintItem
from modelkin._validation import QUESTIONS
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.errors import InvalidParameter, NotFoundError
from tests.support.models.made_fingerprints import made_fingerprint
from tests.support.servers.server_process import Server

PUBLISHED = datetime(2026, 1, 2, tzinfo=UTC)
FIRST, SECOND = made_fingerprint(1), made_fingerprint(2)


@pytest.fixture(scope="module")
def client(sqlite_server: Server) -> Iterator[Client]:
    with Client(sqlite_server.url) as made:
        yield made


@pytest.mark.parametrize("question", sorted(QUESTIONS))
def test_a_name_that_ends_as_a_question_is_a_name(client: Client, question: str) -> None:
    """``org/anatomy`` is read, also whole, asked about and deleted as any other."""
    name = f"questions/{question}"
    stored = client.fingerprints.put(name, FIRST)
    assert stored == client.fingerprints.info(name)
    assert FIRST == client.fingerprints.get(name)
    assert name == client.anatomy(name).model
    client.fingerprints.delete(name)


def test_a_fingerprint_is_stored_and_read(client: Client) -> None:
    """With what is said of it; a condition holds, and a removed one is gone."""
    stored = client.fingerprints.put(
        "sdk/a",
        FIRST,
        base_models=["sdk/base"],
        base_relation="finetune",
        license="mit",
        published_at=PUBLISHED,
        file_bytes=9,
    )
    assert (("sdk/base",), "finetune", "mit", PUBLISHED, 9) == (
        stored.base_models,
        stored.base_relation,
        stored.license,
        stored.published_at,
        stored.file_bytes,
    )
    assert (FIRST.digest, "client", {1000: 320}) == (stored.digest, stored.stated_by, stored.lines)
    assert stored == client.fingerprints.info("sdk/a")
    assert stored.etag == client.fingerprints.info("sdk/a").etag
    assert FIRST == client.fingerprints.get("sdk/a")
    with pytest.raises(modelkin.ApiError, match="already") as refused:
        client.fingerprints.put("sdk/a", SECOND, create_only=True)
    assert "precondition_failed" == refused.value.problem_code
    changed = client.fingerprints.put("sdk/a", SECOND, if_match=stored.etag)
    assert 2 == changed.revision
    with pytest.raises(modelkin.ApiError, match="changed"):
        client.fingerprints.delete("sdk/a", if_match=stored.etag)
    client.fingerprints.delete("sdk/a", if_match=changed.etag)
    with pytest.raises(NotFoundError):
        client.fingerprints.get("sdk/a")


def test_many_are_stored(client: Client) -> None:
    """In few requests, long ones by themselves; a refused one stops none."""
    large = large_fingerprint()
    items: list[Any] = [
        ("many/a", FIRST),
        FingerprintItem("many/b", SECOND, license="mit"),
        ("many/c", large),
    ]
    told = list[str]()
    summary = client.fingerprints.put_many(items, on_result=lambda each: told.append(each.status))
    assert (3, 0) == (summary.created, summary.failed)
    assert 3 * ["created"] == told
    again = client.fingerprints.put_many([*items, ("many/a", SECOND)])
    assert (3, 1, 0) == (again.unchanged, again.replaced, again.failed)
    assert large == client.fingerprints.get("many/c")
    listed = client.fingerprints.list(prefix="many/", stated_by="client")
    assert ["many/a", "many/b", "many/c"] == [each.model for each in listed]
    assert [] == list(client.fingerprints.list(stated_by="hub"))


def test_what_cannot_be_sent_is_refused_here(client: Client) -> None:
    """An argument of another type, and a time without an offset."""
    with pytest.raises(InvalidParameter, match="Fingerprint"):
        client.fingerprints.put("a", b"x")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="pairs"):
        client.fingerprints.put_many(["a"])  # type: ignore[list-item]
    with pytest.raises(InvalidParameter, match="offset"):
        client.fingerprints.put("a", FIRST, published_at=datetime(2026, 1, 2))


def test_an_asynchronous_client_does_the_same(sqlite_server: Server) -> None:
    """Its methods await, and a listing is read."""

    async def use() -> list[str]:
        async with AsyncClient(sqlite_server.url) as client:
            await client.fingerprints.put("async/a", FIRST)
            await client.fingerprints.put_many([("async/b", SECOND)])
            assert await client.fingerprints.get("async/b") == SECOND
            found = await client.fingerprints.list(prefix="async/").read()
            await client.fingerprints.delete("async/b")
            return [each.model for each in found]

    assert ["async/a", "async/b"] == asyncio.run(use())


def large_fingerprint() -> Fingerprint:
    """One whose line is longer than a service takes: names of random letters fill it."""
    made = made_fingerprint(3)
    letters = np.frombuffer(np.random.default_rng(4).bytes(8000 * 250), np.uint8).reshape(8000, -1)
    names = tuple(bytes(each).hex() for each in letters)
    first, *others = made.tensors
    return replace(made, tensors=(replace(first, names=names), *others))
