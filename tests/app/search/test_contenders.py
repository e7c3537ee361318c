"""Families that estimates cannot order: all contenders are compared, or the answer says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from app.bootstrap import open_services
from app.container import Container
from app.models.index.cascade import scan_bounds
from app.models.index.scan import Scan
from app.models.spaces.records import SpaceRecord
from app.search import contenders
from app.search.comparer import Comparer
from app.search.contenders import Contenders, Scanned
from modelkin import Neighbors, Signature, Support
from tests.support.app.harness import settings_of
from tests.support.backends import SQLITE
from tests.support.search_space import Kind, Stored, ask, make, put

M, K, N = 80_000, 6_000, 250
H = 256


@dataclass(frozen=True)
class Family:
    """Models about equally near to a query."""

    services: Container
    space: SpaceRecord
    query: Support
    models: Sequence[Stored]

    def ask(self, query: str | Support | Signature, **how: object) -> Neighbors:
        """The ten neighbours of a query, as it would be answered among models too large for
        ``exact``.
        """
        return ask(self.services, self.space, query, k=10, **how)


def family(
    services: Container, kind: Kind, n: int, *, least: float, most: float, kin: int = 0
) -> Family:
    """A space of ``n`` models whose S to a query are within a range, and some kin at S = .9."""
    rng = np.random.default_rng(n)
    order = rng.permutation(M)
    models = []
    for number, similarity in enumerate([*rng.uniform(least, most, n), *[0.9] * kin]):
        kept = round(similarity * K)
        indices = [rng.permutation(order[:K])[:kept], rng.permutation(order[K:])[: K - kept]]
        support = Support.from_indices(np.sort(np.concatenate(indices)), M)
        models.append(Stored(f"m{number:03d}", kind, support))
    space = make(services, M)
    put(services, space, models)
    return Family(services, space, Support.from_indices(np.sort(order[:K]), M), models)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """The services under test; which models are compared is no matter of the database."""
    with open_services(settings_of(tmp_path_factory.mktemp("contenders"), SQLITE)) as opened:
        yield opened


@pytest.fixture(scope="module")
def close(services: Container) -> Family:
    """250 models whose S differ by .003, less than any estimate can show."""
    return family(services, "support", N, least=0.8, most=0.803)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models count as too large for ``auto`` to compare all of them."""
    monkeypatch.setattr("app.search.service._MAX_EXACT_BYTES", 0)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all models that are compared."""
    names: list[str] = []
    compare = Comparer.compare

    def spy(self: Comparer, query: object, candidates: Iterable[object], **how: object) -> object:
        chosen = list(candidates)
        names.extend(candidate.name for candidate in chosen)  # type: ignore[attr-defined]
        return compare(self, query, chosen, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(Comparer, "compare", spy)
    return names


def found(answer: Neighbors) -> list[tuple[str, float]]:
    """Names and S, as answered."""
    return [(item.model, item.similarity) for item in answer]


@pytest.mark.usefixtures("large")
def test_a_close_family_is_compared_whole(close: Family) -> None:
    """``auto`` scans, and finds what ``exact`` finds, for a stored model and for a support."""
    for query in (close.query, "m000", "m117"):
        exact, auto = close.ask(query, method="exact"), close.ask(query)
        assert ("scan", 0, 0.0) == (auto.method, auto.ties_left_out, auto.similarity_slack)
        assert found(exact) == found(auto)
        assert len(auto) == 10


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("most", ["MAX_MODELS", "MAX_BYTES"])
def test_a_family_beyond_the_budget_is_answered_with_its_slack(
    close: Family, monkeypatch: pytest.MonkeyPatch, compared: list[str], most: str
) -> None:
    """No more are compared, and the answer bounds what that may have missed."""
    monkeypatch.setattr(contenders, most, 100)
    auto = close.ask(close.query)
    assert len(compared) <= 40
    exact = close.ask(close.query, method="exact")
    assert auto.ties_left_out > N / 2
    assert auto[-1].similarity < exact[-1].similarity
    assert exact[-1].similarity <= auto[-1].similarity + auto.similarity_slack
    assert 0 < auto.similarity_slack < 0.12


def test_clear_neighbors_cost_no_further_comparison(
    services: Container, compared: list[str]
) -> None:
    """Where the k nearest are apart from the others, 40 candidates are compared at most."""
    clear = family(services, "support", 80, least=0.1, most=0.3, kin=12)
    answer = clear.ask(clear.query, method="scan")
    assert len(compared) <= 40
    assert (0, 0.0) == (answer.ties_left_out, answer.similarity_slack)
    assert {model.name for model in clear.models[80:]} > {item.model for item in answer}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["signature", "sketch"])
def test_estimated_families_are_ranked_as_by_exact(services: Container, kind: Kind) -> None:
    """Without supports the S are estimates: ``scan`` has those of ``exact``, for a support, a
    signature and a stored model.
    """
    signed = family(services, kind, 230, least=0.8, most=0.803)
    for query in (signed.query, signed.query.signature(), "m000"):
        exact, scan = (signed.ask(query, method=method) for method in ("exact", "scan"))
        assert not scan.ties_left_out
        assert [s for _, s in found(exact)] == [s for _, s in found(scan)]


def test_a_floor_counts_as_the_rank(close: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models whose bounds do not reach ``min_similarity`` do not contend."""
    monkeypatch.setattr(contenders, "MAX_MODELS", 0)
    assert 0 == close.ask(close.query, method="scan", min_similarity=0.95).ties_left_out
    assert 0 < close.ask(close.query, method="scan", min_similarity=0.8).ties_left_out


def test_what_a_scan_left_out_is_read_from_its_counts() -> None:
    """The others are all models that may be above, without those proposed; each has its bound."""
    rng = np.random.default_rng(4)
    matches = rng.binomial(H, 0.3, 1_000).astype(np.int16)
    matches[::50] = -1
    scan = Scan(np.arange(1_000) * 3, rng.integers(0, 3, 1_000), matches, H)
    proposed = scan.best(200)
    for by_values in (False, True):
        scanned = Scanned(scan, proposed, by_values)
        bounds = scan_bounds(matches, scan.contents, H, by_values=by_values)
        for similarity in (0.3, 0.45, 0.5, 0.6, 0.9):
            ids, most = scanned.beyond(similarity)
            left = (bounds > similarity) & (matches >= 0) & ~np.isin(scan.ids, proposed.ids)
            assert scan.ids[left].tolist() == ids.tolist()
            assert bounds[left].tolist() == most.tolist()


@pytest.mark.parametrize("jaccard", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_bounds_of_a_scan_hold(jaccard: float) -> None:
    """At most 1 in 100 models has an S above its bound; no estimate by signatures has."""
    rng = np.random.default_rng(9)
    equal = rng.binomial(H, jaccard, 20_000)
    matches = (equal + rng.binomial(H - equal, 1 / 256)).astype(np.int32)
    contents = np.ones(20_000, np.int64)
    truth, estimates = (2 * j / (1 + j) for j in (jaccard, equal / H))
    probable = scan_bounds(matches, contents, H, by_values=False)
    assert np.mean(truth > probable + 1e-12) <= 0.01
    for certain in (
        scan_bounds(matches, contents, H, by_values=True),
        scan_bounds(matches, 0 * contents, H, by_values=False),
    ):
        assert (estimates <= certain + 1e-12).all()


def test_the_budget_is_of_models_and_of_bytes() -> None:
    """500 models, and 512 MB."""
    some = Contenders(np.arange(contenders.MAX_MODELS), 0.1)
    assert some.affordable(1 << 20)
    assert not some.affordable(2 << 20)
    assert not Contenders(np.arange(contenders.MAX_MODELS + 1), 0.1).affordable(1)
