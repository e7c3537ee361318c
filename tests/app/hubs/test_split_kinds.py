"""``python -m app split-kinds`` parts the deltas and weights that sources stored in one space."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from app.catalog.batches import BatchEntry, BatchService
from app.catalog.puts import Stored
from app.catalog.repositories import models, tensor_counts
from app.catalog.revisions import RevisionService
from app.catalog.writer import ModelWriter
from app.cli import kinds
from app.errors import Unavailable
from app.hubs.records import Place, SourceRecord
from app.hubs.repositories import source_models
from app.infra.db.database import Writer
from app.settings import Settings
from app.spaces.records import SpaceRecord
from app.spaces.service import SpaceService
from app.spaces.stored_layouts import StoredLayout
from modelkin import Support
from modelkin.core.layout import Layout
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import Backend
from tests.support.http_space import family

LAYOUT = Layout.of([("a", (40, 100)), ("b", (60, 100))])
SUPPORTS = list(family(3, 10_000, 500, 12).values())
BASES = ("org/base@1", "org/other@7")


@pytest.fixture
def app(backend: Backend, tmp_path: Any) -> Iterator[AppHarness]:
    """A service, with a space as an older version left it."""
    with open_app(tmp_path, backend) as opened:
        yield opened


def sister(base: str) -> str:
    return f"kin-delta-{hashlib.sha256(base.encode()).hexdigest()[:12]}"


def create(app: AppHarness, name: str = "kin", **given: Any) -> SpaceRecord:
    with app.database.writing() as session:
        space, _ = app.services[SpaceService].create(
            session,
            app.tenant,
            name,
            num_parameters=None,
            layout=StoredLayout.of(LAYOUT),
            scheme=None,
            num_perm=64,
            seed=5,
            **given,
        )
    return space


def put(
    app: AppHarness, space: SpaceRecord, name: str, support: Support, base: str | None = None
) -> None:
    """Store a model as a source did: a delta of a base, or weights."""
    hub = {"source": "s", "importance": "weight" if base is None else "delta", "base": base}
    entry = BatchEntry(name, support, tags=("t", name[-1]), attributes={"hub": hub, "site": 7})
    with app.database.reading() as session:
        [result] = app.services[BatchService].put(session, space, [entry])
    assert isinstance(result.outcome, Stored)
    with app.database.writing() as session:
        app.services[ModelWriter].update(
            session,
            space,
            name,
            tags=None,
            attributes=None,
            source=f"https://hub/{name}",
            base_model=None if base is None else base.partition("@")[0],
        )


def mixed(app: AppHarness) -> tuple[SpaceRecord, SourceRecord]:
    """A base, a fine-tune of each of two bases in its second revision, and their source."""
    space, source = create(app), app.hubs.follow("http://127.0.0.1:9")
    put(app, space, "org/base", SUPPORTS[0])
    for number, base in enumerate(BASES):
        name = f"org/tuned{number}"
        put(app, space, name, SUPPORTS[2 * number + 1], base)
        put(app, space, name, SUPPORTS[2 * number + 2], base)
        with app.database.writing() as session:
            sync = source_models.start_sync(session, source.id, name, "j") or 0
            seen: Any = {"opened": source.updated_at, "revision": "s", "place": Place(name, "kin")}
            assert source_models.finish_sync(session, source.id, name, sync, **seen)
    return space, source


def run(
    app: AppHarness,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *flags: str,
) -> tuple[int, str, str]:
    """The exit code of the command, and what it printed to stdout and stderr."""
    settings = app.services[Settings]
    monkeypatch.setenv("MODELKIN_DATABASE_URL", settings.database_url)
    monkeypatch.setenv("MODELKIN_BLOB_URL", str(settings.blob_url))
    code = kinds.run(list(flags))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def nearest(app: AppHarness, space: str, model: str) -> list[str]:
    answer = app.http.get(f"/v1/spaces/{space}/neighbors", params={"model": model})
    assert 200 == answer.status_code, answer.text
    return [item["model"] for item in answer.json()["items"]]


def test_deltas_move_and_the_rest_states_weight(
    app: AppHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each base has a space; content, tags, attributes, source and base stay; a running service
    answers from the new places at once, and the next sync knows them.
    """
    _, source = mixed(app)
    before = {n: app.hubs.model(f"org/tuned{n}") for n in range(2)}
    assert {"org/tuned0", "org/tuned1"} == set(nearest(app, "kin", "org/base"))
    line = "; ".join(f"1 deltas moved to {name}" for name in sorted(map(sister, BASES)))
    assert (0, f"kin: {line}; states weight for 1 models\n", "") == run(
        app, monkeypatch, capsys, "--space", "kin"
    )
    kinds = {"kin": "weight", sister(BASES[0]): "delta", sister(BASES[1]): "delta"}
    assert kinds == app.hubs.kinds()
    assert [] == nearest(app, "kin", "org/base")
    for number, base in enumerate(BASES):
        name, space = f"org/tuned{number}", sister(base)
        old, new = before[number], app.hubs.model(name, space)
        assert old is not None
        assert new is not None
        for fact in ("name", "digest", "tags", "attributes", "source", "base_model", "kind"):
            assert getattr(old, fact) == getattr(new, fact)
        assert None is app.hubs.model(name)
        assert SUPPORTS[2 * number + 2] == app.hubs.support(name, space)
        put(app, space_of(app, space), "org/other", SUPPORTS[5], base)
        assert ["org/other"] == nearest(app, space, name)
        with app.database.reading() as session:
            found = space_of(app, space)
            listed = app.services[RevisionService].list(session, found, name, limit=9, cursor=None)
            assert [1] == [one.revision for one in listed.page.items]
            assert {new.id} <= tensor_counts.counts_by_id(session, found, [new.id]).keys()
            assert Place(name, None, space) == source_models.placed(session, source.id, name)
            assert base in (found.importance.note or "")


def space_of(app: AppHarness, name: str) -> SpaceRecord:
    with app.database.reading() as session:
        return app.services[SpaceService].get(session, app.tenant, name)


def test_it_may_be_interrupted_and_repeated(
    app: AppHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failure in the midst of a move leaves that model whole; a second run moves the rest, and a
    third finds nothing to do.
    """
    mixed(app)
    delete, deletes = ModelWriter.delete, []

    def failing(self: ModelWriter, session: Any, space: SpaceRecord, name: str) -> None:
        deletes.append(name)
        if len(deletes) == 2:
            raise Unavailable("the disk is away")
        delete(self, session, space, name)

    with monkeypatch.context() as patched:
        patched.setattr(ModelWriter, "delete", failing)
        code, printed, error = run(app, patched, capsys)
    assert (1, "", "modelkin: kin: the disk is away\n") == (code, printed, error)
    assert SUPPORTS[4] == app.hubs.support("org/tuned1")
    assert None is app.hubs.model("org/tuned1", sister(BASES[1]))
    assert "unstated" == app.hubs.kinds()["kin"]
    assert f"moved to {sister(BASES[1])}" in run(app, monkeypatch, capsys, "--space", "kin")[1]
    assert SUPPORTS[4] == app.hubs.support("org/tuned1", sister(BASES[1]))
    code, printed, error = run(app, monkeypatch, capsys)
    assert (0, "") == (code, error)
    expected = {f"{name}: states {kind} already" for name, kind in app.hubs.kinds().items()}
    assert expected == set(printed.splitlines())


def test_what_is_not_recorded_leaves_the_kind_open(
    app: AppHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Models that clients put into the space may be anything; an empty space is left alone."""
    space, _ = mixed(app)
    create(app, "empty")
    with app.database.reading() as session:
        app.services[BatchService].put(session, space, [BatchEntry("site/a", SUPPORTS[6])])
    code, printed, error = run(app, monkeypatch, capsys)
    assert (0, "") == (code, error)
    first, second = printed.splitlines()
    assert first.endswith("what 1 models were selected by is not recorded; states no kind")
    assert "empty: no models; states no kind" == second
    kinds = app.hubs.kinds()
    assert ["unstated", "unstated"] == [kinds["kin"], kinds["empty"]]


def test_a_name_that_is_taken_stays(
    app: AppHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither of two deltas of one name is lost."""
    put(app, create(app), "org/a", SUPPORTS[0], BASES[0])
    assert 0 == run(app, monkeypatch, capsys)[0]
    with app.database.writing() as session:
        spaces = app.services[SpaceService]
        spaces.delete(session, spaces.get(session, app.tenant, "kin"))
    put(app, create(app), "org/a", SUPPORTS[1], BASES[0])
    code, printed, _ = run(app, monkeypatch, capsys, "--space", "kin")
    assert (0, True) == (code, "such as 'org/a'; states no kind" in printed), printed
    found = [app.hubs.support("org/a", name) for name in (sister(BASES[0]), "kin")]
    assert SUPPORTS[:2] == found


def test_a_space_of_that_name_that_is_another_is_refused(
    app: AppHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command says what differs, moves nothing, and has exit code 1; so with unknown names."""
    put(app, create(app), "org/a", SUPPORTS[0], BASES[0])
    create(app, sister(BASES[0]))
    code, _, error = run(app, monkeypatch, capsys, "--space", "kin")
    assert (1, True) == (code, "its importance is unstated, not delta" in error), error
    assert SUPPORTS[0] == app.hubs.support("org/a")
    assert (1, "", "modelkin: there is no space 'x'\n") == run(
        app, monkeypatch, capsys, "--space", "x"
    )


def test_a_model_that_never_rests_is_an_error(
    app: AppHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stays, and the command says so; it is reported neither as moved nor as a taken name."""
    space = create(app)
    put(app, space, "org/a", SUPPORTS[0], BASES[0])
    find, reads = models.find_model, list[str]()

    def restless(session: Any, found: SpaceRecord, name: str) -> Any:
        model = find(session, found, name)
        if isinstance(session, Writer) or found.name != "kin" or model is None:
            return model
        reads.append(name)
        return replace(model, version=model.version + 1)

    with monkeypatch.context() as patched:
        patched.setattr("app.hubs.kind_split.models.find_model", restless)
        code, printed, error = run(app, patched, capsys)
    assert (1, 5) == (code, len(reads))
    assert "kin:" not in printed
    assert "model 'org/a' has changed 5 times while it was read: run this again" in error
    assert SUPPORTS[0] == app.hubs.support("org/a")
    assert f"moved to {sister(BASES[0])}" in run(app, monkeypatch, capsys, "--space", "kin")[1]
