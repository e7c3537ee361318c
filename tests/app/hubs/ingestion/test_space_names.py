"""The spaces that a source makes: names for people, and keys by which it finds them again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import update

from app.hubs.ingestion.spaces.names import name_after
from app.hubs.ingestion.spaces.resolver import SpaceResolver
from app.infra.db.tables.catalog import SpaceRow
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.models.spaces.service import SpaceService
from app.tenancy.auth.tenants import ensure_tenant
from modelkin._validation import check_space_name
from modelkin.core.importance import Importance
from modelkin.core.layout import Layout
from modelkin.core.matching.choosing import free_name
from tests.app.hubs.test_adapters import files
from tests.support.app.harness import AppHarness
from tests.support.models.checkpoints import SHAPES, Tensors, random_tensors, safetensors
from tests.support.servers.fake_huggingface import Hub

DELTA, LORA, OTHER = "kin-org-base-delta", "kin-org-base-lora", "kin-org-wide"
WIDE = {**SHAPES, "encoder.weight": (90, 90)}
LAYOUT = Layout.of(sorted(SHAPES.items()))
OTHERS = Layout.of([("x", (64, 64))])
BASE = Importance("delta", f"org/base@sha256:{'ab' * 32}")


@pytest.fixture
def resolver(app: AppHarness) -> SpaceResolver:
    """Finds and makes spaces, as a worker does."""
    return SpaceResolver(app.database, app.services[SpaceService])


@pytest.mark.parametrize(
    ("space", "models", "kind", "expected"),
    [
        ("kin", ["Acme/ViT_Base"], "", "kin-acme-vit_base"),
        ("kin", ["acme/vit"], "delta", "kin-acme-vit-delta"),
        ("acme", ["acme/vit"], "delta", "acme-vit-delta"),
        ("acme-vit", ["acme/vit"], "lora", "acme-vit-lora"),
        ("ac", ["acme/vit"], "", "ac-acme-vit"),
        ("kin", ["模型", "ab" * 6], "delta", f"kin-{'ab' * 6}-delta"),
        ("kin", ["Modèle/é"], "", "kin-modele-e"),
        ("kin", ["模型"], "lora", "kin-models-lora"),
        ("kin", [], "", "kin-models"),
    ],
)
def test_names_are_those_of_pushes(space: str, models: list[str], kind: str, expected: str) -> None:
    """After the base, behind the source's space, which is not said twice."""
    assert expected == name_after(space, *models, kind=kind)


@pytest.mark.parametrize("space", ["kin", "s" * 100, "s-" * 49 + "s"])
@pytest.mark.parametrize("kind", ["", "delta", "lora"])
def test_long_names_have_room_for_a_number(space: str, kind: str) -> None:
    """Names of models have more characters than those of spaces."""
    name = name_after(space, f"org/{'m' * 300}", kind=kind)
    taken = {name, *(f"{name}-{number}" for number in range(2, 1000))}
    for each in (name, free_name(name, taken.__contains__)):
        assert check_space_name(each).endswith(kind or "m") or each.endswith("-1000")


def push(hub: Hub, name: str, tensors: Tensors, base: str | None = None) -> None:
    """Commit a checkpoint, whose card declares a base."""
    card = {} if base is None else {"base_model": base}
    hub.push(name, {"model.safetensors": safetensors(tensors)}, card=card)


def publish(hub: Hub) -> None:
    """A base with two children, two models of another layout, and two adapters."""
    push(hub, "org/base", random_tensors(1))
    for number in range(2):
        push(hub, f"org/child{number}", random_tensors(2 + number), "org/base")
        push(hub, f"org/wide{number or ''}", random_tensors(4 + number, WIDE))
        hub.push(f"org/lora{number}", files(number), card={"base_model": "org/base"})


def sync(app: AppHarness, hub: Hub, *names: str, space: str = "kin") -> set[str]:
    """Sync models into a space; return those that they were stored in."""
    source, placed = app.hubs.follow(hub.url, space=space), set()
    for name in names:
        job = app.hubs.sync_model(source, name)
        assert job.result is not None, job.error
        placed |= {job.result["space"], (job.result.get("delta") or {}).get("space")} - {None}
    return placed


def record(app: AppHarness, name: str) -> SpaceRecord:
    """The space of a name."""
    with app.database.reading() as session:
        found = spaces.find_space(session, app.tenant, name)
    assert found is not None
    return found


@pytest.mark.slow
def test_spaces_of_earlier_versions_go_on(hub: Hub, app: AppHarness) -> None:
    """Their name is their key: no other space is made beside them."""
    publish(hub)
    first = sync(app, hub, "org/base", "org/child0", "org/wide", "org/lora0")
    assert {"kin", DELTA, LORA, OTHER} == first
    keys = {record(app, name).key for name in first}
    assert not keys & (first - {"kin"})
    with app.database.writing() as session:
        made = update(SpaceRow).where(SpaceRow.source_key.is_not(None))
        session.execute(made.values(name=SpaceRow.source_key, source_key=None))
    assert keys == sync(app, hub, "org/child1", "org/wide1", "org/lora1", "org/child0")
    assert sorted(keys) == app.hubs.spaces()


@pytest.mark.slow
def test_a_taken_name_gets_a_number(hub: Hub, app: AppHarness) -> None:
    """The space that has it is left alone; the source finds its own again."""
    publish(hub)
    for name in (DELTA, LORA, OTHER):
        app.create_space(name, 7)
    numbered = {"kin", *(f"{name}-2" for name in (DELTA, LORA, OTHER))}
    assert numbered == sync(app, hub, "org/base", "org/child0", "org/wide", "org/lora0")
    assert numbered == sync(app, hub, "org/child1", "org/wide1", "org/lora1")
    assert {0} == {record(app, name).supports for name in (DELTA, LORA, OTHER)}


@pytest.mark.slow
def test_two_sources_have_two_spaces_of_one_base(hub: Hub, app: AppHarness) -> None:
    """Also where both would give it the same name; in another tenant it is free."""
    publish(hub)
    placed = [
        sync(app, hub, "org/child0", space=space) - {space} for space in ("org", "org-base", "org")
    ]
    assert [{"org-base-delta"}, {"org-base-delta-2"}, {"org-base-delta"}] == placed


def test_a_deleted_space_is_made_again(hub: Hub, app: AppHarness) -> None:
    """Under its name, while the rows of the deleted one are there still."""
    publish(hub)
    sync(app, hub, "org/child0")
    before = record(app, DELTA)
    with app.database.writing() as session:
        spaces.retire_space(session, before)
    assert {"kin", DELTA} == sync(app, hub, "org/child1")
    after = record(app, DELTA)
    assert before.key == after.key
    assert before.id != after.id


def test_two_workers_make_one_space(app: AppHarness, resolver: SpaceResolver) -> None:
    """The second finds that there is a newer space, looks again, and finds that of its key."""
    app.create_space("kin", 7)
    for layout, called in ((LAYOUT, "org/a"), (OTHERS, "org/b")):
        with app.database.reading() as session:
            kept = resolver.find(session, app.tenant, "kin", layout, (), [called])
            twin = resolver.find(session, app.tenant, "kin", layout, (), ["org/twin"])
        made = resolver.make(app.tenant, kept, Importance("weight"), kept)
        assert made is not None
        assert resolver.make(app.tenant, twin, Importance("weight"), twin) is None
        with app.database.reading() as session:
            again = resolver.find(session, app.tenant, "kin", layout, (), ["org/twin"])
        assert made.space == again.space
        assert f"kin-{called.replace('/', '-')}" == made.space.name


@pytest.mark.parametrize("equal", [True, False])
def test_a_name_that_is_taken_meanwhile(
    app: AppHarness, resolver: SpaceResolver, equal: bool
) -> None:
    """A client makes a space of that name, maybe an equal one: the source's is another."""
    app.create_space("kin", 7)

    def main() -> SpaceRecord | None:
        with app.database.reading() as session:
            found = resolver.find(session, app.tenant, "kin", LAYOUT, (), ["org/a"])
            sister = resolver.find_sister(session, app.tenant, found, BASE)
        made = resolver.make(app.tenant, sister, BASE, found)
        return None if made is None else made.space

    with app.database.reading() as session:
        found = resolver.find(session, app.tenant, "kin", LAYOUT, (), ["org/a"])
        sister = resolver.find_sister(session, app.tenant, found, BASE)
    if equal:
        theirs = replace(sister, key=sister.name)
        assert resolver.make(app.tenant, theirs, BASE, found) is not None
    else:
        app.create_space(sister.name, 7)
    assert resolver.make(app.tenant, sister, BASE, found) is None
    made = main()
    assert made is not None
    assert (f"{sister.name}-2", sister.key) == (made.name, made.source_key)
    assert made == main()


def test_tenants_have_their_own(app: AppHarness, resolver: SpaceResolver) -> None:
    """The same names and keys, of other spaces."""
    with app.database.writing() as session:
        other = ensure_tenant(session, "other")
    made = []
    for tenant in (app.tenant, other):
        with app.database.reading() as session:
            main = resolver.find(session, tenant, "kin", LAYOUT, (), ["org/a"])
            sister = resolver.find_sister(session, tenant, main, BASE)
        assert sister.space is None
        placed = resolver.make(tenant, sister, BASE, main)
        assert placed is not None
        made.append(placed.space)
    assert 1 == len({(space.name, space.source_key) for space in made})
    assert 2 == len({space.id for space in made})
