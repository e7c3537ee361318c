"""Where the tensors of a checkpoint come from: shares as measured, and none at a wrong place."""

from __future__ import annotations

import re

import numpy as np
import pytest

from modelkin.core.fingerprints.anatomy import Anatomy, anatomy, anatomy_of
from modelkin.core.fingerprints.comparison import compare
from modelkin.core.fingerprints.fingerprint import Fingerprint, LinesOfTensor
from tests.sdk.core.fingerprints.planted import DERIVED, WIDTH, Tensors, fingerprint, model

SHARES = {
    "renamed": 1.0,
    "transposed": 1.0,
    "flipped": 1.0,
    "more tokens": 0.95,
    "fewer tokens": 0.97,
    "fused": 0.73,
    "permuted units": 0.88,
    "permuted stream": 0.37,
    "up-scaled": 1.0,
    "experts": 1.0,
    "repeated heads": 0.88,
    "kernels": 1.0,
    "8 bits": 0.87,
    "noise .05": 0.62,
    "noise .2": 0.16,
    "noise .5": 0.02,
}
COPIES = {"renamed", "transposed", "flipped", "kernels"}
UP_SCALED = ["0", "1", "2", "1", "2", "3"]


@pytest.fixture(scope="module")
def base() -> Tensors:
    return model(0)


@pytest.fixture(scope="module")
def hub(base: Tensors) -> dict[str, Fingerprint]:
    return {"base": fingerprint(base), "stranger": fingerprint(model(1))}


def is_right(name: str, source: str, how: str) -> bool:
    """Whether a tensor of the base is the one that a derived one was made of."""
    place = re.fullmatch(r"(?:blk\.)?layers\.(\d)\.(?:experts\.)?(\w+)", name)
    if place is None:
        return name.removeprefix("blk.") == source
    layer = UP_SCALED[int(place[1])] if how == "up-scaled" else place[1]
    kinds = "qkv" if place[2] == "qkv" else (place[2],)
    return source in {f"layers.{layer}.{kind}" for kind in kinds}


def wrong_sources(found: Anatomy, how: str) -> list[tuple[str, str]]:
    best = [(each.tensor.name, each.sources[0]) for each in found.tensors if each.sources]
    return [
        (name, source.tensor.name)
        for name, source in best
        if source.model != "base" or not is_right(name, source.tensor.name, how)
    ]


@pytest.mark.parametrize("how", SHARES)
def test_a_derived_model_has_the_lines_of_its_base(
    base: Tensors, hub: dict[str, Fingerprint], how: str
) -> None:
    """As many as were measured on trained models, each tensor from its own place, and no others."""
    found = anatomy(fingerprint(DERIVED[how](base)), hub)
    [parent] = found.parents
    assert ("base", "copy" if how in COPIES else "derived") == (parent.model, parent.verdict)
    assert SHARES[how] == pytest.approx(parent.share_of_lines, abs=0.05)
    repeated = 0.13 if how == "repeated heads" else 0.05  # rows count once
    assert parent.share_of_parameters == pytest.approx(parent.share_of_lines, abs=repeated)
    assert parent.log10_p < -100
    assert [] == wrong_sources(found, how)
    compared = [each for each in found.tensors if each.tensor.reason is None]
    assert how == "noise .5" or all(each.sources for each in compared)


@pytest.mark.parametrize("how", [how for how in SHARES if how != "noise .5"])
def test_a_sample_finds_the_same(base: Tensors, hub: dict[str, Fingerprint], how: str) -> None:
    """One key in eight: the shares stay, and no tensor comes from another place."""
    found = anatomy(fingerprint(DERIVED[how](base), 8), hub)
    [parent] = found.parents
    assert SHARES[how] == pytest.approx(parent.share_of_lines, abs=0.06)
    assert ([], 8) == (wrong_sources(found, how), found.scale)


def test_strangers_have_no_parents(base: Tensors, hub: dict[str, Fingerprint]) -> None:
    """Nor has a base under noise of its own size."""
    for tensors in (model(7), DERIVED["noise 1"](base)):
        found = anatomy(fingerprint(tensors), hub)
        assert () == found.parents
        assert not any(each.sources for each in found.tensors)


def test_short_lines_tell_strangers_from_kin() -> None:
    """Two tables of 100,000 vectors have 30 equal keys by chance, and a child has thousands."""
    draw = np.random.default_rng(0)
    table, other, changes = (draw.standard_normal((100_000, 64), np.float32) for _ in range(3))
    models = {"base": fingerprint({"embed": table}), "stranger": fingerprint({"embed": other})}
    [parent] = anatomy(fingerprint({"vectors": table + np.float32(0.3) * changes}), models).parents
    assert "base" == parent.model
    assert 0.02 < parent.share_of_lines < 0.12
    assert () == anatomy(models["base"], {"stranger": models["stranger"]}).parents
    common = np.intersect1d(models["base"].distinct, models["stranger"].distinct).size
    assert 0 < common < 1.5 * parent.expected < 90


def test_layers_of_two_models_are_told_apart(base: Tensors, hub: dict[str, Fingerprint]) -> None:
    """Each tensor has its own model; the parents are both, by what each adds."""
    other = model(1)
    late = ("layers.2", "layers.3")
    found = anatomy(fingerprint({k: (other if k.startswith(late) else base)[k] for k in base}), hub)
    assert ["base", "stranger"] == [parent.model for parent in found.parents]
    assert pytest.approx(1) == sum(parent.added for parent in found.parents)
    for each in found.tensors:
        if each.sources:
            expected = "stranger" if each.tensor.name.startswith(late) else "base"
            assert (expected, each.tensor.name) == (
                each.sources[0].model,
                each.sources[0].tensor.name,
            )


def test_a_relative_of_a_parent_adds_nothing(base: Tensors, hub: dict[str, Fingerprint]) -> None:
    """It is named behind the parent."""
    relative = fingerprint(DERIVED["noise .2"](base))
    found = anatomy(fingerprint(DERIVED["8 bits"](base)), {"relative": relative} | hub)
    assert ["base", "relative"] == [parent.model for parent in found.parents]
    assert found.parents[1].added < 0.05 < found.parents[1].share_of_lines


@pytest.mark.parametrize("scales", [(4, 1), (1, 4), (2, 4)])
def test_what_is_added_is_of_all_lines_at_any_scale(base: Tensors, scales: tuple[int, int]) -> None:
    """A model of few keys has more of the lines than it has keys of."""
    other, late = model(1), ("layers.2", "layers.3")
    both = fingerprint({k: (other if k.startswith(late) else base)[k] for k in base})
    named = {"whole": both, "part": fingerprint(base), "other": fingerprint(other)}
    first, second = scales
    hub = {k: each.at(first if k == "whole" else second) for k, each in named.items()}
    found = anatomy(both, hub)
    assert [1.0, 0.0, 0.0] == [each.added for each in found.parents]
    del hub["whole"]
    hub["part"] = named["part"].at(first)
    assert sum(each.added for each in anatomy(both, hub).parents) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("taken", ["layers.1.up", "embed"])
def test_one_matrix_of_another_model_makes_no_derivative(
    base: Tensors, hub: dict[str, Fingerprint], taken: str
) -> None:
    """It is reused, under whatever name, and the answer names it."""
    forged = model(7)
    forged["padding"] = base[taken] * np.float32(1e-6)
    [parent] = anatomy(fingerprint(forged), hub).parents
    assert ("reuses", ("padding",)) == (parent.verdict, parent.tensors)


def test_rows_of_another_model_are_few_parameters(
    base: Tensors, hub: dict[str, Fingerprint]
) -> None:
    """A tensor counts by the share of its lines, never as a whole."""
    forged = model(7)
    own = np.random.default_rng(8).standard_normal((500, 128)) * base["embed"].std(axis=0)
    forged["embed"] = np.concatenate([own.astype(np.float32), base["embed"][:100]])
    [parent] = anatomy(fingerprint(forged), hub).parents
    assert "reuses" == parent.verdict
    assert parent.share_of_parameters < 0.05


def test_a_part_is_no_copy(base: Tensors, hub: dict[str, Fingerprint]) -> None:
    """All lines of the checkpoint are found, and not all of the model."""
    [parent] = anatomy(
        fingerprint({k: v for k, v in base.items() if k.startswith("layers.1")}), hub
    ).parents
    assert ("part", 1.0) == (parent.verdict, parent.share_of_lines)


def test_a_table_that_both_store_makes_nobody_kin() -> None:
    """Sinusoids in two strangers have no keys."""
    angles = np.arange(512)[:, None] / 10000 ** (np.arange(64) / 64)
    table = {"positions": np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)}
    first, second = (fingerprint(model(seed) | table) for seed in (3, 4))
    assert () == anatomy(first, {"other": second}).parents


@pytest.mark.parametrize(
    ("how", "least", "most"), [("renamed", 1, 1), ("8 bits", 0.9, 1), ("noise .2", 0.6, 0.9)]
)
def test_sources_of_one_shape_say_how_alike_they_are(
    base: Tensors, hub: dict[str, Fingerprint], how: str, least: float, most: float
) -> None:
    """Kappa of the whole tensor; None where the shapes differ."""
    found = anatomy(fingerprint(DERIVED[how](base)), hub)
    kappas = [each.sources[0].kappa for each in found.tensors if each.sources]
    assert all(kappa is not None and least <= kappa <= most for kappa in kappas)
    fused = anatomy(fingerprint(DERIVED["fused"](base)), hub)
    by_name = {each.tensor.name: each.sources[0].kappa for each in fused.tensors if each.sources}
    assert (None, 1.0) == (by_name["layers.0.qkv"], by_name["layers.0.up"])


def test_a_fused_tensor_has_the_lines_of_its_parts() -> None:
    """Three sources have a part each, and the model all three together."""
    draw = np.random.default_rng(0)
    parts = {kind: draw.standard_normal((WIDTH, WIDTH), np.float32) for kind in "qkv"}
    fused = fingerprint({"qkv": np.concatenate([*parts.values()])})
    [found] = anatomy(fused, {"base": fingerprint(parts)}).tensors
    assert {"q", "k", "v"} == {source.tensor.name for source in found.sources}
    assert {"base": pytest.approx(sum(source.share for source in found.sources))} == found.shares


def with_keys(keys: list[int], side: int, tensors: int = 1) -> Fingerprint:
    """A fingerprint of square matrices that all have the same keys, as a stranger may state it."""
    matrices = tuple(
        LinesOfTensor((f"w{number}",), (side, side), {side: len(keys)}) for number in range(tensors)
    )
    return Fingerprint(
        1,
        matrices,
        {side: len(keys)},
        np.repeat(np.array(keys, np.uint64), tensors),
        np.tile(np.arange(tensors, dtype=np.uint32), len(keys)),
        np.full(len(keys) * tensors, side, np.uint32),
    )


def test_lines_of_different_lengths_are_not_equal() -> None:
    """Whatever keys a stranger's file states: their probability would be 0, and no number."""
    keys = list(range(1, 101))
    found = anatomy(with_keys(keys, 64), {"short": with_keys(keys, 65)})
    assert ((), ()) == (found.parents, found.tensors[0].sources)


def test_lines_of_many_tensors_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of tensors grow with the square of those that have a line, and are bounded."""
    monkeypatch.setattr("modelkin.core.fingerprints.comparison.MOST_MEETINGS", 150)
    repeated = with_keys([1, 2, 3], 64, tensors=10)
    found = compare(repeated, "itself", repeated)
    assert (3, 150) == (found.keys.size, found.meetings.at.size)


def test_what_is_expected_of_strangers_grows_with_the_models() -> None:
    """Ten models are ten times as many chances of a false one; the probability is that of each."""
    base = fingerprint(model(0))
    strangers = {f"stranger {seed}": fingerprint(model(seed)) for seed in range(1, 10)}
    [alone] = anatomy(base.at(8), {"base": base}).parents
    [among] = anatomy(base.at(8), {"base": base, **strangers}).parents
    assert alone.log10_p == alone.log10_e == among.log10_p == pytest.approx(among.log10_e - 1)


def test_a_model_that_was_read_stands_before_one_that_others_stated(base: Tensors) -> None:
    """Whoever states the lines of a child first does not displace its base."""
    child = fingerprint(DERIVED["8 bits"](base))
    compared = [compare(child, "forged", child), compare(child, "base", fingerprint(base))]
    found = anatomy_of(child, compared, preferred={"base"})
    assert ["base", "forged"] == [each.model for each in found.parents]
    assert sum(each.added for each in found.parents) == pytest.approx(1)


@pytest.mark.parametrize("first", [{"read"}, set[str]()])
def test_a_copy_is_not_called_assembled_beside_a_model_that_was_read(
    base: Tensors, first: set[str]
) -> None:
    """What the copy adds to the model that stands before it is not made of both."""
    layers = {name: values for name, values in model(1).items() if name.startswith("layers.0.")}
    child = fingerprint(base | layers)
    known = {"copy": child, "read": fingerprint(base)}
    compared = [compare(child, name, of) for name, of in known.items()]
    found = anatomy_of(child, compared, preferred=first)
    assert ("derived" if first else "copy") == found.verdict
    said = {each.relation: each.models for each in found.relations}
    assert "assembled" not in said
    assert ("copy",) == said["copy"]


def test_a_copy_of_what_was_assembled_hides_no_source(base: Tensors) -> None:
    """Where the files of its sources were read, and a client stated the copy."""
    layers = {name: values for name, values in model(1).items() if name.startswith("layers.0.")}
    child = fingerprint(base | layers)
    known = {"copy": child, "base": fingerprint(base), "other": fingerprint(model(1))}
    compared = [compare(child, name, of) for name, of in known.items()]
    found = anatomy_of(child, compared, preferred={"base", "other"})
    said = {each.relation: each.models for each in found.relations}
    assert {"assembled": ("base", "other"), "copy": ("copy",)} == said


def test_what_was_made_from_it_stands_behind_a_copy(base: Tensors) -> None:
    """Also where the files of its children were read, and a client stated the copy."""
    known = {"copy": fingerprint(base), "child": fingerprint(DERIVED["noise .05"](base))}
    compared = [compare(known["copy"], name, of) for name, of in known.items()]
    found = anatomy_of(known["copy"], compared, preferred={"child"}, made_from_it={"child"})
    assert ("copy", ["copy", "child"]) == (found.verdict, [p.model for p in found.parents])


def test_a_few_tensors_of_a_model_that_was_read_stand_behind_a_whole_one(base: Tensors) -> None:
    """A word table that many have does not hide what a checkpoint was made from."""
    child = fingerprint(model(1) | {"embed": base["embed"]})
    whole = fingerprint(model(1))
    compared = [compare(child, "words", fingerprint(base)), compare(child, "own", whole)]
    assert ["own", "words"] == [
        p.model for p in anatomy_of(child, compared, preferred={"words"}).parents
    ]


@pytest.mark.parametrize("first", ["base", "part"])
def test_of_models_with_the_same_lines_the_likely_base_is_named(base: Tensors, first: str) -> None:
    """A layer of a base is in its children, too; chance gives one of them a line more."""
    layer = {name: values for name, values in base.items() if name.startswith("layers.0.")}
    child = fingerprint(model(1) | layer)
    models = {"part": layer, "base": base, "other": model(1)}
    compared = [compare(child, name, fingerprint(made)) for name, made in models.items()]
    found = anatomy_of(child, compared, of_equals=[first, "other"])
    assert ["other", first] == [parent.model for parent in found.parents[:2]]
    assert ("other", first) == found.relations[0].models


def test_where_nothing_is_found_the_answer_says_of_how_many_models(base: Tensors) -> None:
    """Those that were not compared have fewer keys in common than those that were."""
    child = fingerprint(base)
    compared = [compare(child, "stranger", fingerprint(model(1)))]
    [relation] = anatomy_of(child, compared, asked=1200).relations
    assert relation.sentence == (
        "none of 1,200 models is an ancestor, as far as lines show; absence proves nothing"
    )
    [relation] = anatomy_of(child, [], asked=0).relations
    assert relation.sentence == "no other model is stored"
    [relation] = anatomy_of(child, compared, asked=3, of_catalogue=True).relations
    assert relation.sentence == (
        "none of 3 bases of the catalogue is an ancestor, as far as lines show; absence proves "
        "nothing"
    )
    [relation] = anatomy_of(child, [], asked=0, of_catalogue=True).relations
    assert relation.sentence == "the catalogue has no base"


def test_the_false_models_expected_are_of_all_that_were_asked(base: Tensors) -> None:
    """A thousand times as many as of one."""
    child = fingerprint(DERIVED["noise .5"](base))
    [parent] = anatomy_of(child, [compare(child, "base", fingerprint(base))], asked=1000).parents
    assert parent.log10_e == pytest.approx(parent.log10_p + 3)
