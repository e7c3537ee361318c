"""Catalogues: what is kept of a base, and which bases a checkpoint is said to come from."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import modelkin
from modelkin import Base, Catalogue
from modelkin.core.fingerprints.fingerprint import Fingerprint, FingerprintMaker
from modelkin.core.fingerprints.tensor_lines import TensorLines
from tests.sdk.core.fingerprints.planted import DERIVED, fingerprint, model

NAMES = tuple(f"org/base-{seed}" for seed in range(2))


@cache
def planted() -> Catalogue:
    """Two strangers, of which the first is the base of all that is made here."""
    return Catalogue.of(
        (Base(name, license="mit"), fingerprint(model(seed), None))
        for seed, name in enumerate(NAMES)
    )


@pytest.mark.slow
@pytest.mark.parametrize("made_by", ["renamed", "8 bits", "fused", "fewer tokens", "up-scaled"])
def test_the_base_is_named_without_a_service(made_by: str) -> None:
    """It alone is, whatever was made of it, and by as many strangers as there are bases."""
    child = fingerprint(DERIVED[made_by](model(0)), None)
    found = planted().anatomy(child)
    assert [NAMES[0]] == [parent.model for parent in found.parents]
    [parent] = found.parents
    assert parent.log10_p + np.log10(2) == pytest.approx(parent.log10_e)
    [by_hand] = modelkin.anatomy(child, {NAMES[0]: planted().fingerprint(NAMES[0])}).parents
    assert replace(by_hand, log10_e=parent.log10_e) == parent


def test_a_catalogue_stands_for_the_models_of_an_anatomy() -> None:
    """``modelkin.anatomy`` takes one, and says of a stranger that none is an ancestor."""
    child = fingerprint(DERIVED["8 bits"](model(0)), None)
    assert planted().anatomy(child) == modelkin.anatomy(child, planted())
    stranger = modelkin.anatomy(fingerprint(model(9), None), planted())
    assert ((), "unknown") == (stranger.parents, stranger.verdict)


def test_a_base_of_another_scale_is_found() -> None:
    """The checkpoint's sample may be finer than what is kept, or coarser."""
    whole = fingerprint(DERIVED["8 bits"](model(0)), 1)
    for scale in (1, 2, 16, 32):
        assert [NAMES[0]] == [each.model for each in planted().anatomy(whole.at(scale)).parents]


def fingerprint_of(keys: list[int]) -> Fingerprint:
    """A fingerprint of one matrix with these lines."""
    maker = FingerprintMaker()
    lines = np.unique(np.array(keys, np.uint64))
    maker.take("w", TensorLines((1 << 20, 512), {512: lines}, None, None))
    return maker.finish(1)


def test_a_second_parent_is_named_beside_a_popular_family() -> None:
    """Sixty models with the first parent's lines do not hide a second one with few."""
    draw = np.random.default_rng(0)
    first, second = (draw.integers(0, 2**64, 900, np.uint64).tolist() for _ in range(2))
    family = [
        (Base(f"first/{n:02}"), fingerprint_of(first[:800] + [n * 1_000 + k for k in range(90)]))
        for n in range(1, 61)
    ]
    catalogue = Catalogue.of([*family, (Base("second"), fingerprint_of(second))])
    child = fingerprint_of(first[:700] + second[:30])
    found = {parent.model: parent.keys for parent in catalogue.anatomy(child).parents}
    assert 30 == found["second"]
    assert 700 == max(found.values())


def wide(tensors: int, keys: int) -> Fingerprint:
    """A fingerprint of so many tensors with signatures, and so many lines in all."""
    draw, maker = np.random.default_rng(1), FingerprintMaker()
    for number in range(tensors):
        lines = np.unique(draw.integers(0, 2**64, keys // tensors, np.uint64))
        name = f"model.layers.{number // 7}.mlp.{number % 7}.weight"
        maker.take(name, TensorLines((1 << 16, 512), {512: lines}, None, draw.bytes(128)))
    return maker.finish(1)


def test_what_is_kept_of_a_base_is_bounded() -> None:
    """With its keys, row and text it takes 60,000 bytes: a thousand bases take 60 MB."""
    for tensors, keys, least, signed in (
        (4, 2_000, 2_000, 4),
        (120, 6_000, 2_048, 120),
        (600, 13_000, 2_048, 0),
    ):
        whole = wide(tensors, keys)
        catalogue = Catalogue.of([(Base("org/a"), whole)])
        assert catalogue.size <= 60_000
        kept = catalogue.fingerprint("org/a")
        assert kept.distinct.size >= least
        assert np.array_equal(whole.at(kept.scale).keys, kept.keys)
        assert signed == sum(each.signature is not None for each in kept.tensors)


def test_the_last_of_one_name_counts() -> None:
    """Where catalogues are joined that have the same base, the later one's is kept."""
    newer = Catalogue.of([(Base(NAMES[1], license="apache-2.0"), fingerprint(model(7), None))])
    joined = Catalogue.joined([planted(), newer])
    assert list(NAMES) == list(joined)
    assert ("mit", "apache-2.0") == (joined[NAMES[0]].license, joined[NAMES[1]].license)
    assert newer.fingerprint(NAMES[1]) == joined.fingerprint(NAMES[1])
