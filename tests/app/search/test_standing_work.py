"""What the standing of neighbours costs, and who pays for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.container import Container
from app.infra.db.database import Reader
from app.kinship.donors.request import DonorRequest
from app.kinship.donors.service import DonorService
from app.models.catalog.reader import ModelReader, Subject
from app.search.service import SearchService
from app.search.standing import with_standing
from tests.support.app.space import AppSpace
from tests.support.app.statements import statements
from tests.support.fixtures import on_one_database
from tests.support.http_space import family

pytestmark = on_one_database

M = 10_000


@pytest.fixture
def kin(services: Container) -> AppSpace:
    """Twelve models of one family."""
    made = AppSpace(services, num_parameters=M)
    made.put(family(3, M, 300, 12))
    return made


def sent(kin: AppSpace, ask: Callable[[Reader, Subject], object]) -> list[str]:
    """The SQL of a question about the first model; its space is loaded before."""

    def do() -> None:
        with kin.database.reading() as session:
            subject = kin.services[ModelReader].stored_subject(session, kin.space, "m000")
            ask(session, subject)

    do()
    return statements(kin.database, do)


def test_only_readers_pay_for_it(kin: AppSpace) -> None:
    """One query more for those who see it; a search within the service sends none for it."""
    search, donors, space = kin.services[SearchService], kin.services[DonorService], kin.space

    def shown(session: Reader, subject: Subject) -> None:
        found = search.neighbors(session, space, subject, k=10)
        judged = with_standing(session, space, subject, found)
        assert all(item.unrelated is None for item in found)
        assert all(item.unrelated is not None for item in judged)

    inner = sent(kin, lambda session, s: search.neighbors(session, space, s, k=10))
    assert len(inner) + 1 == len(sent(kin, shown))
    choices = sent(kin, lambda session, s: donors.donors(session, space, s, DonorRequest()))
    assert not any("name IN" in each for each in inner + choices)
