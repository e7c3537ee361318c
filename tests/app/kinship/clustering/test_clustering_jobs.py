"""Clustering jobs while their space changes; the test executes the job itself."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from app.infra.db.tables.clusterings import ClusteringRow
from app.infra.errors import ClusteringNotFound, ModelNotFound, SpaceNotFound
from app.kinship.clustering import service
from app.kinship.clustering.records import ClusteringContent
from app.kinship.clustering.repositories import clusterings
from app.kinship.clustering.request import ClusteringRequest
from app.kinship.clustering.service import ClusteringService
from app.settings import Settings
from modelkin.errors import InvalidParameter, JobCancelled
from tests.support.app.space import AppSpace
from tests.support.models.planted_clusters import named, planted


def test_changes_meanwhile_change_nothing(kin: AppSpace) -> None:
    """Models replaced, deleted or added during a clustering are in it as they were before."""
    supports, groups = planted((8, 6, 4))
    others, _ = planted((18,), seed=77)
    version, meddled = kin.space.version, list[str]()

    def meddle(_done: int, _total: int, stage: str = "") -> None:
        if stage == "comparing" and not meddled:
            meddled.append(stage)
            kin.put({f"org/m{i:03d}": support for i, support in enumerate(others[:9])})
            kin.remove("org/m010", "org/m011")
            kin.put({"new": supports[0]})

    kin.finish(kin.begin(kin.enqueue(), meddle))
    found = kin.labels()
    assert meddled
    assert sorted(named(supports)) == list(found)
    assert 1.0 == adjusted_rand_score(groups, list(found.values()))
    (record,) = kin.clusterings()
    assert (version, "exact") == (record.version, record.similarity)
    assert kin.space.version > version


def test_a_support_that_is_damaged_is_estimated(kin: AppSpace) -> None:
    """A damaged file does not fail a clustering: the signature is used instead."""
    files = [p for p in kin.services[Settings].blob_dir.rglob(f"{kin.id}/*/*") if p.is_file()]
    assert len(files) == 18
    for path in sorted(files)[:3]:
        path.write_bytes(b"\xff" * path.stat().st_size)
    _, groups = planted((8, 6, 4))
    assert 1.0 == adjusted_rand_score(groups, list(kin.cluster().values()))
    assert "mixed" == kin.clusterings()[0].similarity


def test_a_job_executed_twice_is_recorded_once(kin: AppSpace) -> None:
    """A job that was started again after a crash leaves one clustering, under its own id."""
    job = kin.enqueue()
    kin.begin(job)
    kin.finish(kin.begin(job))
    (record,) = kin.clusterings()
    assert (job.id, 1, None) == (record.id, record.number, record.previous)


def test_a_cancelled_clustering_leaves_nothing(kin: AppSpace) -> None:
    """The exception of the progress callback propagates, and nothing is stored."""

    def cancel(_done: int, _total: int, stage: str = "") -> None:
        if stage == "measuring":
            raise JobCancelled("enough")

    with pytest.raises(JobCancelled):
        kin.begin(kin.enqueue(), cancel)
    assert [] == kin.clusterings()


def test_the_second_of_two_jobs_continues_the_first(kin: AppSpace) -> None:
    """The job that ends first is the previous one of the other, and no id is used twice."""
    slow, quick = kin.enqueue(), kin.enqueue(ClusteringRequest("agglomerative", {"n_clusters": 5}))
    end = kin.begin(slow)
    kin.finish(kin.begin(quick))
    kin.finish(end)
    second, first = kin.clusterings()
    assert (quick.id, slow.id) == (first.id, second.id)
    assert (1, None, 2, quick.id) == (first.number, first.previous, second.number, second.previous)
    before, after = kin.labels(quick.id), kin.labels(slow.id)
    assert 5 == len(set(before.values()))
    assert set(after.values()) <= set(before.values())
    kept = sum(before[model] == label for model, label in after.items())
    assert kept >= 12


def test_a_space_that_is_deleted_ends_its_clustering(kin: AppSpace) -> None:
    """Deleted before the job begins, or while it runs: nothing is stored, and the job says why."""
    waiting, running = kin.enqueue(), kin.enqueue(ClusteringRequest("leiden"))
    end = kin.begin(running)
    kin.drop()
    with pytest.raises(SpaceNotFound):
        kin.finish(end)
    with pytest.raises(SpaceNotFound):
        kin.begin(waiting)


def test_models_that_go_before_the_job_begins_are_its_error(kin: AppSpace) -> None:
    """A model deleted since the request is an error that names it."""
    named_, many, tagged = (
        kin.enqueue(ClusteringRequest("leiden", models=("org/m000", "org/m001"))),
        kin.enqueue(ClusteringRequest("agglomerative", {"n_clusters": 18})),
        kin.enqueue(ClusteringRequest("hdbscan")),
    )
    kin.remove("org/m001")
    with pytest.raises(ModelNotFound, match="'org/m001'"):
        kin.begin(named_)
    with pytest.raises(InvalidParameter, match="n_clusters is 18, and there are 17 models"):
        kin.begin(many)
    kin.remove(*(f"org/m{i:03d}" for i in range(18) if i != 1))
    with pytest.raises(InvalidParameter, match="the space has no model"):
        kin.begin(tagged)


def test_the_same_request_twice_is_one_job(kin: AppSpace) -> None:
    """A pending job is returned again, but not after a change or for another request."""
    first = kin.enqueue()
    assert first.id == kin.enqueue().id
    assert first.id != kin.enqueue(ClusteringRequest("agglomerative", seed=1)).id
    kin.remove("org/m000")
    assert first.id != kin.enqueue().id


def test_old_clusterings_are_dropped(kin: AppSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest are kept, and the newest of all models however old it is."""
    monkeypatch.setattr(service, "_MAX_CLUSTERINGS", 3)
    whole = kin.enqueue()
    kin.finish(kin.begin(whole))
    for seed in range(4):
        kin.finish(
            kin.begin(
                kin.enqueue(ClusteringRequest("leiden", seed=seed, models=("org/m000", "org/m001")))
            )
        )
    assert [5, 4, 3, 1] == [record.number for record in kin.clusterings()]
    assert whole.id == kin.clusterings()[-1].id
    with kin.database.reading() as session, pytest.raises(ClusteringNotFound):
        kin.services[ClusteringService].get(
            session, kin.space, "0198c7a2-5b7e-7cc3-98c4-dc0c0c07398f"
        )


def test_labels_outlive_their_models(kin: AppSpace) -> None:
    """A clustering keeps the models that are deleted later."""
    found = kin.cluster()
    kin.remove("org/m000")
    assert found == kin.labels()


def test_the_content_is_kept_small(kin: AppSpace) -> None:
    """Labels and names of many models take few bytes each, and come back as they were."""
    kin.cluster()
    with kin.database.reading() as session:
        record = clusterings.find_latest(session, kin.space)
    assert record is not None
    rng = np.random.default_rng(0)
    held = ClusteringContent(
        models=tuple(f"organisation/client-{i:05d}" for i in range(10_000)),
        labels=tuple(rng.integers(0, 100, 10_000).tolist()),
        clusters=tuple(range(100)),
        exemplars=tuple(f"organisation/client-{i:05d}" for i in range(100)),
    )
    with kin.database.writing() as session:
        clusterings.delete_clustering(session, record)
        clusterings.insert_clustering(session, record, held)
    with kin.database.reading() as session:
        assert held == clusterings.content(session, record)
        row = session.get(ClusteringRow, record.id)
        assert row is not None
        assert len(row.content) < 60_000
