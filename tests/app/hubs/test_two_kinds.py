"""A hub's model is two here, its weights and its difference from its base, which keep in step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.hubs.ingestion.spaces.names import sister_key
from app.infra.errors import Unavailable
from app.models.catalog.puts import Put
from app.models.catalog.records import DeclaredBases
from app.models.catalog.writer import ModelWriter
from app.models.spaces.requested import RequestedSpace
from app.models.spaces.service import SpaceService
from app.models.spaces.stored_layouts import StoredLayout
from app.models.spaces.support_sizes import SupportSizeRequest
from modelkin import select_support
from modelkin.core.importance import Importance
from modelkin.core.layout import Layout
from tests.support.app.harness import AppHarness
from tests.support.models.checkpoints import (
    SHAPES,
    Tensors,
    delta_support,
    random_tensors,
    safetensors,
    sister_of,
    weight_support,
    weights_digest_of,
)
from tests.support.servers.fake_huggingface import TOKEN, Hub

CARD = {"base_model": "org/base"}
BASE, TUNED, LATER = random_tensors(1), random_tensors(2), random_tensors(3)
SISTER = sister_of("kin", "org/base")
KEY = sister_key("kin", weights_digest_of(BASE).removeprefix("sha256:"))
"""By what sources of ``kin`` find the sister, and what earlier versions called it."""


def push(hub: Hub, name: str, tensors: Tensors, **known: Any) -> str:
    return hub.push(name, {"model.safetensors": safetensors(tensors)}, **known)


def push_both(hub: Hub) -> None:
    push(hub, "org/base", BASE)
    push(hub, "org/a", TUNED, card=CARD)


def create(app: AppHarness, name: str, **given: Any) -> None:
    with app.database.writing() as session:
        app.services[SpaceService].create(
            session,
            app.tenant,
            name,
            RequestedSpace(
                num_parameters=None,
                layout=StoredLayout.of(given.pop("layout", Layout.of(sorted(SHAPES.items())))),
                scheme=None,
                num_perm=64,
                seed=7,
                **given,
            ),
        )


def stored(app: AppHarness, *spaces: str, name: str = "org/a") -> list[int | None]:
    """The revision of a model in each space; None where it is not."""
    found = [app.hubs.model(name, space) for space in spaces]
    return [None if model is None else model.revision for model in found]


@pytest.mark.parametrize(
    ("importance", "expected"),
    [(None, [1, 1]), ("weight", [1, None]), ("delta", [None, 1])],
)
def test_a_source_may_ask_for_one_kind_alone(
    hub: Hub, app: AppHarness, importance: str | None, expected: list[int | None]
) -> None:
    """The space of what is not asked for is not made."""
    push_both(hub)
    job = app.hubs.sync_model(app.hubs.follow(hub.url, importance=importance), "org/a")
    assert job.result is not None, job.error
    assert expected == stored(app, "kin", SISTER)
    places = {"kin", SISTER} if importance is None else {SISTER if expected[1] else "kin"}
    assert places == set(app.hubs.spaces())
    if importance == "weight":
        assert "weights alone" in job.result["delta"]["reason"]
        assert [] == job.result["notes"]
    else:
        assert SISTER == job.result["delta"]["space"]


def test_a_model_without_a_base_says_so(hub: Hub, app: AppHarness) -> None:
    """A base is a model like any other, with its weights alone."""
    push_both(hub)
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/base")
    assert job.result is not None, job.error
    assert "declares no base" in job.result["delta"]["reason"]
    assert ["kin"] == app.hubs.spaces()


@pytest.mark.parametrize(
    ("space", "kind", "words"),
    [
        ("kin", Importance("fisher"), ["'kin'", "by fisher", "by weight"]),
        ("kin", Importance("delta", f"sha256:{'ab' * 32}"), ["by delta against", "by weight"]),
        (KEY, Importance("weight"), [f"'{KEY}'", "by weight", "by delta against org/base@"]),
    ],
    ids=["gradients", "deltas", "a sister of weights"],
)
def test_a_space_of_another_kind_is_refused(
    hub: Hub, app: AppHarness, space: str, kind: Importance, words: list[str]
) -> None:
    """The job fails, names both kinds, and stores neither support."""
    push_both(hub)
    create(app, space, importance=kind)
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    assert job.error is not None
    assert ("failed", "space_mismatch") == (job.state, job.error["code"])
    assert all(word in job.error["detail"] for word in words), job.error
    assert [space] == app.hubs.spaces()
    assert [None] == stored(app, space)


def test_a_space_of_deltas_takes_deltas(hub: Hub, app: AppHarness) -> None:
    """A source of deltas that names a space of deltas uses that, if it has the same base."""
    push_both(hub)
    digest = weights_digest_of(BASE)
    create(app, "deltas", importance=Importance("delta"))
    create(app, "others", importance=Importance("delta", f"sha256:{'ab' * 32}"))
    sources = [app.hubs.follow(hub.url, space=s, importance="delta") for s in ("deltas", "others")]
    fits, other = (app.hubs.sync_model(source, "org/a") for source in sources)
    assert ("succeeded", "failed") == (fits.state, other.state)
    assert other.error is not None
    assert digest in other.error["detail"]
    assert delta_support(TUNED, BASE) == app.hubs.support("org/a", "deltas")
    assert ["deltas", "others"] == app.hubs.spaces()


def test_a_space_that_states_nothing_takes_weights(hub: Hub, app: AppHarness) -> None:
    """Spaces from before kinds go on."""
    push_both(hub)
    create(app, "kin")
    assert "succeeded" == app.hubs.sync_model(app.hubs.follow(hub.url), "org/a").state
    assert "unstated" == app.hubs.kinds()["kin"]
    assert weight_support(TUNED) == app.hubs.support("org/a")


def test_a_sister_takes_over_what_is_fixed(hub: Hub, app: AppHarness) -> None:
    """Order of tensors, signatures and a fixed K of the space hold for its deltas."""
    push_both(hub)
    names = sorted(SHAPES, reverse=True)
    layout = Layout.of((name, SHAPES[name]) for name in names)
    create(app, "kin", layout=layout, support_size=SupportSizeRequest("fixed", k=33))
    assert "succeeded" == app.hubs.sync_model(app.hubs.follow(hub.url), "org/a").state
    changes = [np.abs(TUNED[name] - BASE[name]).ravel() for name in names]
    assert select_support(np.concatenate(changes), k=33) == app.hubs.support("org/a", SISTER)
    with app.database.reading() as session:
        sister = app.services[SpaceService].get(session, app.tenant, SISTER)
        kept = app.services[SpaceService].layout(session, sister)
    assert (layout, 33, 64) == (
        kept,
        sister.support_size.k,
        sister.signature.num_perm,
    )


@pytest.mark.parametrize("changed", [2000, 300], ids=["many", "fewer than K"])
def test_a_sister_may_want_more_than_is_usual(hub: Hub, app: AppHarness, changed: int) -> None:
    """Its K is known once the base is read; where that is too late, both are read once more."""
    names = sorted(SHAPES)
    before = np.concatenate([BASE[name].ravel() for name in names])
    flat = before.copy()
    flat[:changed] += np.linspace(1, 2, changed, dtype=np.float32)
    ends = np.cumsum([BASE[name].size for name in names])[:-1]
    parts = zip(names, np.split(flat, ends), strict=True)
    push(hub, "org/base", BASE)
    tensors = {name: part.reshape(SHAPES[name]) for name, part in parts}
    push(hub, "org/a", tensors, card=CARD)
    create(app, KEY, support_size=SupportSizeRequest("fixed", k=400))
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    assert job.result is not None, job.error
    assert (KEY, min(400, changed)) == tuple(
        job.result["delta"][name] for name in ("space", "support_size")
    )
    difference = np.abs(flat - before)
    expected = select_support(difference, k=min(400, changed))
    assert expected == app.hubs.support("org/a", KEY)


def test_both_or_neither(hub: Hub, app: AppHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure while the second support is stored leaves the first one unstored."""
    push_both(hub)
    source, put, puts = app.hubs.follow(hub.url), ModelWriter.put, []

    def failing(self: ModelWriter, session: Any, space: Any, what: Put) -> Any:
        puts.append(space.name)
        if len(puts) == 2:
            raise Unavailable("the disk is away")
        return put(self, session, space, what)

    with monkeypatch.context() as patched:
        patched.setattr(ModelWriter, "put", failing)
        job = app.hubs.sync_model(source, "org/a")
    assert (["kin", SISTER], "queued") == (puts, job.state)
    assert [None, None] == stored(app, "kin", SISTER)
    assert "succeeded" == app.worker.execute(job).state
    assert [1, 1] == stored(app, "kin", SISTER)


def test_both_are_renamed(hub: Hub, app: AppHarness) -> None:
    """A model that moved on the hub keeps both supports, and nothing is downloaded."""
    push_both(hub)
    source = app.hubs.follow(hub.url)
    app.hubs.sync_model(source, "org/a")
    hub.downloads = []
    hub.move("org/a", "org/b")
    job = app.hubs.sync_model(source, "org/a")
    assert job.result is not None, job.error
    assert ("unchanged", "kin", SISTER) == tuple(
        job.result[name] for name in ("outcome", "space", "delta_space")
    )
    assert [1, 1] == stored(app, "kin", SISTER, name="org/b")
    assert [None, None] == stored(app, "kin", SISTER)
    assert [] == hub.downloads


@pytest.mark.slow
@pytest.mark.parametrize(("on_delete", "left"), [("keep", 1), ("remove", None)])
def test_both_go_where_the_source_says(
    hub: Hub, app: AppHarness, on_delete: str, left: int | None
) -> None:
    """A model that is gone from the hub is kept or removed with its delta."""
    push_both(hub)
    source = app.hubs.follow(hub.url, on_delete=on_delete, token=TOKEN)
    app.hubs.sync_model(source, "org/a")
    del hub.repos["org/a"]
    job = app.hubs.sync_model(source, "org/a")
    assert job.result is not None, job.error
    assert ("gone", left is None) == (job.result["outcome"], job.result["removed"])
    assert [left, left] == stored(app, "kin", SISTER)


@pytest.mark.slow
@pytest.mark.parametrize(("on_delete", "left"), [("keep", 1), ("remove", None)])
def test_another_layout_moves_both(
    hub: Hub, app: AppHarness, on_delete: str, left: int | None
) -> None:
    """A new layout, with a base of that layout, is stored in spaces of its own."""
    push_both(hub)
    source = app.hubs.follow(hub.url, on_delete=on_delete)
    app.hubs.sync_model(source, "org/a")
    shapes = {**SHAPES, "head.weight": (90, 90)}
    push(hub, "org/base", random_tensors(5, shapes))
    push(hub, "org/a", random_tensors(6, shapes), card=CARD)
    job = app.hubs.sync_model(source, "org/a")
    assert job.result is not None, job.error
    space, delta = job.result["space"], job.result["delta"]
    assert ("kin-org-base", f"{SISTER}-2") == (space, delta["space"])
    assert [1, 1] == stored(app, space, delta["space"])
    assert [left, left] == stored(app, "kin", SISTER)
    expected = ("kin", SISTER) if on_delete == "keep" else (None, None)
    assert expected == (job.result["left_in"], delta["left_in"])


def test_a_base_that_appears_later(hub: Hub, app: AppHarness) -> None:
    """The delta comes with the first sync that finds the base; the weights stay what they were."""
    push(hub, "org/a", TUNED, card=CARD)
    source = app.hubs.follow(hub.url)
    first = app.hubs.sync_model(source, "org/a").result
    assert first is not None
    assert "base org/base is not available" in first["delta"]["reason"]
    assert [1, None] == stored(app, "kin", SISTER)
    push(hub, "org/base", BASE)
    again = app.hubs.sync_model(source, "org/a").result
    assert again is not None
    assert SISTER == again["delta"]["space"]
    assert [1, 1] == stored(app, "kin", SISTER)


def test_a_base_that_is_broken(hub: Hub, app: AppHarness) -> None:
    """A base with weights that are not finite costs the delta, and no weights."""
    broken = {name: tensor.copy() for name, tensor in BASE.items()}
    broken["encoder.bias"][7] = np.nan
    push(hub, "org/base", broken)
    push(hub, "org/a", TUNED, card=CARD)
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    assert job.result is not None, job.error
    assert "a difference that is infinite or NaN" in job.result["delta"]["reason"]
    assert {"kin": "weight"} == app.hubs.kinds()
    required = app.hubs.sync_model(app.hubs.follow(hub.url, importance="delta"), "org/a")
    assert required.error is not None
    assert "invalid_checkpoint" == required.error["code"]


@pytest.mark.slow
@pytest.mark.parametrize(("on_delete", "left"), [("keep", 1), ("remove", None)])
def test_a_base_that_disappears(
    hub: Hub, app: AppHarness, on_delete: str, left: int | None
) -> None:
    """The delta stays as long as the model is what it was; a new revision has none."""
    push_both(hub)
    source = app.hubs.follow(hub.url, on_delete=on_delete)
    app.hubs.sync_model(source, "org/a")
    del hub.repos["org/base"]
    hub.downloads = []
    same = app.hubs.sync_model(source, "org/a").result
    assert same is not None
    assert ("unchanged", SISTER, []) == (same["outcome"], same["delta_space"], hub.downloads)
    push(hub, "org/a", LATER, card=CARD)
    changed = app.hubs.sync_model(source, "org/a").result
    assert changed is not None
    assert "not available" in changed["delta"]["reason"]
    assert [2, left] == stored(app, "kin", SISTER)


@pytest.mark.parametrize(("card", "left"), [({}, None), ({"base_model": "org/other"}, 1)])
def test_another_base_is_another_delta(
    hub: Hub, app: AppHarness, card: dict[str, str], left: int | None
) -> None:
    """A delta from a base that the model does not declare any more is not kept in step."""
    push_both(hub)
    push(hub, "org/other", LATER)
    source = app.hubs.follow(hub.url, on_delete="remove")
    app.hubs.sync_model(source, "org/a")
    push(hub, "org/a", TUNED, card=card)
    job = app.hubs.sync_model(source, "org/a")
    assert job.result is not None, job.error
    assert [1, None, left] == stored(app, "kin", SISTER, sister_of("kin", "org/other"))


def test_what_is_the_same_is_not_made_again(hub: Hub, app: AppHarness) -> None:
    """Neither with a delta nor where there can be none; if one of both is lost both are made."""
    push_both(hub)
    push(hub, "org/same", BASE, card=CARD)
    source = app.hubs.follow(hub.url)
    for name in ("org/a", "org/same"):
        app.hubs.sync_model(source, name)
        hub.downloads = []
        again = app.hubs.sync_model(source, name).result
        assert again is not None
        assert ("unchanged", []) == (again["outcome"], hub.downloads)
    with app.database.writing() as session:
        sister = app.services[SpaceService].get(session, app.tenant, SISTER)
        app.services[ModelWriter].delete(session, sister, "org/a")
    assert "stored" == (app.hubs.sync_model(source, "org/a").result or {})["outcome"]
    assert [1, 1] == stored(app, "kin", SISTER)


def test_a_model_of_an_older_version_is_made_again_once(hub: Hub, app: AppHarness) -> None:
    """What was stored when deltas and weights shared a space becomes both."""
    push_both(hub)
    source = app.hubs.follow(hub.url)
    app.hubs.sync_model(source, "org/a")
    with app.database.writing() as session:
        space = app.services[SpaceService].get(session, app.tenant, "kin")
        old = {"kind": "huggingface", "url": hub.url, "source": source.id, "recipe": "0" * 32}
        app.services[ModelWriter].update(
            session,
            space,
            "org/a",
            tags=None,
            attributes={"hub": {**old, "importance": "delta", "base": "org/base@1"}},
            source=None,
            bases=lambda _: DeclaredBases(("org/base",)),
        )
    assert "stored" == (app.hubs.sync_model(source, "org/a").result or {})["outcome"]
    assert "unchanged" == (app.hubs.sync_model(source, "org/a").result or {})["outcome"]


def test_two_sources_share_both(hub: Hub, app: AppHarness) -> None:
    """Sources of one hub in one space make the same supports, whatever half each asks for."""
    push_both(hub)
    kinds = (None, "weight", "delta", None)
    sources = [app.hubs.follow(hub.url, importance=importance) for importance in kinds]
    for source in sources:
        job = app.hubs.sync_model(source, "org/a")
        assert "succeeded" == job.state, job.error
    assert [1, 1] == stored(app, "kin", SISTER)
    assert ["kin", SISTER] == app.hubs.spaces()


def test_a_name_that_is_taken_in_the_sister_alone(hub: Hub, app: AppHarness) -> None:
    """Another hub's model there is a conflict, and the weights are not stored either."""
    push_both(hub)
    app.hubs.sync_model(app.hubs.follow(hub.url, importance="delta"), "org/a")
    with app.database.writing() as session:
        sister = app.services[SpaceService].get(session, app.tenant, SISTER)
        app.services[ModelWriter].update(
            session,
            sister,
            "org/a",
            tags=None,
            attributes={"hub": {"kind": "huggingface", "url": "https://other"}},
            source=None,
        )
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    assert job.error is not None
    assert ("failed", "conflict") == (job.state, job.error["code"])
    assert [SISTER] == app.hubs.spaces()


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed", [{"delta": None}, {"delta": "none"}, {"delta": [], "tags": 5}, {"recipe": [1]}]
)
def test_a_record_that_a_client_has_changed_is_made_again(
    hub: Hub, app: AppHarness, changed: dict[str, Any]
) -> None:
    """The attribute ``hub`` may be anything after a PATCH: a sync neither trusts it nor fails."""
    push_both(hub)
    source = app.hubs.follow(hub.url)
    app.hubs.sync_model(source, "org/a")
    model = app.hubs.model("org/a")
    assert model is not None
    record = {**model.attributes["hub"], **changed}
    sent = {"attributes": {"hub": {k: v for k, v in record.items() if v is not None}}}
    assert 200 == app.http.patch("/v1/spaces/kin/models/org/a", json=sent).status_code
    job = app.hubs.sync_model(source, "org/a")
    assert "succeeded" == job.state, job.error
    model = app.hubs.model("org/a")
    assert model is not None
    assert SISTER == model.attributes["hub"]["delta"]["space"]
