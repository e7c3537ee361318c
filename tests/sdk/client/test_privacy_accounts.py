"""Accounts of private supports beside their models, over either client and a real service."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from modelkin import InvalidInput, NotFoundError, PrivacyAccount, Support, private_support
from tests.support.blocking_client import Connect
from tests.support.servers.server_process import Server

M = 500


@pytest.fixture
def client(sqlite_server: Server, connect: Connect) -> Iterator[Any]:
    """Either client, of the service."""
    with connect(sqlite_server.url) as client:
        yield client


@pytest.fixture
def space(client: Any) -> str:
    """A new space."""
    name = f"accounts-{uuid.uuid4().hex}"
    client.ensure_space(name, num_parameters=M)
    return name


def private(seed: int) -> Support:
    """A private support of epsilon 5."""
    return private_support(np.arange(M), 50, 5.0, 1e-6, 3.0, seed=seed)


def test_each_revision_is_counted_beside_the_model(client: Any, space: str) -> None:
    """The account is read back as it was stored, and other attributes stay."""
    account = PrivacyAccount(30.0, 1e-5).spend(5.0, 1e-6)
    stored = client.put_support(space, "a", private(1), attributes={"epochs": 3}, privacy=account)
    assert 3 == stored.attributes["epochs"]
    known = PrivacyAccount.of_attributes(client.models.get(space, "a").attributes)
    assert known is not None
    account = known.spend(4.0, 1e-6)
    stored = client.put_support(space, "a", private(2), privacy=account)
    assert (2, 3) == (stored.revision, stored.attributes["epochs"])
    assert account == PrivacyAccount.of_attributes(client.models.get(space, "a").attributes)
    assert ((5.0, 1e-6), (4.0, 1e-6)) == account.spent


def test_the_same_support_again_is_not_another(client: Any, space: str) -> None:
    """An upload that is repeated spends nothing, and stores an account that was lost."""
    account = PrivacyAccount(30.0, 1e-5).spend(5.0, 1e-6)
    for _ in range(2):
        stored = client.put_support(space, "a", private(1), privacy=account)
    assert 1 == stored.revision
    client.models.update(space, "a", attributes={})
    stored = client.put_support(space, "a", private(1), privacy=account)
    assert account == PrivacyAccount.of_attributes(stored.attributes)


def test_an_account_that_does_not_pay_sends_nothing(client: Any, space: str) -> None:
    """One that spent nothing, one that paid for another support, one that begins again."""
    empty = PrivacyAccount(30.0, 1e-5)
    with pytest.raises(InvalidInput, match="has spent nothing"):
        client.put_support(space, "a", private(1), privacy=empty)
    with pytest.raises(NotFoundError):
        client.models.get(space, "a")
    account = empty.spend(5.0, 1e-6).spend(4.0, 1e-6)
    client.put_support(space, "a", private(1), privacy=account)
    with pytest.raises(InvalidInput, match="all 2 entries of the account have paid"):
        client.put_support(space, "a", private(2), privacy=account)
    with pytest.raises(InvalidInput, match="do not go on from the 2 stored"):
        client.put_support(space, "a", private(2), privacy=empty.spend(5.0, 1e-6))
    assert private(1) == client.supports.get(space, "a")


def test_a_space_that_is_not_there_is_said_so(client: Any) -> None:
    """A new model is accepted, a missing space is an error."""
    account = PrivacyAccount(30.0, 1e-5).spend(5.0, 1e-6)
    with pytest.raises(NotFoundError, match="space_not_found"):
        client.put_support("no-such-space", "a", private(1), privacy=account)
