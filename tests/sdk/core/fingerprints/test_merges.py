"""Averages of two fine-tunes are told from their base and from siblings, with their shares."""

from __future__ import annotations

import pytest

from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.merges import merge_of
from tests.sdk.core.fingerprints.planted import DERIVED, Tensors, fingerprint, model
from tests.sdk.core.fingerprints.relatives import average, changed


def tuned(seed: int, sigmas: float = 0.1) -> Tensors:
    """A fine-tune of the base."""
    return changed(model(0), seed, sigmas)


@pytest.fixture(scope="module")
def parents() -> tuple[Fingerprint, Fingerprint]:
    return fingerprint(tuned(1)), fingerprint(tuned(2))


@pytest.mark.parametrize("scale", [1, 8])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_an_average_has_its_shares(
    parents: tuple[Fingerprint, Fingerprint], share: float, scale: int
) -> None:
    """Within .03 by all keys, and .06 by one in eight."""
    found = merge_of(fingerprint(average(tuned(1), tuned(2), share), scale), *parents)
    assert found is not None
    assert found.is_average
    assert share == pytest.approx(found.share, abs=0.03 if scale == 1 else 0.06)


def test_the_base_and_a_sibling_are_no_averages(
    parents: tuple[Fingerprint, Fingerprint],
) -> None:
    """Nor is a light fine-tune of the base, though all have the same distances to both."""
    for tensors in (model(0), tuned(3), tuned(3, 0.02)):
        found = merge_of(fingerprint(tensors), *parents)
        assert found is not None
        assert not found.is_average
        assert found.share == pytest.approx(0.5, abs=0.03)


def test_a_model_lies_at_itself(parents: tuple[Fingerprint, Fingerprint]) -> None:
    """It has the whole share. A stranger is far from both, and equal models tell nothing."""
    first, second = parents
    itself = merge_of(first, first, second)
    assert itself is not None
    assert (1.0, 1.0) == (itself.share, itself.stretch)
    stranger = merge_of(fingerprint(model(5)), first, second)
    assert stranger is not None
    assert stranger.stretch > 5
    assert merge_of(second, first, first) is None


def test_what_two_adapters_left_is_no_average_of_them() -> None:
    """Their base lies straight between two models of which each changed other kinds."""
    first, second = (
        fingerprint({k: each[k] if k[-1] in kinds else model(0)[k] for k in each})
        for each, kinds in ((tuned(1), "qv"), (tuned(2), "pn"))
    )
    found = merge_of(fingerprint(model(0)), first, second)
    assert found is not None
    assert pytest.approx(1, abs=0.02) == found.stretch
    assert not found.is_average


@pytest.mark.slow
def test_a_base_is_no_average_of_a_near_derivative_and_another_one() -> None:
    """It lies nearly between one with more rows and one whose last layers are of a stranger."""
    base, stranger = model(1), model(2)
    tuned_base = DERIVED["noise .05"](base)
    mixed = {name: (tuned_base if name < "layers.2" else stranger)[name] for name in base}
    grown = DERIVED["more tokens"](base)
    found = merge_of(fingerprint(base, None), fingerprint(grown, None), fingerprint(mixed, None))
    assert found is not None
    assert found.stretch == pytest.approx(1, abs=0.05)
    assert found.share > 0.95
    assert not found.is_average


def test_the_order_of_two_models_tells_nothing(
    parents: tuple[Fingerprint, Fingerprint],
) -> None:
    """Of models of unlike numbers of lines neither is the one from which distances are taken."""
    first, second = parents
    grown = fingerprint(DERIVED["more tokens"](tuned(1)))
    merged = fingerprint(average(tuned(1), tuned(2), 0.3))
    for other in (first, grown):
        one, turned = merge_of(merged, other, second), merge_of(merged, second, other)
        assert one is not None
        assert turned is not None
        assert one.stretch == pytest.approx(turned.stretch)
        assert one.share == pytest.approx(1 - turned.share)
        assert one.is_average == turned.is_average


def test_a_base_is_no_average_of_its_copy_and_layers_put_together() -> None:
    """Layers of the other model are its own, or a stranger's: the lesser share is 0 or all."""
    base, stranger = model(1), model(2)
    mixed = {name: (base if name < "layers.2" else stranger)[name] for name in base}
    copy = fingerprint(changed(base, 4, 0.005))
    found = merge_of(fingerprint(base), copy, fingerprint(mixed))
    assert found is not None
    assert found.stretch == pytest.approx(1, abs=0.02)
    assert found.unevenness == pytest.approx(1 - found.share, abs=0.01)
    assert not found.is_average


def test_few_lines_make_no_average() -> None:
    """Two layers that were changed a little are nearer to another model by luck alone."""
    base, other = fingerprint(model(0)), fingerprint(tuned(1))
    for seed in range(3, 12):
        late = {
            k: v for k, v in tuned(seed, 0.01).items() if k.startswith(("layers.2", "layers.3"))
        }
        found = merge_of(fingerprint(late).at(8), base, other)
        assert found is not None
        assert not found.is_average
