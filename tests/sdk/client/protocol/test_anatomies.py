"""Anatomies, relatives and pairs of tensors by both clients, beside those without a service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from modelkin import ApiError, InvalidInput, anatomy, plots
from modelkin.types import ModelAnatomy
from modelkin.wire import FINGERPRINT
from tests.sdk.core.fingerprints.planted import DERIVED, fingerprint, model
from tests.support.blocking_client import Connect
from tests.support.servers.server_process import Server

BASE = fingerprint(model(0), None)
CHILD = fingerprint(DERIVED["up-scaled"](model(0)), None)


@pytest.fixture(scope="module")
def stored(sqlite_server: Server) -> str:
    """A base and its child, stored by a client; the address of the service."""
    for name, made in (("anatomies/base", BASE), ("anatomies/child", CHILD)):
        httpx.put(
            f"{sqlite_server.url}/v1/fingerprints/{name}",
            content=made.to_bytes(),
            headers={"Content-Type": FINGERPRINT},
            params={"base_model": "anatomies/base"} if made is CHILD else {},
        ).raise_for_status()
    return sqlite_server.url


@pytest.fixture
def client(stored: str, connect: Connect) -> Iterator[Any]:
    """Either client of the service."""
    with connect(stored) as client:
        yield client


def test_an_anatomy_of_a_service_is_one_without(client: Any) -> None:
    """The same tensors, sentences and figures; it prints and is drawn likewise."""
    alone = anatomy(CHILD, {"anatomies/base": BASE})
    found: ModelAnatomy = client.anatomy(CHILD, exclude=["anatomies/child"])
    assert alone.to_json()["tensors"] == found.to_json()["tensors"]
    assert (alone.relations, alone.verdict) == (found.relations, found.verdict)
    assert alone.rows == found.rows
    assert alone.sentences == found.sentences
    assert [p.words for p in alone.parents] == [p.words for p in found.parents]
    assert plots.anatomy(found) is not None


def test_a_stored_model_knows_its_base(client: Any) -> None:
    """What it declares is the reason of the edge; who stated the base stands beside it."""
    found = client.anatomy("anatomies/child")
    assert ["anatomies/base"] == [each.model for each in found.parents]
    known = found.models["anatomies/base"]
    assert ("declared", "client", 1) == (known.edge, known.stated_by, known.revision)
    text = repr(found)
    assert "Anatomy of anatomies/child, 25 tensors, 1 parent" in text
    assert "stated: by clients, who may state anything: anatomies/base" in text


def test_relatives_print_as_a_table(client: Any) -> None:
    """The verdict in words, shares of both sides, and P; each is an item of a sequence."""
    found = client.relatives("anatomies/base", k=5)
    [relative] = found
    assert ("anatomies/child", "part", "a part") == (
        relative.model,
        relative.verdict,
        relative.words,
    )
    assert relative is found[0]
    assert "a part" in repr(found)
    assert found.note == BASE_NOTE
    assert [] == list(client.relatives(fingerprint(model(3), None)))


BASE_NOTE = (
    "Equal lines mean a common origin: a base, a checkpoint, or the same random seed. Which of two "
    "came first, they do not say."
)


def test_pairs_of_tensors_are_an_anatomy_of_two(client: Any) -> None:
    """Each tensor of the one, with those of the other that have its lines."""
    found = client.tensor_pairs("anatomies/child", "anatomies/base")
    alone = anatomy(CHILD, {"anatomies/base": BASE})
    assert alone.to_json()["tensors"] == found.to_json()["tensors"]
    assert ("anatomies/child", "anatomies/base") == (found.model, found.other)
    assert found.share_of_lines == alone.parents[0].share_of_lines


def test_a_name_without_a_fingerprint_is_refused(client: Any) -> None:
    """By the service; and what is neither a name nor a fingerprint before anything is sent."""
    with pytest.raises(ApiError, match="there is no fingerprint of model 'nobody'"):
        client.anatomy("nobody")
    with pytest.raises(InvalidInput, match="must be a model's name or a Fingerprint, not int"):
        client.relatives(5)
    with pytest.raises(InvalidInput, match="exclude is one string"):
        client.anatomy(CHILD, exclude="a")
