"""What becomes of a clustering while other things happen: its job in the test's own hands."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from app.resources import Resources, open_resources
from app.services.batch import Entry
from app.services.clustering import service
from app.services.clustering.asked import Asked
from app.services.clustering.policy import KIND, PolicyIn, PolicyService, noticed
from app.services.jobs import JobService
from app.services.rules import Stored
from app.settings import Settings
from app.stores.ports import ClusteringContent, ClusteringPolicy, JobRecord, SpaceRecord
from app.stores.sql import clusterings, spaces
from app.stores.sql import policies as policies_store
from app.stores.sql.tables import ClusteringRow
from modelkin import Support
from modelkin.errors import (
    ClusteringNotFound,
    InvalidParameter,
    JobCancelled,
    ModelNotFound,
    SpaceNotFound,
)
from tests.service.backends import Backend
from tests.service.groups import M, named, planted

START = datetime(2026, 5, 1, tzinfo=UTC)


_numbers = itertools.count()


def silent(_done: int, _total: int, _stage: str = "") -> None:
    """Nobody listens."""


class Place:
    """A space in a database, and what can be done to it without a server or a worker."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self.database = resources.database
        self.name = f"s{next(_numbers)}"
        with self.database.writing() as session:
            made = resources.spaces.create(
                session,
                resources.tenant,
                self.name,
                num_parameters=M,
                layout=None,
                scheme="affine32",
                num_perm=256,
                seed=1,
            )
        self.id = made[0].id

    @property
    def space(self) -> SpaceRecord:
        with self.database.reading() as session:
            found = spaces.find_space_by_id(session, self.id)
        if found is None:
            raise SpaceNotFound(self.name)
        return found

    def put(self, models: Mapping[str, Support]) -> None:
        entries = [Entry(name, support) for name, support in models.items()]
        with self.database.reading() as session:
            results = self.resources.batch.put(session, self.space, entries)
        assert all(isinstance(outcome, Stored) for _, outcome in results)

    def remove(self, *names: str) -> None:
        for name in names:
            with self.database.writing() as session:
                self.resources.ingest.delete(session, self.space, name, if_match=None)

    def drop(self) -> None:
        space = self.space
        with self.database.writing() as session:
            self.resources.spaces.delete(session, space)

    def ask(self, asked: Asked | None = None) -> JobRecord:
        """The job of a request."""
        with self.database.writing() as session:
            return self.resources.clusterings.create(
                session, self.resources.tenant, self.space, asked or Asked("agglomerative")
            )

    def begin(self, job: JobRecord, progress: Any = silent) -> Any:
        """Carry a job out, up to its end, which is for ``finish``."""
        return self.resources.jobs.handler(service.KIND)(job, progress)

    def finish(self, end: Any) -> Mapping[str, Any]:
        """What a worker does in the transaction in which a job succeeds."""
        with self.database.writing() as session:
            result: Mapping[str, Any] = end(session)
            return result

    def cluster(self, asked: Asked | None = None) -> dict[str, int]:
        """The labels of a new clustering."""
        self.finish(self.begin(self.ask(asked)))
        return self.labels()

    def labels(self, which: str = service.LATEST) -> dict[str, int]:
        """The labels of a clustering."""
        clusterings = self.resources.clusterings
        with self.database.reading() as session:
            held = clusterings.content(session, clusterings.get(session, self.space, which))
        return dict(zip(held.models, held.labels, strict=True))

    def known(self) -> list[Any]:
        """All clusterings, newest first."""
        with self.database.reading() as session:
            page = self.resources.clusterings.list(session, self.space, limit=100, cursor=None)
        return list(page.items)


@pytest.fixture(scope="module")
def opened(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resources]:
    """Resources on each database, for all tests here."""
    folder = tmp_path_factory.mktemp("clusterings")
    stores = {"database_url": backend.url(folder), "blob_url": f"file://{folder}/blobs"}
    with open_resources(Settings(_env_file=None, **stores)) as resources:
        yield resources


@pytest.fixture
def place(opened: Resources) -> Iterator[Place]:
    """An empty space."""
    made = Place(opened)
    yield made
    with contextlib.suppress(SpaceNotFound):
        made.drop()


@pytest.fixture
def kin(place: Place) -> Place:
    """Three groups of models: of 8, 6 and 4."""
    place.put(named(planted((8, 6, 4))[0]))
    return place


def test_changes_meanwhile_change_nothing(kin: Place) -> None:
    """What is replaced, deleted or new while a clustering is made is in it as it was before."""
    supports, groups = planted((8, 6, 4))
    others, _ = planted((18,), seed=77)
    version, meddled = kin.space.version, list[str]()

    def meddle(_done: int, _total: int, stage: str = "") -> None:
        if stage == "comparing" and not meddled:
            meddled.append(stage)
            kin.put({f"org/m{i:03d}": support for i, support in enumerate(others[:9])})
            kin.remove("org/m010", "org/m011")
            kin.put({"new": supports[0]})

    kin.finish(kin.begin(kin.ask(), meddle))
    found = kin.labels()
    assert meddled
    assert sorted(named(supports)) == list(found)
    assert 1.0 == adjusted_rand_score(groups, list(found.values()))
    (record,) = kin.known()
    assert (version, "exact") == (record.version, record.similarity)
    assert kin.space.version > version


def test_a_support_that_is_damaged_is_estimated(kin: Place) -> None:
    """A file that is not what was stored spoils no clustering: its signature stands in."""
    files = [p for p in kin.resources.settings.blob_folder.rglob(f"{kin.id}/*/*") if p.is_file()]
    assert len(files) == 18
    for path in sorted(files)[:3]:
        path.write_bytes(b"\xff" * path.stat().st_size)
    _, groups = planted((8, 6, 4))
    assert 1.0 == adjusted_rand_score(groups, list(kin.cluster().values()))
    assert "mixed" == kin.known()[0].similarity


def test_what_is_carried_out_twice_is_recorded_once(kin: Place) -> None:
    """A job that was begun again after a crash leaves one clustering, under its own id."""
    job = kin.ask()
    kin.begin(job)
    kin.finish(kin.begin(job))
    (record,) = kin.known()
    assert (job.id, 1, None) == (record.id, record.number, record.previous)


def test_a_cancelled_clustering_leaves_nothing(kin: Place) -> None:
    """What a word of progress raises goes through, and nothing was stored."""

    def cancel(_done: int, _total: int, stage: str = "") -> None:
        if stage == "measuring":
            raise JobCancelled("enough")

    with pytest.raises(JobCancelled):
        kin.begin(kin.ask(), cancel)
    assert [] == kin.known()


def test_of_two_at_a_time_the_second_goes_on_from_the_first(kin: Place) -> None:
    """Whichever ends first is the previous one of the other, and no id is given out twice."""
    slow, quick = kin.ask(), kin.ask(Asked("agglomerative", {"n_clusters": 5}))
    end = kin.begin(slow)
    kin.finish(kin.begin(quick))
    kin.finish(end)
    second, first = kin.known()
    assert (quick.id, slow.id) == (first.id, second.id)
    assert (1, None, 2, quick.id) == (first.number, first.previous, second.number, second.previous)
    before, after = kin.labels(quick.id), kin.labels(slow.id)
    assert 5 == len(set(before.values()))
    assert set(after.values()) <= set(before.values())
    kept = sum(before[model] == label for model, label in after.items())
    assert kept >= 12


def test_a_space_that_is_deleted_ends_its_clustering(kin: Place) -> None:
    """Deleted before the job begins, or while it runs: nothing is stored, and the job says why."""
    waiting, running = kin.ask(), kin.ask(Asked("leiden"))
    end = kin.begin(running)
    kin.drop()
    with pytest.raises(SpaceNotFound):
        kin.finish(end)
    with pytest.raises(SpaceNotFound):
        kin.begin(waiting)


def test_models_that_go_before_the_job_begins_are_its_error(kin: Place) -> None:
    """What could not be known when it was asked for is an error that says what is wrong."""
    named_, many, tagged = (
        kin.ask(Asked("leiden", models=("org/m000", "org/m001"))),
        kin.ask(Asked("agglomerative", {"n_clusters": 18})),
        kin.ask(Asked("hdbscan")),
    )
    kin.remove("org/m001")
    with pytest.raises(ModelNotFound, match="'org/m001'"):
        kin.begin(named_)
    with pytest.raises(InvalidParameter, match="n_clusters is 18, and there are 17 models"):
        kin.begin(many)
    kin.remove(*(f"org/m{i:03d}" for i in range(18) if i != 1))
    with pytest.raises(InvalidParameter, match="the space has no model"):
        kin.begin(tagged)


def test_the_same_request_twice_is_one_job(kin: Place) -> None:
    """While the first waits it answers the second; after a change, or for others, it does not."""
    first = kin.ask()
    assert first.id == kin.ask().id
    assert first.id != kin.ask(Asked("agglomerative", seed=1)).id
    kin.remove("org/m000")
    assert first.id != kin.ask().id


def test_old_clusterings_are_dropped(kin: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest are kept, and the newest of all models however old it is."""
    monkeypatch.setattr(service, "_KEPT", 3)
    whole = kin.ask()
    kin.finish(kin.begin(whole))
    for seed in range(4):
        kin.finish(kin.begin(kin.ask(Asked("leiden", seed=seed, models=("org/m000", "org/m001")))))
    assert [5, 4, 3, 1] == [record.number for record in kin.known()]
    assert whole.id == kin.known()[-1].id
    with kin.database.reading() as session, pytest.raises(ClusteringNotFound):
        kin.resources.clusterings.get(session, kin.space, "0198c7a2-5b7e-7cc3-98c4-dc0c0c07398f")


def test_labels_outlive_their_models(kin: Place) -> None:
    """A clustering is of its moment: models that are deleted stay in it."""
    found = kin.cluster()
    kin.remove("org/m000")
    assert found == kin.labels()


# --- policies ---------------------------------------------------------------------------------


class Clock:
    """A time that passes only when told."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def after(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def policies(kin: Place, clock: Clock) -> PolicyService:
    """The policies of a place, by the clock of the test."""
    own = JobService()
    own.register(service.KIND, lambda job, progress: {})
    return PolicyService(kin.database, own, clock)


def put(kin: Place, policies: PolicyService, **terms: Any) -> ClusteringPolicy:
    """Set the policy of the space."""
    whole = {"after_changes": None, "every_seconds": None, "debounce_seconds": 0} | terms
    wanted = PolicyIn(asked=whole.pop("asked", Asked("agglomerative")), **whole)
    with kin.database.writing() as session:
        return policies.put(session, kin.space, wanted)


def end_all(kin: Place) -> None:
    """Carry out what is queued, as a worker would."""
    with kin.database.reading() as session:
        page = kin.resources.jobs.list(
            session, kin.resources.tenant, limit=100, state="queued", space=kin.name
        )
    for job in page.items:
        kin.finish(kin.begin(job))
        with kin.database.writing() as session:
            kin.resources.jobs.cancel(session, kin.resources.tenant, job.id)


def test_a_space_is_clustered_after_so_many_changes(
    kin: Place, policies: PolicyService, clock: Clock
) -> None:
    """What is there counts; then nothing happens until enough has changed; then it does again."""
    put(kin, policies, after_changes=3)
    (job,) = policies.renew()
    assert (service.KIND, kin.name, "agglomerative") == (
        job.kind,
        job.space,
        job.parameters["algorithm"],
    )
    end_all(kin)
    assert 18 == kin.known()[0].models
    clock.after(3600)
    kin.remove("org/m000", "org/m001")
    assert [] == policies.renew()
    kin.remove("org/m002")
    assert 1 == len(policies.renew())
    assert [] == policies.renew()


def test_a_space_is_clustered_after_a_time(
    kin: Place, policies: PolicyService, clock: Clock
) -> None:
    """After the time is over it is, but only if anything has changed."""
    put(kin, policies, every_seconds=60)
    assert 1 == len(policies.renew())
    end_all(kin)
    clock.after(3600)
    assert [] == policies.renew()
    kin.remove("org/m000")
    assert 1 == len(policies.renew())
    end_all(kin)
    kin.remove("org/m001")
    clock.after(59)
    assert [] == policies.renew()
    clock.after(1)
    assert 1 == len(policies.renew())


def test_a_busy_space_is_left_until_it_rests(
    kin: Place, policies: PolicyService, clock: Clock
) -> None:
    """Nothing begins while changes go on, but after ten times the pause it does all the same."""
    put(kin, policies, after_changes=1, debounce_seconds=10)
    assert [] == policies.renew()
    clock.after(10)
    assert 1 == len(policies.renew())
    end_all(kin)
    waited = 0
    for number in range(17):
        kin.remove(f"org/m{number:03d}")
        if policies.renew():
            break
        clock.after(7)
        waited += 7
    assert 100 <= waited < 120


def test_no_second_clustering_waits_behind_the_first(
    kin: Place, policies: PolicyService, clock: Clock
) -> None:
    """While the last one of a policy is unfinished no other is made; once it ends, it is."""
    put(kin, policies, after_changes=1)
    assert 1 == len(policies.renew())
    kin.remove("org/m000")
    clock.after(60)
    assert [] == policies.renew()
    end_all(kin)
    assert 1 == len(policies.renew())


def test_an_empty_space_is_left_alone(kin: Place, policies: PolicyService) -> None:
    """Where there is nothing to cluster no job is made that would only fail."""
    put(kin, policies, after_changes=1)
    kin.remove(*(f"org/m{i:03d}" for i in range(18)))
    assert [] == policies.renew()


def test_a_policy_goes_with_its_space(kin: Place, policies: PolicyService) -> None:
    """The policy of a deleted space asks for nothing."""
    put(kin, policies, after_changes=1)
    kin.drop()
    assert [] == policies.renew()


def test_another_policy_begins_anew(kin: Place, policies: PolicyService, clock: Clock) -> None:
    """The same terms change nothing; other ones count all that is there as changes again."""
    put(kin, policies, after_changes=5)
    policies.renew()
    end_all(kin)
    clock.after(60)
    kept = put(kin, policies, after_changes=5)
    assert (kin.space.version, START) == (kept.done_version, kept.done_at)
    assert [] == policies.renew()
    changed = put(kin, policies, after_changes=5, asked=Asked("leiden"))
    assert (0, START) == (changed.done_version, changed.created_at)
    assert ["leiden"] == [job.parameters["algorithm"] for job in policies.renew()]


def test_the_schedule_looks_at_policies(kin: Place) -> None:
    """The workers are told to look again and again, but only where there is a policy."""
    jobs = kin.resources.jobs
    (periodic,) = [each for each in jobs.periodic if each.kind == KIND]
    assert periodic.every <= timedelta(minutes=1)
    with kin.database.reading() as session:
        assert not periodic.wanted(session)
    put(kin, kin.resources.policies, after_changes=1)
    with kin.database.reading() as session:
        assert periodic.wanted(session)
    assert {"enqueued": 1} == jobs.handler(KIND)(kin.ask(), silent)


@pytest.mark.parametrize(("ago", "due"), [(0, False), (9, False), (10, True), (500, True)])
def test_what_was_changed_long_ago_is_calm(kin: Place, ago: int, due: bool) -> None:
    """A space that came to rest before anybody looked is clustered at the first look."""
    policy = ClusteringPolicy(
        space_id=kin.id,
        asked={},
        after_changes=1,
        every_seconds=None,
        debounce_seconds=10,
        created_at=START,
        updated_at=START,
        done_version=0,
        done_at=None,
        seen_version=3,
        seen_at=START,
        due_since=None,
    )
    now = START + timedelta(seconds=600)
    changed_at = now - timedelta(seconds=ago)
    seen, found = noticed(policy, kin.space, changed_at, now)
    assert (kin.space.version, changed_at, now, due) == (
        seen.seen_version,
        seen.seen_at,
        seen.due_since,
        found,
    )
    later = now + timedelta(seconds=10)
    assert (seen, True) == noticed(seen, kin.space, later, later)


def test_when_a_space_was_changed_is_known(kin: Place) -> None:
    """A model that is put tells when; a removal does not."""
    begin = datetime.now(UTC)
    kin.put(named(planted((1,), seed=5)[0]))
    with kin.database.reading() as session:
        changed = policies_store.last_change(session, kin.space)
    assert changed is not None
    assert begin - timedelta(seconds=1) <= changed <= datetime.now(UTC)
    kin.remove("org/m001")
    with kin.database.reading() as session:
        assert policies_store.last_change(session, kin.space) is None


def test_the_content_is_kept_small(kin: Place) -> None:
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
