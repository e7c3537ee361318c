"""Search in one process: for any stored models, the answer is that of brute force."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.bootstrap import open_services
from app.container import Container
from app.infra.db.database import Database
from app.models.catalog.repositories.candidates import candidates_by_id, candidates_in_pages
from app.models.index.sketch_folder import SketchFolder
from app.models.spaces.records import SpaceRecord
from app.models.spaces.service import SpaceService
from app.tenancy.auth.records import Tenant
from modelkin import Support
from tests.support.app.harness import settings_of
from tests.support.backends import Backend
from tests.support.fixtures import on_one_database
from tests.support.http_space import random_support, related
from tests.support.search_space import Kind, Stored, ask, brute, make, put, triples

pytestmark = on_one_database

SMALL, WIDE = 5000, 150_000


@pytest.fixture(scope="module")
def folder(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of the services of this file."""
    return tmp_path_factory.mktemp(f"search-{backend.name}")


@pytest.fixture(scope="module")
def services(backend: Backend, folder: Path) -> Iterator[Container]:
    """The services under test."""
    with open_services(settings_of(folder, backend)) as opened:
        yield opened


@cache
def distances(m: int) -> dict[int, Support]:
    """A base, as 10, and supports that keep so many tenths of its indices."""
    rng = np.random.default_rng(m)
    base = random_support(rng, m, m // 11)
    return {10: base, **{tenth: related(rng, base, tenth / 10) for tenth in range(10)}}


def crowd(m: int, draws: list[tuple[Kind, int, bool]]) -> list[Stored]:
    """A base and others at distances of tenths from it, some with equal supports."""
    return [
        Stored(
            f"{'zyxwvu'[number % 6]}{number}",
            kind,
            distances(m)[tenth if number else 10],
            ("t",) if tagged else (),
        )
        for number, (kind, tenth, tagged) in enumerate(draws)
    ]


KINDS: list[Kind] = ["support", "signature", "sketch"]
DRAWS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 9), st.booleans()), min_size=1, max_size=14
)


@pytest.mark.slow
@settings(max_examples=20)
@given(m=st.sampled_from([SMALL, WIDE]), draws=DRAWS, k=st.integers(1, 12), lost=st.booleans())
def test_every_method_is_brute_force_where_all_fits(
    services: Container, folder: Path, m: int, draws: list[tuple[Kind, int, bool]], k: int,
    lost: bool,
) -> None:  # fmt: skip
    """With fewer models than any budget, each method returns every model.

    Each item is as sharp as the stored data allow, with tags and without, whether the sketches of
    this machine were lost or not.
    """
    space, models = make(services, m), crowd(m, draws)
    put(services, space, models)
    if lost:
        shutil.rmtree(folder / "blobs-cache", ignore_errors=True)
    tagged = [model for model in models if model.tags]
    for method in ("scan", "exact", "auto"):
        asked = models[0]
        expected = brute(asked, models, k)
        assert expected == triples(ask(services, space, asked.name, k=k, method=method))
        expected = brute(asked, tagged, k, 0.25)
        found = ask(
            services, space, asked.name, k=k, method=method, tags=["t"], min_similarity=0.25
        )
        assert expected == triples(found)
        body = Stored("", "support", asked.support)
        assert brute(body, models, k) == triples(
            ask(services, space, asked.support, k=k, method=method)
        )


@pytest.fixture(scope="module")
def throng(services: Container) -> tuple[SpaceRecord, list[Stored]]:
    """Ten kin at S from .3 to .9 of ``query``, among 300 unrelated models of S about .17 with it.

    Of these, 60 are equal to each other; they are stored in random order of their names.
    """
    rng = np.random.default_rng(5)
    m, k = WIDE, 12_000
    query = random_support(rng, m, k)
    kin = {
        f"kin{i}": related(rng, query, share) for i, share in enumerate(np.linspace(0.24, 0.89, 10))
    }
    twin = related(rng, query, 0.2)
    names = [f"twin{number:02}" for number in rng.permutation(60)]
    unrelated = [related(rng, query, 0.1) for _ in range(12)]
    far = {f"far{number:03}": unrelated[number % 12] for number in range(240)}
    supports = {"query": query, **far, **dict.fromkeys(names, twin), **kin}
    models = [
        Stored(n, "support", s, ("far",) * (n in {"far007", "far099"})) for n, s in supports.items()
    ]
    space = make(services, m)
    put(services, space, models)
    return space, models


def test_planted_kin_are_found(
    services: Container, throng: tuple[SpaceRecord, list[Stored]]
) -> None:
    """A scan that compares 40 of 310 exactly returns all ten, in their order."""
    space, models = throng
    query = next(model for model in models if model.name == "query")
    found = ask(services, space, "query", k=10, method="scan")
    assert brute(query, models, 10) == triples(found)
    assert 200 <= found.candidates <= 201


def test_twins_beyond_every_budget_come_by_name(
    services: Container, throng: tuple[SpaceRecord, list[Stored]]
) -> None:
    """Of 60 that tie for five places the first by name are returned, though 40 are compared."""
    space, models = throng
    query = next(model for model in models if model.name == "query")
    found = ask(services, space, "query", k=15, method="scan")
    assert brute(query, models, 15) == triples(found)
    assert ["twin00", "twin01", "twin02", "twin03", "twin04"] == [item.model for item in found][10:]


def test_an_answer_without_some_buckets_says_so(
    services: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If buckets with too many models were left out, the recall is unknown.

    The answer says so, even if it has as many items as requested.
    """
    rng = np.random.default_rng(6)
    query = random_support(rng, WIDE, 3_000)
    kin = {
        f"kin{i:02}": related(rng, query, share)
        for i, share in enumerate(rng.uniform(0.7, 0.9, 60))
    }
    space = make(services, WIDE)
    put(services, space, [Stored(n, "support", s) for n, s in {"query": query, **kin}.items()])
    whole = ask(services, space, "query", k=10, method="lsh", min_similarity=0.7)
    assert ("lsh", False, True) == (whole.method, whole.truncated, whole.recall is not None)
    monkeypatch.setattr("app.models.index.buckets.service._MAX_ENTRIES", 60)
    cut = ask(services, space, "query", k=10, method="lsh", min_similarity=0.7)
    assert ("lsh", True, None, 10) == (cut.method, cut.truncated, cut.recall, len(cut))


def test_a_rare_tag_of_the_farthest_fills_the_page(
    services: Container, throng: tuple[SpaceRecord, list[Stored]]
) -> None:
    """Tags apply before any budget: two unrelated models, which no scan of all would propose."""
    space, models = throng
    query = next(model for model in models if model.name == "query")
    rare = [model for model in models if model.tags]
    for method in ("scan", "lsh", "exact", "auto"):
        found = ask(services, space, "query", k=10, method=method, tags=["far"])
        if found.method != "lsh":
            assert brute(query, rare, 10) == triples(found)


def test_lost_sketches_come_back_while_answers_stay_right(
    services: Container, folder: Path, throng: tuple[SpaceRecord, list[Stored]]
) -> None:
    """Without sketches a query compares more models exactly and writes their sketches.

    The next queries use them, and all answers are right meanwhile.
    """
    space, models = throng
    query = next(model for model in models if model.name == "query")
    shutil.rmtree(folder / "blobs-cache")
    for _ in range(4):
        assert brute(query, models, 10) == triples(
            ask(services, space, "query", k=10, method="scan")
        )
    with services[Database].reading() as session:
        space = services[SpaceService].get(session, services[Tenant], space.name)
        stored = [model for page in candidates_in_pages(session, space) for model in page]
    ids, contents = np.array([(model.id, model.content_id) for model in stored]).T
    file = SketchFolder(next((folder / "blobs-cache").iterdir())).of(space.id, WIDE)
    known = file.counts(query.support.sketch(), ids, contents)[:, 0] >= 0
    assert 40 <= known.sum() <= len(models)


@pytest.mark.parametrize("asked", [0, 1, 16, 17, 64, 65, 70])
def test_candidates_are_read_in_any_number(services: Container, asked: int) -> None:
    """Each model comes once, those of other spaces and unknown ids never."""
    space, other = make(services, SMALL), make(services, SMALL)
    support = distances(SMALL)[10]
    put(services, space, [Stored(f"m{number}", "support", support) for number in range(70)])
    put(services, other, [Stored("other", "support", support)])
    with services[Database].reading() as session:
        stored = {c.id: c for page in candidates_in_pages(session, space) for c in page}
        foreign = [c.id for page in candidates_in_pages(session, other) for c in page]
        ids = [*stored][: max(0, asked - 2)] + [*foreign, max(stored) + 1000][: min(asked, 2)]
        found = candidates_by_id(session, space, ids)
    expected = [stored[model_id] for model_id in ids if model_id in stored]
    assert expected == sorted(found, key=lambda candidate: candidate.id)
