"""Bases as cards declare them: named as the hub calls them now, several kept as several."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.hubs.records import SourceRecord
from app.infra.errors import HubUnavailable
from tests.app.hubs.conftest import refused
from tests.app.hubs.ingestion.test_pipelines import pipeline
from tests.support.app.harness import AppHarness
from tests.support.models.checkpoints import Tensors, random_tensors, safetensors, sister_of
from tests.support.servers.fake_huggingface import Handler, Hub, answering

BASE, SECOND = random_tensors(1), random_tensors(2)
SISTER = sister_of("kin", "org/base")


def push(hub: Hub, name: str, tensors: Tensors, base: Any = None, **card: Any) -> str:
    """Commit a checkpoint, whose card declares a base."""
    declared = {} if base is None else {"base_model": base}
    files = {"model.safetensors": safetensors(tensors)}
    return hub.push(name, files, card={**declared, **card})


def child(seed: int, *bases: Tensors, drift: float = 0.01) -> Tensors:
    """The mean of some bases, with a little training."""
    noise = random_tensors(seed)
    mean = {name: np.mean([base[name] for base in bases], axis=0) for name in BASE}
    return {name: (mean[name] + drift * noise[name]).astype("f4") for name in BASE}


def sync(app: AppHarness, source: SourceRecord, *names: str) -> list[Any]:
    """The results of the syncs of some models."""
    jobs = [app.hubs.sync_model(source, name) for name in names]
    assert [] == [job.error for job in jobs if job.error is not None]
    return [job.result for job in jobs]


def lineage(app: AppHarness, name: str, space: str = "kin") -> dict[str, Any]:
    answer = app.http.get(f"/v1/spaces/{space}/lineage", params={"model": name})
    assert 200 == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()
    return found


def verdict(app: AppHarness, name: str) -> tuple[str, str | None]:
    found = lineage(app, name)
    return found["verdict"], found["declared_base"]


@pytest.mark.parametrize("importance", [None, pytest.param("weight", marks=pytest.mark.slow)])
def test_a_base_is_named_as_the_hub_calls_it(
    hub: Hub, app: AppHarness, importance: str | None
) -> None:
    """Old and canonical names, another case, addresses and repetitions are the same base, so that
    true children are consistent in the space and strangers contradicted.
    """
    sha = push(hub, "new/base", BASE)
    hub.moved |= {"base": "new/base", "old/base": "base", "NEW/Base": "new/base"}
    texts = [
        *("base", ["base"], "old/base", "NEW/Base", " new/base ", f"base@{sha}", "base@main"),
        *(["base", "new/base"], f"{hub.url}/new/base", "https://huggingface.co/base/tree/main"),
        *("hf.co/new/base?x=1#y", f"https://www.huggingface.co/new/base/blob/{sha}/README.md"),
    ]
    source = app.hubs.follow(hub.url, importance=importance)
    names = ["new/base", "org/stranger", *(f"org/child-{i}" for i in range(len(texts)))]
    push(hub, "org/stranger", random_tensors(99), base="base")
    for number, text in enumerate(texts):
        push(hub, f"org/child-{number}", child(10 + number, BASE), base=text)
    sync(app, source, *names)
    assert {("consistent", "new/base")} == {verdict(app, name) for name in names[2:]}
    assert ("mismatch", "new/base") == verdict(app, "org/stranger")
    spaces = ["kin"] if importance else ["kin", sister_of("kin", "new/base")]
    assert spaces == app.hubs.spaces()
    for space in spaces:
        found = app.hubs.model("org/child-0", space)
        assert found is not None
        assert ("new/base", ("new/base",)) == (found.base_model, found.bases)


@pytest.mark.slow
def test_a_base_that_moves_keeps_its_children(hub: Hub, app: AppHarness) -> None:
    """Its children keep their verdict in both spaces, through a chain of moves, and where another
    repository takes the old name, which then is that for those who declare it anew.
    """
    push(hub, "org/base", BASE)
    push(hub, "org/child", child(3, BASE), base="org/base")
    push(hub, "org/stranger", random_tensors(4), base="org/base")
    source = app.hubs.follow(hub.url)
    sync(app, source, "org/base", "org/child", "org/stranger")
    for old, new in (("org/base", "mid/base"), ("mid/base", "new/base")):
        hub.move(old, new)
        sync(app, source, old)
        assert ("consistent", new) == verdict(app, "org/child")
        assert ("mismatch", new) == verdict(app, "org/stranger")
        found = app.hubs.model("org/child", SISTER)
        assert found is not None
        assert new == found.base_model
        here = lineage(app, "org/child", SISTER)
        assert ("inconclusive", "differences") == (here["verdict"], here["reason"])
    del hub.moved["org/base"]
    push(hub, "org/base", SECOND)
    push(hub, "org/child", child(3, BASE), base="org/base", license="mit")
    push(hub, "org/late", child(5, SECOND), base="org/base")
    sync(app, source, "org/base", "org/child", "org/late")
    assert ("consistent", "new/base") == verdict(app, "org/child")
    assert ("consistent", "org/base") == verdict(app, "org/late")


@pytest.mark.slow
def test_a_child_finds_that_its_base_has_moved(hub: Hub, app: AppHarness) -> None:
    """The sync of a new child, or of one that has changed, is followed by that of the base, so that
    no child waits for a poll to have its verdict; a name that is not stored here is left alone.
    """
    push(hub, "org/base", BASE)
    push(hub, "org/child", child(3, BASE), base="org/base")
    source = app.hubs.follow(hub.url)
    sync(app, source, "org/base", "org/child")
    hub.move("org/base", "new/base")
    hub.moved["alias"] = "new/base"
    push(hub, "org/late", child(4, BASE), base="alias")
    sync(app, source, "org/late")
    assert [] == app.worker.run_all()
    push(hub, "org/child", child(5, BASE), base="org/base")
    sync(app, source, "org/child")
    assert ["ingest"] == app.worker.run_all()
    for name in ("org/child", "org/late"):
        assert ("consistent", "new/base") == verdict(app, name)
    assert app.hubs.model("org/base") is None


@pytest.mark.slow
def test_a_move_costs_no_child_its_download(hub: Hub, app: AppHarness) -> None:
    """A commit of a child that changes no weight is still one request after its base has moved."""
    push(hub, "org/base", BASE)
    push(hub, "org/child", child(3, BASE), base="org/base")
    source = app.hubs.follow(hub.url)
    sync(app, source, "org/base", "org/child")
    hub.move("org/base", "new/base")
    sync(app, source, "org/base")
    hub.downloads.clear()
    push(hub, "org/child", child(3, BASE), base="org/base", license="mit")
    [result] = sync(app, source, "org/child")
    assert ("unchanged", []) == (result["outcome"], hub.downloads)
    assert ("consistent", "new/base") == verdict(app, "org/child")


@pytest.mark.slow
def test_only_children_of_the_hub_follow_a_move(hub: Hub, app: AppHarness) -> None:
    """A model that a client has put beside the base declares that, and one of another space may
    declare any other model of this name.
    """
    push(hub, "org/base", BASE)
    source = app.hubs.follow(hub.url)
    sync(app, source, "org/base")
    support = app.hubs.support("org/base")
    app.create_space("else", m=support.num_parameters)
    for space in ("kin", "else"):
        app.put_support(space, "mine", support)
        changed = {"base_models": ["org/base", "org/b"], "base_relation": "merge"}
        app.http.patch(f"/v1/spaces/{space}/models/mine", json=changed)
    hub.move("org/base", "new/base")
    sync(app, source, "org/base")
    found = [app.http.get(f"/v1/spaces/{space}/models/mine").json() for space in ("kin", "else")]
    assert [["new/base", "org/b"], ["org/base", "org/b"]] == [one["base_models"] for one in found]
    assert ["merge", "merge"] == [one["base_relation"] for one in found]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("card", "tags", "relation"),
    [
        ({"base_model_relation": "merge"}, [], "merge"),
        ({}, ["base_model:merge:org/a", "base_model:merge:org/b"], "merge"),
        ({"base_model_relation": "Quantized"}, ["base_model:merge:org/a"], "quantized"),
        ({"base_model_relation": "sibling"}, [], None),
        ({}, [], None),
    ],
)
def test_several_bases_stay_several(
    hub: Hub, app: AppHarness, card: dict[str, Any], tags: list[str], relation: str | None
) -> None:
    """They are kept in their order, each once and with their relation; there is no difference from
    one of them, and the base of the source stands in for none.
    """
    for name, tensors in (("org/a", BASE), ("org/b", SECOND), ("org/meta", random_tensors(7))):
        push(hub, name, tensors)
    push(hub, "org/merge", child(3, BASE, SECOND), base=["org/a", "org/b", "org/a"], **card)
    hub.repos["org/merge"].tags = tags
    source = app.hubs.follow(hub.url, base_model="org/meta")
    *_, result = sync(app, source, "org/a", "org/b", "org/merge")
    assert "the model declares 2 bases (org/a, org/b)" == result["delta"]["reason"]
    found = app.hubs.model("org/merge")
    assert found is not None
    assert (None, ("org/a", "org/b"), relation) == (
        found.base_model,
        found.bases,
        found.base_relation,
    )


@pytest.mark.slow
def test_tags_alone_declare_bases(hub: Hub, app: AppHarness) -> None:
    """Where the card has no metadata, the Hub's tags say the bases and the relation, whether of one
    base or several; a source that requires differences refuses several by name.
    """
    push(hub, "org/a", BASE)
    said = {"org/q": ("quantized", ["org/a"]), "org/m": ("merge", ["org/a", "org/b"])}
    for name, (word, bases) in said.items():
        push(hub, name, child(3, BASE))
        each = ((f"base_model:{base}", f"base_model:{word}:{base}") for base in bases)
        hub.repos[name].tags = [tag for pair in each for tag in pair]
    source = app.hubs.follow(hub.url)
    sync(app, source, "org/a", "org/q", "org/m")
    found = [app.hubs.model(name) for name in ("org/q", "org/m")]
    assert [(("org/a",), "quantized"), (("org/a", "org/b"), "merge")] == [
        (one.bases, one.base_relation) for one in found if one is not None
    ]
    state, code, detail = refused_in(app, hub, "org/m")
    assert ("failed", "invalid_parameter") == (state, code)
    assert "the model declares 2 bases (org/a, org/b)" in detail


def refused_in(app: AppHarness, hub: Hub, name: str) -> tuple[str, str, str]:
    """How the sync of a model ends in a space of its own whose source requires differences."""
    job = app.hubs.sync_model(app.hubs.follow(hub.url, importance="delta", space="strict"), name)
    assert job.error is not None
    return job.state, job.error["code"], job.error["detail"]


def test_a_merge_is_compared_with_each_parent(hub: Hub, app: AppHarness) -> None:
    """A merge is consistent with its parents; one whose card names a stranger is a mismatch, which
    names that; and a parent that is not stored leaves the verdict open.
    """
    names = {f"org/{name}": child(n, BASE, drift=0.3) for n, name in enumerate("ab")}
    merged = child(3, *names.values())
    names["org/c"] = random_tensors(8)
    for name, tensors in names.items():
        push(hub, name, tensors)
    push(hub, "org/true", merged, base=["org/a", "org/b"], base_model_relation="merge")
    push(hub, "org/false", merged, base=["org/a", "org/c"], base_model_relation="merge")
    push(hub, "org/half", merged, base=["org/a", "org/gone"], base_model_relation="merge")
    push(hub, "org/tuned", child(4, merged), base="org/true")
    sync(app, app.hubs.follow(hub.url), *names, "org/true", "org/false", "org/half", "org/tuned")
    found = {name: lineage(app, f"org/{name}") for name in ("true", "false", "half", "tuned")}
    assert ["consistent", "mismatch", "unknown_base", "consistent"] == [
        each["verdict"] for each in found.values()
    ]
    assert ["org/a", "org/c", "org/gone", "org/true"] == [
        each["declared_base"] for each in found.values()
    ]
    assert [("org/a", "consistent"), ("org/b", "consistent")] == [
        (base["base_model"], base["verdict"]) for base in found["true"]["declared_bases"]
    ]
    assert "Of the others, 'org/b': consistent" in found["true"]["summary"]
    assert "Of the others, 'org/a': consistent" in found["false"]["summary"]
    assert "merge" == found["true"]["base_relation"]
    kin = {each["model"]: each["relation"] for each in found["true"]["kin"]}
    assert ("base", "base", "sibling", "derivative") == tuple(
        kin[f"org/{name}"] for name in ("a", "b", "half", "tuned")
    )
    audit = app.http.get("/v1/spaces/kin/lineages", params={"base_model": "org/b"}).json()["items"]
    assert [("org/true", ["org/a", "org/b"])] == [(i["model"], i["declared_bases"]) for i in audit]


def test_a_pin_is_no_other_revision(hub: Hub, app: AppHarness) -> None:
    """A model that pins a revision which is not stored here is consistent with no other one, and
    the answer says so, whether the hub has that revision or not.
    """
    old = push(hub, "org/base", SECOND)
    sha = push(hub, "org/base", BASE)
    pins = {"stored": sha, "early": old, "none": "v7", "sha": "0" * 40}
    for name, pin in pins.items():
        push(hub, f"org/{name}", child(3, BASE), base=f"org/base@{pin}")
    push(hub, "org/page", child(3, BASE), base=f"{hub.url}/org/base/tree/{'1' * 40}")
    sync(app, app.hubs.follow(hub.url), "org/base", *(f"org/{name}" for name in pins), "org/page")
    assert ("consistent", "org/base") == verdict(app, "org/stored")
    for name, pin in {**pins, "page": "1" * 40}.items():
        if name != "stored":
            found = lineage(app, f"org/{name}")
            assert ("inconclusive", "pinned") == (found["verdict"], found["reason"])
            assert (
                f"revision {pin!r} of its base, which is not among those kept" in found["summary"]
            )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "kept", "why"),
    [
        ("https://elsewhere.example/org/base", None, "is an address of another place than"),
        ("ftp://huggingface.co/org/base", None, "is an address of another place than"),
        ("/home/me/base", None, "no repository can have this name"),
        ("https://huggingface.co/org/gone", "org/gone", "knows no /api/models/org/gone"),
    ],
)
def test_an_address_of_nothing(
    hub: Hub, app: AppHarness, text: str, kept: str | None, why: str
) -> None:
    """The reason says what the text is, and no name is made of it that no model can have."""
    push(hub, "org/child", BASE, base=text)
    [result] = sync(app, app.hubs.follow(hub.url), "org/child")
    assert why in result["delta"]["reason"]
    found = app.hubs.model("org/child")
    assert found is not None
    assert kept == found.base_model


@pytest.mark.slow
def test_weights_alone_ask_for_bases_once(hub: Hub, app: AppHarness) -> None:
    """A source of weights asks for a base once for many models, and keeps what the card says while
    the hub does not answer for it.
    """
    push(hub, "new/base", BASE)
    hub.moved["base"] = "new/base"
    names = [f"org/{n}" for n in range(4)]
    for number, name in enumerate(names):
        push(hub, name, child(number, BASE), base="base")
    push(hub, "org/dark", BASE, base=["dark", "base"])
    asked: list[str] = []

    def counting(request: Handler) -> bool:
        asked.append(request.path.partition("?")[0])
        if asked[-1] == "/api/models/dark":
            request.say(503)
            return True
        return False

    hub.on_hub = counting
    sync(app, app.hubs.follow(hub.url, importance="weight"), *names, "org/dark")
    assert 1 == asked.count("/api/models/base")
    found = app.hubs.model("org/dark")
    assert found is not None
    assert ("dark", "new/base") == found.bases


@pytest.mark.slow
def test_a_base_that_cannot_be_asked_for_is_awaited(hub: Hub, app: AppHarness) -> None:
    """Where a difference needs it, the sync is tried again, and nothing is stored without it."""
    push(hub, "org/child", child(1, BASE), base="dark")

    def dark(request: Handler) -> bool:
        return request.path.startswith("/api/models/dark") and answering(503)(request)

    hub.on_hub = dark
    state, code, _ = refused(app, hub.url, "org/child")
    assert ("queued", HubUnavailable.code) == (state, code)


@pytest.mark.slow
def test_components_follow_the_base_of_their_pipeline(hub: Hub, app: AppHarness) -> None:
    """A component declares that of the base's present name, before and after the base has moved."""
    hub.push("org/base", pipeline(1))
    hub.push("org/a", pipeline(2), card={"base_model": "old/base"})
    hub.moved["old/base"] = "org/base"
    source = app.hubs.follow(hub.url)
    [_, result] = sync(app, source, "org/base", "org/a")
    where = {name: part["space"] for name, part in result["components"].items()}

    def declared() -> dict[str, str | None]:
        found = {name: app.hubs.model(f"org/a/{name}", space) for name, space in where.items()}
        return {name: model.base_model for name, model in found.items() if model is not None}

    assert {name: f"org/base/{name}" for name in where} == declared()
    hub.move("org/base", "new/base")
    sync(app, source, "org/base")
    assert {name: f"new/base/{name}" for name in where} == declared()
    hub.moved["old/base"] = "org/other"
    hub.push("org/a", pipeline(2), card={"base_model": "old/base", "license": "mit"})
    sync(app, source, "org/a")
    assert {name: f"new/base/{name}" for name in where} == declared()
