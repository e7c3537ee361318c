"""The stages of the search cascade over arrays: what they keep and what they never lose."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.models.index import cascade
from app.models.index.cascade import Estimates
from app.models.index.sketch_file import SketchFile
from app.models.index.space_index import ChangedModels, Snapshot, SpaceIndex
from modelkin import Sketch, Support
from modelkin.core.kernels.choice import kernels
from modelkin.types.spaces import SignatureSpec

pytestmark = pytest.mark.slow

H, M, N = 256, 1_000_000, 20_000
SPEC = SignatureSpec("affine32", H, 1)
Similarities = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Planted:
    """Signatures and sketches of 20,000 models, ten of which are kin of a query.

    They follow the distribution of supports of 8% of M. Each index in the union of two supports is
    shared with probability J; so is each value of their signatures.
    """

    snapshot: Snapshot
    query: npt.NDArray[np.uint32]
    sketch: Sketch
    kin: npt.NDArray[np.int64]


def bits(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    return np.unpackbits(words.view(np.uint8), bitorder="little").astype(np.bool_)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Planted, SketchFile]:
    """Kin of S from .3 to .9 of a query, among models of S about .18 with it."""
    rng = np.random.default_rng(8)
    query = rng.integers(0, 2**32, H, dtype=np.uint32)
    own = rng.random(1 << 16) < 0.08
    kin = np.sort(rng.choice(N, 10, replace=False))
    similarity = rng.normal(0.18, 0.01, N)
    similarity[kin] = np.linspace(0.3, 0.9, 10)
    jaccard = similarity / (2 - similarity)
    values = rng.integers(0, 2**32, (N, H), dtype=np.uint32)
    values = np.where(rng.random((N, H)) < jaccard[:, None], query, values)
    file = SketchFile(tmp_path_factory.mktemp("cascade") / "f", M)
    pool = [drawn(rng, own, 0.18) for _ in range(40)]
    for model in range(N):
        near = model in kin
        file.write(
            model, 1 + model, drawn(rng, own, similarity[model]) if near else pool[model % 40]
        )
    changed = ChangedModels(np.arange(N), 1 + np.arange(N), values.astype("<u4").tobytes())
    index = SpaceIndex(SPEC)
    snapshot = index.snapshot_at(1, WholeHistory(changed))
    return Planted(snapshot, query, sketch_of(own), kin), file


@dataclass(frozen=True)
class WholeHistory:
    """A feed in which all models change at once."""

    everything: ChangedModels
    compacted_version: int = 0
    models: int = 0

    def changed_since(self, since: int) -> list[ChangedModels]:
        return [self.everything]

    def removed_since(self, since: int) -> list[int]:
        return []


def sketch_of(members: npt.NDArray[np.bool_]) -> Sketch:
    words = np.packbits(members, bitorder="little").view(np.uint64)
    return Sketch.from_words(words, num_parameters=M, support_size=80_000)


def drawn(rng: np.random.Generator, own: npt.NDArray[np.bool_], similarity: float) -> Sketch:
    """A sketch of the same density with this similarity to ``own``."""
    u = rng.random(own.size)
    return sketch_of(np.where(own, u < similarity, u < 0.08 * (1 - similarity) / 0.92))


def scanned(
    given_: Planted,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Similarities]:
    """The result of the first stage: ids, contents and estimates."""
    found = given_.snapshot.candidates(given_.query, cascade.scan_size(N, 10))
    return found.ids, found.contents, cascade.similarity_from_matches(found.matches, H)


def test_planted_kin_come_through_all_stages(planted: tuple[Planted, SketchFile]) -> None:
    """All ten kin, down to S = .3, are among the 40 of 20,000 that are compared exactly.

    They rank first after the second stage, with estimates right within .03.
    """
    given_, file = planted
    ids, contents, blunt = scanned(given_)
    estimates = cascade.estimate(ids, contents, blunt, given_.sketch, file, num_perm=H)
    chosen = cascade.select_candidates(
        estimates, 10, cascade.comparison_size(10, exactly=True, sketched=True)
    )
    assert (1128, 40, 0) == (ids.size, chosen.ids.size, chosen.tied.size)
    assert given_.kin.tolist() == sorted(chosen.ids[:10].tolist())
    estimated = dict(zip(estimates.ids.tolist(), estimates.similarity.tolist(), strict=True))
    for model, expected in zip(given_.kin.tolist(), np.linspace(0.3, 0.9, 10), strict=True):
        assert abs(estimated[model] - expected) < 0.03
    assert not estimates.unsketched.any()


def test_only_the_better_half_uses_whole_sketches(planted: tuple[Planted, SketchFile]) -> None:
    """200 models are estimated by the whole sample, the others by a quarter with twice the error.

    None of the others is much better than the worst of the 200.
    """
    given_, file = planted
    ids, contents, blunt = scanned(given_)
    estimates = cascade.estimate(ids, contents, blunt, given_.sketch, file, num_perm=H)
    estimated = estimates.similarity
    whole = file.counts(given_.sketch, ids, contents)
    sharp = 2 * whole[:, 0] / (given_.sketch.members + whole[:, 1])
    right = np.isclose(estimated, sharp, atol=1e-12)
    assert 200 <= right.sum() <= 240
    assert 0.002 < (estimated - sharp)[~right].std() < 0.015
    assert estimated[~right].max() < sharp[right].min() + 0.05


def test_no_similarity_exceeds_its_upper_bound(planted: tuple[Planted, SketchFile]) -> None:
    """``upper_bound`` is above the true S of every model, by bytes as by sketch.

    The bound by sketch is tighter. So a model that its bound rules out is not among the best.
    """
    given_, file = planted
    ids, contents, blunt = scanned(given_)
    estimates = cascade.estimate(ids, contents, blunt, given_.sketch, file, num_perm=H)
    none = cascade.estimate(ids, contents, blunt, None, file, num_perm=H)
    kin = np.isin(ids, given_.kin)
    for estimated, margin in ((estimates, 0.05), (none, 0.25)):
        assert (estimated.upper_bound[kin] > np.linspace(0.3, 0.9, 10)).all()
        assert (estimated.upper_bound - estimated.similarity)[kin].max() < margin
    assert (none.upper_bound > 0.18).all()


def test_without_sketches_more_are_compared(
    planted: tuple[Planted, SketchFile], tmp_path: Path
) -> None:
    """On a machine without the file 100 more models, ranked by bytes, are compared: no kin lost."""
    given_, _ = planted
    ids, contents, blunt = scanned(given_)
    empty = SketchFile(tmp_path / "f", M)
    estimates = cascade.estimate(ids, contents, blunt, given_.sketch, empty, num_perm=H)
    chosen = cascade.select_candidates(estimates, 10, 40)
    assert (blunt.tolist(), 140) == (estimates.similarity.tolist(), chosen.ids.size)
    assert set(given_.kin.tolist()) <= set(chosen.ids.tolist())


@given(jaccard=st.floats(0, 1), seed=st.integers(0, 99))
def test_bytes_estimate_without_a_bias(jaccard: float, seed: int) -> None:
    """The estimate corrects for the one byte in 256 that is equal by chance.

    The mean of 4,096 rows is right within four standard errors.
    """
    rng = np.random.default_rng(seed)
    rows = np.where(rng.random((4096, H)) < jaccard, 7, rng.integers(0, 256, (4096, H)))
    matches = kernels().match_counts(rows.astype(np.uint8), np.full(H, 7, np.uint8))
    j = cascade.similarity_from_matches(matches, H) / (
        2 - cascade.similarity_from_matches(matches, H)
    )
    error = np.sqrt((jaccard * (1 - jaccard) + 1 / 256) / (H * 4096))
    assert abs(j.mean() - jaccard) < 4 * error + 0.002  # at 0 half of the estimates are cut off


# Few different estimates, so that many tie.
ESTIMATES = st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=60)


@given(rows=ESTIMATES, k=st.integers(1, 8), more=st.integers(0, 12))
def test_the_selection_is_that_of_a_sort(rows: list[tuple[int, bool]], k: int, more: int) -> None:
    """The selection holds every model that could be among the k best by these estimates.

    It is the start of a sort. A tied group across the cut is listed whole, with fewer places.
    """
    count = k + more
    similarity = np.array([s / 4 for s, _ in rows])
    blunt_ = np.array([b for _, b in rows], bool)
    estimates = Estimates(np.arange(len(rows)) + 100, similarity, similarity + 1, blunt_)
    chosen = cascade.select_candidates(estimates, k, count)
    order = sorted(range(len(rows)), key=lambda i: (-similarity[i], i))
    first = [100 + i for i in order[:count]]
    tied, ids = chosen.tied.tolist(), chosen.ids.tolist()
    assert chosen.upper_bound.tolist() == [similarity[i - 100] + 1 for i in ids]
    assert len(set(ids)) == len(ids)
    assert set(ids).isdisjoint(tied)
    assert {100 + i for i in order} - set(ids) == set(chosen.others.tolist())
    assert len(chosen.others) == len(rows) - len(ids)
    assert [similarity[i - 100] + 1 for i in chosen.others] == chosen.others_bound.tolist()
    blunt = {100 + i for i in order[count:] if rows[i][1]}
    if not tied:
        assert first == ids[: len(first)]
        assert blunt == set(ids[len(first) :])
        return
    assert set(first) - set(tied) <= set(ids)
    assert count - len(set(first) - set(tied)) == chosen.tied_places
    assert {similarity[i - 100] for i in tied} == {similarity[order[k - 1]]}
    assert blunt - set(tied) == set(ids) - set(first)


@pytest.mark.parametrize(
    ("models", "k", "most"),
    [(0, 1, 200), (400, 10, 200), (10**4, 10, 800), (10**5, 10, 2528), (10**6, 10, 15_625),
     (10**7, 10, 25_296), (10**4, 1000, 4000)],
)  # fmt: skip
def test_the_budget_of_the_scan(models: int, k: int, most: int) -> None:
    """It grows with the square root of the models, from 262,144 to 2^22 faster; at least 4 k."""
    assert most == cascade.scan_size(models, k)


def test_a_sketch_with_more_trials_is_sharper() -> None:
    """A sketch is sharper if it has more members than the signature has values, or covers M."""
    for m, k, expected in ((M, 80_000, True), (M, 2000, False), (5000, 20, True)):
        sketch = Support.from_indices(np.arange(0, m, m // k)[:k], m).sketch()
        assert expected is cascade.is_sharper(sketch, H)
