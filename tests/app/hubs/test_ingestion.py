"""A model of a hub becomes a model here: which support, in which space, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from app.hubs.ingestion.reading import FetchedReading
from app.jobs.records import JobRecord
from app.jobs.service import JobService
from app.models.catalog.writer import ModelWriter
from app.models.spaces.requested import RequestedSpace
from app.models.spaces.service import SpaceService
from app.models.spaces.stored_layouts import StoredLayout
from app.models.spaces.support_sizes import SupportSizeRequest, SupportSizeService
from app.settings import Settings
from app.tenancy.auth.records import Tenant
from modelkin import Blinding, select_support
from modelkin.core.layout import Layout
from modelkin.errors import InvalidLayout
from tests.support.app.harness import AppHarness, open_hub_app
from tests.support.models.checkpoints import (
    SHAPES,
    delta_support,
    flat,
    random_tensors,
    safetensors,
    sharded,
    sister_of,
    weight_support,
    weights_digest_of,
)
from tests.support.servers.fake_huggingface import TOKEN, Hub, answering


def test_a_checkpoint_becomes_a_support(hub: Hub, app: AppHarness) -> None:
    """It is the one that the SDK selects from |w|, with the hub's tags, source and revision."""
    tensors = random_tensors(1)
    sha = hub.push("org/a", {"model.safetensors": safetensors(tensors)}, tags=["license:mit"])
    source = app.hubs.follow(hub.url)
    job = app.hubs.sync_model(source, "org/a")
    assert "succeeded" == job.state, job.error
    assert weight_support(tensors) == app.hubs.support("org/a")
    model = app.hubs.model("org/a")
    assert model is not None
    assert (f"{hub.url}/org/a/tree/{sha}", ("license:mit",)) == (model.source, model.tags)
    origin = model.attributes["hub"]
    assert ("huggingface", hub.url, "org/a", sha, "weight") == tuple(
        origin[key] for key in ("kind", "url", "model", "revision", "importance")
    )
    assert job.result is not None
    assert ("stored", "kin", True, sha) == tuple(
        job.result[key] for key in ("outcome", "space", "space_created", "revision")
    )


def test_a_declared_base_makes_a_delta_beside_the_weights(hub: Hub, app: AppHarness) -> None:
    """Without a word of the source, |w| goes to its space and |w - base| to a sister space, which
    says what it holds by the digest of the base.
    """
    base, tuned = random_tensors(1), random_tensors(1)
    tuned["encoder.weight"] = tuned["encoder.weight"] + random_tensors(2)["encoder.weight"]
    sha = hub.push("org/base", {"model.safetensors": safetensors(base)})
    card = {"base_model": "org/base"}
    hub.push("org/tuned", {"model.safetensors": safetensors(tuned)}, card=card)
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/tuned")
    assert job.result is not None, job.error
    sister = sister_of("kin", "org/base")
    delta = {"space": sister, "base": f"org/base@{sha}", "support_size": 152}
    assert ("weight", "kin", 152) == tuple(
        job.result[name] for name in ("importance", "space", "support_size")
    )
    assert delta | {"left_in": None} == job.result["delta"]
    assert weight_support(tuned) == app.hubs.support("org/tuned")
    assert delta_support(tuned, base) == app.hubs.support("org/tuned", sister)
    digest = weights_digest_of(base)
    assert {"kin": "weight", sister: f"delta against org/base@{digest}"} == app.hubs.kinds()
    for space, importance in (("kin", "weight"), (sister, "delta")):
        model = app.hubs.model("org/tuned", space)
        assert model is not None
        assert "org/base" == model.base_model
        said = model.attributes["hub"]
        assert (importance, delta) == (said["importance"], said["delta"])


def test_a_configured_base_may_be_pinned(hub: Hub, app: AppHarness) -> None:
    """``name@revision`` is that revision, whatever the base has become since."""
    base, tuned = random_tensors(1), random_tensors(3)
    sha = hub.push("org/base", {"model.safetensors": safetensors(base)})
    hub.push("org/base", {"model.safetensors": safetensors(random_tensors(9))})
    hub.push("org/tuned", {"model.safetensors": safetensors(tuned)})
    source = app.hubs.follow(hub.url, base_model=f"org/base@{sha}", importance="delta")
    job = app.hubs.sync_model(source, "org/tuned")
    assert "succeeded" == job.state, job.error
    sister = sister_of("kin", "org/base")
    assert [sister] == app.hubs.spaces()
    assert delta_support(tuned, base) == app.hubs.support("org/tuned", sister)


def test_shards_are_one_checkpoint(hub: Hub, app: AppHarness) -> None:
    """An index and what it names give the support that one file would."""
    tensors = random_tensors(1)
    hub.push("org/a", sharded(tensors, 3) | {"pytorch_model.bin": b"a pickle"})
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    assert "succeeded" == job.state, job.error
    assert weight_support(tensors) == app.hubs.support("org/a")
    assert {"pytorch_model.bin", "README.md"}.isdisjoint(hub.downloads)


@pytest.mark.parametrize("size", [{"policy": "fixed", "k": 77}, {"policy": "agreed"}])
def test_the_space_says_how_large(hub: Hub, app: AppHarness, size: dict[str, Any]) -> None:
    """A fixed or agreed K is what is selected, by exactly the rule of k."""
    tensors = random_tensors(1)
    layout = Layout.of((name, SHAPES[name]) for name in sorted(SHAPES))
    services = app.services
    with app.database.writing() as session:
        space, _ = services[SpaceService].create(
            session,
            services[Tenant],
            "kin",
            RequestedSpace(
                num_parameters=None,
                layout=StoredLayout.of(layout),
                scheme=None,
                num_perm=256,
                seed=1,
                support_size=SupportSizeRequest(**size),
            ),
        )
        if size["policy"] == "agreed":
            services[SupportSizeService].report(session, space, k_star=77, client="c")
    hub.push("org/a", {"model.safetensors": safetensors(tensors)})
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    assert "succeeded" == job.state, job.error
    assert select_support(np.abs(flat(tensors)), k=77) == app.hubs.support("org/a")


def test_parameters_come_in_the_order_of_the_space(hub: Hub, app: AppHarness) -> None:
    """A space of the same tensors in a model's own order compares index by index with it."""
    tensors = random_tensors(1)
    names = ["encoder.weight", "encoder.bias", "decoder.weight"]
    services = app.services
    with app.database.writing() as session:
        layout = Layout.of((name, SHAPES[name]) for name in names)
        services[SpaceService].create(
            session,
            services[Tenant],
            "kin",
            RequestedSpace(
                num_parameters=None,
                layout=StoredLayout.of(layout),
                scheme=None,
                num_perm=256,
                seed=1,
            ),
        )
    hub.push("org/a", {"model.safetensors": safetensors(tensors)})
    app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    own = np.concatenate([tensors[name].ravel() for name in names])
    assert select_support(np.abs(own), fraction=0.05) == app.hubs.support("org/a")
    assert ["kin"] == app.hubs.spaces()


def test_another_layout_has_another_space(hub: Hub, app: AppHarness) -> None:
    """The source's space takes one layout, each other one goes to a space that is named after it;
    a model whose layout has changed is in the new one, and stays in the old.
    """
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(1))})
    wide = random_tensors(1, {**SHAPES, "encoder.weight": (50, 42)})
    hub.push("org/b", {"model.safetensors": safetensors(wide)})
    source = app.hubs.follow(hub.url)
    app.hubs.sync_model(source, "org/a")
    other = app.hubs.sync_model(source, "org/b").result
    assert other is not None
    assert ["kin", other["space"]] == app.hubs.spaces()
    hub.push("org/a", {"model.safetensors": safetensors(wide)})
    again = app.hubs.sync_model(source, "org/a").result
    assert again is not None
    assert (other["space"], False, "kin") == (
        again["space"],
        again["space_created"],
        again["left_in"],
    )
    assert app.hubs.model("org/a") is not None
    assert app.hubs.support("org/b", other["space"]) == app.hubs.support("org/a", other["space"])


def test_a_checkpoint_that_fails_fixes_no_layout(hub: Hub, app: AppHarness) -> None:
    """The source's space is that of the first model that is stored, not of the first that comes."""
    broken = random_tensors(1, {"other": (7, 11)})
    broken["other"][3, 5] = np.nan
    hub.push("org/broken", {"model.safetensors": safetensors(broken)})
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(2))})
    source = app.hubs.follow(hub.url)
    assert "failed" == app.hubs.sync_model(source, "org/broken").state
    assert [] == app.hubs.spaces()
    assert "succeeded" == app.hubs.sync_model(source, "org/a").state
    assert app.hubs.model("org/a") is not None


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ([(f"t{i}", (1,)) for i in range(100_001)], "at most 100000 tensors, this one 100001"),
        ([("x" * 501, (1,))], r"layout\[0\]: a tensor has a name of at most 500 characters"),
        ([("x", (1,) * 17)], "at most 16 dimensions"),
    ],
    ids=["tensors", "name", "dimensions"],
)
def test_no_space_has_an_immoderate_layout(
    app: AppHarness, tensors: list[tuple[str, tuple[int, ...]]], why: str
) -> None:
    """A layout that is too large to store and show is refused, from a request or a checkpoint."""
    with app.database.writing() as session, pytest.raises(InvalidLayout, match=why):
        app.services[SpaceService].create(
            session,
            app.tenant,
            "kin",
            RequestedSpace(
                num_parameters=None,
                layout=StoredLayout.of(Layout.of(tensors)),
                scheme=None,
                num_perm=64,
                seed=1,
            ),
        )


@pytest.mark.parametrize(
    ("blinding", "said"),
    [("5a" * 32, "blinded under a key"), (None, "a hub has weights alone")],
    ids=["blinded", "ordered"],
)
def test_no_hub_is_followed_into_a_space_of_other_supports(
    hub: Hub, app: AppHarness, blinding: str | None, said: str
) -> None:
    """The service has no key, and no ranks: it stores nothing, in no sister space either, and says
    why.
    """
    tensors = random_tensors(1)
    m = flat(tensors).size
    with app.database.writing() as session:
        app.services[SpaceService].create(
            session,
            app.tenant,
            "kin",
            RequestedSpace(
                num_parameters=m,
                layout=None,
                scheme=None,
                num_perm=64,
                seed=1,
                blinding=None if blinding is None else Blinding(blinding, m).check,
                ordered=blinding is None,
            ),
        )
    for name, card in (("org/base", {}), ("org/a", {"base_model": "org/base"})):
        hub.push(name, {"model.safetensors": safetensors(tensors)}, card=card)
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    assert job.error is not None
    assert ("failed", "space_mismatch") == (job.state, job.error["code"])
    assert said in job.error["detail"]
    assert ["kin"] == app.hubs.spaces()


def test_a_space_that_is_made_meanwhile_is_taken(
    hub: Hub, app: AppHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first model is read another has made the space: its order and its K count."""
    tensors = random_tensors(1)
    hub.push("org/a", {"model.safetensors": safetensors(tensors)})
    source, names = app.hubs.follow(hub.url), sorted(tensors, reverse=True)
    layout = Layout.of([(name, tensors[name].shape) for name in names])

    def read(self: FetchedReading, *given: Any) -> None:
        monkeypatch.undo()
        with app.database.writing() as session:
            app.services[SpaceService].create(
                session,
                app.tenant,
                "kin",
                RequestedSpace(
                    num_parameters=None,
                    layout=StoredLayout.of(layout),
                    scheme=None,
                    num_perm=64,
                    seed=2,
                    support_size=SupportSizeRequest("fixed", k=9),
                ),
            )
        FetchedReading.fetch(self, *given)

    monkeypatch.setattr(FetchedReading, "fetch", read)
    job = app.hubs.sync_model(source, "org/a")
    assert "succeeded" == job.state, job.error
    flat_reversed = np.concatenate([np.abs(tensors[name]).ravel() for name in names])
    assert select_support(flat_reversed, k=9) == app.hubs.support("org/a")


def test_what_is_the_same_is_not_downloaded(hub: Hub, app: AppHarness) -> None:
    """A commit that changes the card alone changes what is said, at the price of one request."""
    files = {"model.safetensors": safetensors(random_tensors(1))}
    hub.push("org/a", files, tags=["old"])
    source = app.hubs.follow(hub.url)
    app.hubs.sync_model(source, "org/a")
    before, hub.downloads = app.hubs.model("org/a"), []
    sha = hub.push("org/a", files, tags=["new"])
    job = app.hubs.sync_model(source, "org/a")
    assert job.result is not None, job.error
    assert ("unchanged", sha, []) == (job.result["outcome"], job.result["revision"], hub.downloads)
    after = app.hubs.model("org/a")
    assert before is not None
    assert after is not None
    assert (before.revision, ("new",)) == (after.revision, after.tags)
    assert sha == after.attributes["hub"]["revision"]


def test_what_people_say_stays(hub: Hub, app: AppHarness) -> None:
    """Tags and attributes that were added here outlive the next revision of the hub."""
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(1))}, tags=["old"])
    source = app.hubs.follow(hub.url)
    app.hubs.sync_model(source, "org/a")
    model = app.hubs.model("org/a")
    assert model is not None
    with app.database.writing() as session:
        space = app.services[SpaceService].get(session, app.tenant, "kin")
        app.services[ModelWriter].update(
            session,
            space,
            "org/a",
            tags=["mine", "old"],
            attributes={**model.attributes, "site": 7},
            source=model.source,
        )
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(2))}, tags=["new"])
    app.hubs.sync_model(source, "org/a")
    after = app.hubs.model("org/a")
    assert after is not None
    assert (("mine", "new"), 7, 2) == (after.tags, after.attributes["site"], after.revision)


def test_a_model_that_moved_is_renamed(hub: Hub, app: AppHarness) -> None:
    """It keeps its revisions and its support under the new name; nothing is downloaded again."""
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(1))})
    source = app.hubs.follow(hub.url)
    app.hubs.sync_model(source, "org/a")
    before, hub.downloads = app.hubs.support("org/a"), []
    hub.move("org/a", "org/b")
    job = app.hubs.sync_model(source, "org/a")
    assert job.result is not None, job.error
    assert ("unchanged", "org/b", "org/a") == tuple(
        job.result[key] for key in ("outcome", "model", "moved_from")
    )
    assert (None, before, []) == (app.hubs.model("org/a"), app.hubs.support("org/b"), hub.downloads)
    renamed = app.hubs.sync_model(source, "org/b", moved_from="org/a")
    assert "succeeded" == renamed.state, renamed.error


@pytest.mark.parametrize(
    ("on_delete", "token", "announced", "removed"),
    [("keep", TOKEN, True, False), ("remove", TOKEN, False, True), ("remove", None, True, True)],
)
def test_a_model_that_is_gone(
    hub: Hub, app: AppHarness, on_delete: str, token: str | None, announced: bool, removed: bool
) -> None:
    """The model is removed if its source says so and else stays; the job says which.

    A deletion is certain if the hub confirms it to an accepted token, or reports it itself.
    """
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(1))})
    source = app.hubs.follow(hub.url, on_delete=on_delete, token=token)
    app.hubs.sync_model(source, "org/a")
    del hub.repos["org/a"]
    job = app.hubs.sync_model(source, "org/a", gone=announced)
    assert job.result is not None, job.error
    assert ("gone", removed) == (job.result["outcome"], job.result["removed"])
    assert removed == (app.hubs.model("org/a") is None)


@pytest.mark.parametrize(
    ("token", "announced", "bare"),
    [(None, False, False), (TOKEN, True, True)],
    ids=["private by now", "a proxy's 404"],
)
def test_a_model_that_may_be_there_stays(
    hub: Hub, app: AppHarness, token: str | None, announced: bool, bare: bool
) -> None:
    """A model that is private, or not found without an accepted token, may still exist.

    Nothing is removed, and the job says why.
    """
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(1))})
    source = app.hubs.follow(hub.url, on_delete="remove", token=token)
    app.hubs.sync_model(source, "org/a")
    if bare:
        hub.on_hub = answering(404, b"not found")
    else:
        hub.repo("org/a").private = True
    job = app.hubs.sync_model(source, "org/a", gone=announced)
    assert job.error is not None, job.result
    assert ("failed", "hub_not_found") == (job.state, job.error["code"])
    assert "the stored model stays" in job.error["detail"]
    assert app.hubs.model("org/a") is not None


def test_the_head_counts_not_the_delivery(hub: Hub, app: AppHarness) -> None:
    """A delivery of an older commit that comes after that of a newer one changes nothing."""
    old = hub.push("org/a", {"model.safetensors": safetensors(random_tensors(1))})
    new = hub.push("org/a", {"model.safetensors": safetensors(random_tensors(2))})
    source = app.hubs.follow(hub.url)
    app.hubs.sync_model(source, "org/a", revision=new)
    expected = app.hubs.support("org/a")
    job = app.hubs.sync_model(source, "org/a", revision=old)
    assert job.result is not None, job.error
    assert ("unchanged", new) == (job.result["outcome"], job.result["revision"])
    assert expected == app.hubs.support("org/a")


def test_a_model_is_looked_at_once_at_a_time(hub: Hub, app: AppHarness) -> None:
    """While a sync is under way the model is pushed: the second sync waits without an attempt and
    without a download, whatever its name for the model, and stores what is new after the first.
    """
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(1))})
    hub.moved["org/old"] = "org/a"
    source = app.hubs.follow(hub.url)
    first = app.hubs.enqueue(source, "org/a")
    waiting: list[JobRecord] = []

    def meanwhile(_: object) -> bool:
        hub.on_cdn = lambda _: False
        hub.push("org/a", {"model.safetensors": safetensors(random_tensors(2))})
        waiting.extend(app.hubs.sync_model(source, name) for name in ("org/a", "org/old"))
        return False

    hub.on_cdn = meanwhile
    assert "succeeded" == app.worker.execute(first).state
    assert [("queued", 0, "unavailable")] * 2 == [
        (job.state, job.attempts, (job.error or {})["code"]) for job in waiting
    ]
    assert ["model.safetensors"] == hub.downloads
    assert "stored" == (app.worker.execute(waiting[0]).result or {})["outcome"]
    assert "unchanged" == (app.worker.execute(waiting[1]).result or {})["outcome"]
    assert weight_support(random_tensors(2)) == app.hubs.support("org/a")


def test_a_look_that_was_overtaken_looks_again(hub: Hub, app: AppHarness) -> None:
    """One that ends after a later one stores nothing and is put back, to sync once more."""
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(1))})
    source = app.hubs.follow(hub.url)

    def meanwhile(_: object) -> bool:
        hub.on_cdn = lambda _: False
        with app.database.writing() as session:
            session.execute(
                text("UPDATE source_models SET sync_applied_seq = sync_started_seq + 1")
            )
        return False

    hub.on_cdn = meanwhile
    late = app.hubs.sync_model(source, "org/a")
    assert late.error is not None
    assert ("queued", "unavailable", None) == (
        late.state,
        late.error["code"],
        app.hubs.model("org/a"),
    )
    with app.database.writing() as session:
        session.execute(text("UPDATE source_models SET sync_applied_seq = 0"))
    assert "stored" == (app.worker.execute(late).result or {})["outcome"]


def test_a_look_may_be_cancelled(hub: Hub, app: AppHarness) -> None:
    """In the midst of a download it ends at the next word of progress, and leaves nothing."""
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(1))})
    job = app.hubs.enqueue(app.hubs.follow(hub.url), "org/a")

    def cancel(_: object) -> bool:
        with app.database.writing() as session:
            app.services[JobService].cancel(session, app.tenant, job.id)
        return False

    hub.on_cdn = cancel
    assert "cancelled" == app.worker.execute(job).state
    folder = app.services[Settings].checkpoint_dir
    assert [] == [path for path in folder.glob("*/*") if path.is_dir()]
    assert None is app.hubs.model("org/a")


def test_another_source_of_the_hub_may_follow(hub: Hub, app: AppHarness) -> None:
    """A source that is deleted and created again, or has another spelling, has the same hub."""
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(1))})
    app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    job = app.hubs.sync_model(app.hubs.follow(f"{hub.url}/"), "org/a")
    assert job.result is not None, job.error
    model = app.hubs.model("org/a")
    assert model is not None
    assert ("stored", 1) == (job.result["outcome"], model.revision)


def test_a_model_that_is_not_followed_is_left(hub: Hub, app: AppHarness) -> None:
    """The sync checks the tags that an event does not contain: nothing is downloaded."""
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(1))}, tags=["x"])
    job = app.hubs.sync_model(app.hubs.follow(hub.url, filters={"tags": ["y"]}), "org/a")
    assert job.result is not None, job.error
    assert ("ignored", None, []) == (job.result["outcome"], app.hubs.model("org/a"), hub.downloads)


def test_a_model_that_was_followed_still_is(hub: Hub, app: AppHarness) -> None:
    """One that loses the tag it was followed for is kept up to date, and does not grow old."""
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(1))}, tags=["x"])
    source = app.hubs.follow(hub.url, filters={"tags": ["x"]})
    app.hubs.sync_model(source, "org/a")
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(2))}, tags=[])
    assert "stored" == (app.hubs.sync_model(source, "org/a").result or {})["outcome"]


def test_a_token_goes_to_the_hub_alone(hub: Hub, app: AppHarness) -> None:
    """A private model is read with the source's token, which the CDN is never shown."""
    hub.push("org/a", {"model.safetensors": safetensors(random_tensors(1))}, private=True)
    job = app.hubs.sync_model(app.hubs.follow(hub.url, token=TOKEN), "org/a")
    assert "succeeded" == job.state, job.error
    assert ({f"Bearer {TOKEN}"}, {None}) == (hub.hub_tokens, hub.cdn_tokens)
    assert TOKEN not in repr(job)


def test_a_large_support_is_cut_down(hub: Hub, tmp_path: Path) -> None:
    """However large a checkpoint, no more indices are selected than the service was set to."""
    tensors = random_tensors(1)
    hub.push("org/a", {"model.safetensors": safetensors(tensors)})
    with open_hub_app(tmp_path, max_ingested_indices=50) as app:
        app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
        assert select_support(np.abs(flat(tensors)), k=50) == app.hubs.support("org/a")
