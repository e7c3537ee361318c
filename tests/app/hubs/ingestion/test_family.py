"""One family, one space: children whose files name tensors in another way, or have others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.app.harness import AppHarness
from tests.support.models.checkpoints import Tensors, random_tensors, safetensors
from tests.support.servers.fake_huggingface import Hub

SHAPES: dict[str, tuple[int, ...]] = {
    "embed.weight": (60, 32),
    "norm.weight": (32,),
    "norm.bias": (32,),
    "body.weight": (32, 64),
    "head.weight": (10, 32),
}
BASE = random_tensors(1, SHAPES)


def same(name: str) -> str:
    """The name."""
    return name


def tuned(seed: int) -> Tensors:
    """A fine-tune of the base."""
    drift = np.random.default_rng(seed)
    return {n: w + drift.normal(0, 0.1, w.shape).astype("f4") for n, w in BASE.items()}


SPELLINGS: dict[str, Callable[[str], str]] = {
    "model.": lambda name: f"model.{name}",
    "_orig_mod.module.": lambda name: f"_orig_mod.module.{name}",
    "base_model.model.": lambda name: f"base_model.model.{name}",
    "gamma": lambda name: name.replace("norm.weight", "norm.gamma").replace("bias", "beta"),
}


def test_spellings_of_one_network_share_a_space(hub: Hub, app: AppHarness) -> None:
    """Each child has its base's space, names the map in its notes, and is its own equal."""
    hub.push("acme/base", {"model.safetensors": safetensors(BASE)})
    source = app.hubs.follow(hub.url, importance="weight")
    app.hubs.sync_model(source, "acme/base")
    plain = tuned(2)
    hub.push("acme/plain", {"model.safetensors": safetensors(plain)})
    app.hubs.sync_model(source, "acme/plain")
    for number, spell in enumerate(SPELLINGS.values()):
        renamed = {spell(name): values for name, values in plain.items()}
        hub.push(f"acme/{number}", {"model.safetensors": safetensors(renamed)})
        outcome = app.hubs.sync_model(source, f"acme/{number}").result
        assert outcome is not None
        assert "kin" == outcome["space"]
        assert "another name in the space: " in outcome["notes"][0]
        assert app.hubs.support("acme/plain") == app.hubs.support(f"acme/{number}")


@pytest.mark.slow
def test_a_difference_is_taken_under_other_names(hub: Hub, app: AppHarness) -> None:
    """The base's tensors are found for the child's, and the sister space is that of the base."""
    hub.push("acme/base", {"model.safetensors": safetensors(BASE)})
    source = app.hubs.follow(hub.url)
    spaces = set()
    for number, spell in enumerate((same, *SPELLINGS.values())):
        child = {spell(name): values for name, values in tuned(3).items()}
        name, card = f"acme/{number}", {"base_model": "acme/base"}
        hub.push(name, {"model.safetensors": safetensors(child)}, card=card)
        outcome = app.hubs.sync_model(source, name).result
        assert outcome is not None
        spaces.add((outcome["space"], outcome["delta"]["space"]))
    [(_, sister)] = spaces
    supports = [app.hubs.support(f"acme/{number}", sister) for number in range(5)]
    assert supports[:1] * 5 == supports


def fine_tunes() -> dict[str, Tensors]:
    """Children of the base that do not have its very tensors, and a stranger that has them."""
    draw = np.random.default_rng(7)
    more = {
        "head": {"head.weight": draw.normal(size=(20, 32)).astype("f4")},
        "added": {"aux.weight": draw.normal(size=(32, 8)).astype("f4")},
        "vocabulary": {"embed.weight": draw.normal(size=(125, 32)).astype("f4")},
        "headless": {},
    }
    found = {name: tuned(number + 11) | own for number, (name, own) in enumerate(more.items())}
    for rows, name, tensor in ((10, "head", "head.weight"), (60, "vocabulary", "embed.weight")):
        found[name][tensor][:rows] = tuned(30)[tensor]
    del found["headless"]["head.weight"]
    found["prefix"] = {f"model.{name}": values for name, values in tuned(20).items()}
    return found | {"stranger": random_tensors(999, SHAPES)}


def test_fine_tunes_are_beside_their_base(hub: Hub, app: AppHarness) -> None:
    """Each is consistent with its base over what both have, which is said; a stranger is not."""
    hub.push("acme/base", {"model.safetensors": safetensors(BASE)})
    source = app.hubs.follow(hub.url)
    app.hubs.sync_model(source, "acme/base")
    for number in range(8):  # others, by whom it is known what is usual
        other = random_tensors(100 + number, SHAPES)
        hub.push(f"other/{number}", {"m.safetensors": safetensors(other)})
        app.hubs.sync_model(source, f"other/{number}")
    children, noted = fine_tunes(), {}
    for name, tensors in children.items():
        card = {"base_model": "acme/base"}
        hub.push(f"acme/{name}", {"model.safetensors": safetensors(tensors)}, card=card)
        outcome = app.hubs.sync_model(source, f"acme/{name}").result
        assert outcome is not None
        assert "kin" == outcome["space"], name
        noted[name] = " ".join(outcome["notes"])
    assert "tensor 'aux.weight' [32, 8] is only in it" in noted["added"]
    assert "'head.weight' has shape [20, 32] in it and [10, 32] in the space" in noted["head"]
    assert "it is compared over 92.6% of the space's parameters" in noted["headless"]
    answers = {
        name: app.http.get("/v1/spaces/kin/lineage", params={"model": f"acme/{name}"}).json()
        for name in children
    }
    assert {n: "mismatch" if n == "stranger" else "consistent" for n in children} == {
        name: answer["verdict"] for name, answer in answers.items()
    }
    measured = {name: answer["base"]["covered"] for name, answer in answers.items()}
    assert {"headless": 4032 / 4352} == {n: share for n, share in measured.items() if share}
    support = app.hubs.support("acme/headless")
    assert (320, 201) == (support.gaps.size, support.k)


@pytest.mark.slow
def test_a_base_lacks_a_part_of_its_children(hub: Hub, app: AppHarness) -> None:
    """Differences are over the common tensors, in one sister space, whichever of them is larger."""
    larger = {"head.weight", "embed.weight"}
    base = {name: values[:-2] if name in larger else values for name, values in BASE.items()}
    hub.push("acme/base", {"model.safetensors": safetensors(base)})
    source, spaces = app.hubs.follow(hub.url), set()
    for name in ("head", "headless", "prefix"):
        card = {"base_model": "acme/base"}
        files = {"model.safetensors": safetensors(fine_tunes()[name])}
        hub.push(f"acme/{name}", files, card=card)
        outcome = app.hubs.sync_model(source, f"acme/{name}").result
        assert outcome is not None
        spaces.add((outcome["space"], outcome["delta"].get("space")))
    [(space, sister)] = spaces
    assert ("kin", "kin-acme-base-delta") == (space, sister)
    gaps = {n: app.hubs.support(f"acme/{n}", sister).gaps.size for n in ("headless", "prefix")}
    assert {"headless": (20 + 2) * 32, "prefix": (12 + 2) * 32} == gaps


@pytest.mark.slow
def test_a_model_apart_from_its_base_says_what_would_join_them(hub: Hub, app: AppHarness) -> None:
    """A child with too little of the space of its base names the tensors and the remedy, which
    works; a child of a base that fits that space no better has no such note.
    """
    child = {name: values for name, values in tuned(5).items() if name != "body.weight"}
    hub.push("acme/base", {"model.safetensors": safetensors(BASE)})
    other = {"x.weight": random_tensors(8, SHAPES)["body.weight"]}
    for name, tensors in (("child", child), ("grandchild", child), ("other", other)):
        base = {"child": "acme/base", "grandchild": "acme/child", "other": "acme/other"}[name]
        files = {"model.safetensors": safetensors(tensors)}
        hub.push(f"acme/{name}", files, card={"base_model": base})
    source = app.hubs.follow(hub.url)
    names = ("acme/base", "acme/child", "acme/grandchild", "acme/other")
    _, *found = [app.hubs.sync_model(source, name).result or {} for name in names]
    notes = [[note for note in one["notes"] if "exclude" in note] for one in found]
    assert [1, 0, 0] == [len(each) for each in notes], notes
    assert "its base fits space 'kin', of which the model has too little" in notes[0][0]
    assert "tensor 'body.weight' [32, 64] is only in that space" in notes[0][0]
    assert "a source of another space with exclude=['body.*'] has both" in notes[0][0]
    source = app.hubs.follow(hub.url, space="core", exclude=("body.*",))
    for name in names[:2]:
        assert "core" == (app.hubs.sync_model(source, name).result or {})["space"]
    answer = app.http.get("/v1/spaces/core/lineage", params={"model": "acme/child"}).json()
    assert "consistent" == answer["verdict"]
