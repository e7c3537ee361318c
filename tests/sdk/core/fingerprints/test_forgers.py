"""A stranger with pieces of a popular model is no derivative, and the answer names the pieces."""

from __future__ import annotations

import numpy as np
import pytest

from modelkin.core.fingerprints.anatomy import Parent, anatomy
from modelkin.core.fingerprints.fingerprint import Fingerprint
from tests.sdk.core.fingerprints.planted import WIDTH, Tensors, fingerprint, model

TOKENS = 2048


@pytest.fixture(scope="module")
def popular() -> Tensors:
    """A model with a head."""
    return with_head(model(0), 10)


@pytest.fixture(scope="module")
def hub(popular: Tensors) -> dict[str, Fingerprint]:
    return {"popular": fingerprint(popular)}


def with_head(tensors: Tensors, seed: int) -> Tensors:
    """Columns of one size in both, so that rows of one keep their keys in the other."""
    draw = np.random.default_rng(seed)
    return tensors | {"head": draw.standard_normal((TOKENS, WIDTH), np.float32)}


def parents(forged: Tensors, hub: dict[str, Fingerprint]) -> tuple[Parent, ...]:
    return anatomy(fingerprint(forged), hub).parents


@pytest.mark.parametrize("taken", ["layers.1.q", "layers.1.up", "embed"])
def test_one_matrix_is_reused(popular: Tensors, hub: dict[str, Fingerprint], taken: str) -> None:
    """In its place, or as a tensor that nothing reads and whose values are tiny."""
    own = with_head(model(7), 17)
    for forged in (
        own | {taken: popular[taken]},
        own | {"unused": popular[taken] * np.float32(1e-6)},
    ):
        [parent] = parents(forged, hub)
        size = popular[taken].size / sum(each.size for each in forged.values() if each.ndim == 2)
        assert ("reuses", 1) == (parent.verdict, len(parent.tensors))
        assert size == pytest.approx(parent.share_of_parameters, abs=0.005)


def test_rows_in_a_head_are_few_parameters(popular: Tensors, hub: dict[str, Fingerprint]) -> None:
    """Nothing is said of 25, nor of 100 in a coarse sample; all keys of 100 name the head."""
    forged = with_head(model(7), 17)
    forged["head"][500:525] = popular["head"][500:525]
    assert () == parents(forged, hub)
    forged["head"][500:600] = popular["head"][500:600]
    assert () == anatomy(fingerprint(forged, 32), hub).parents
    [parent] = parents(forged, hub)
    assert ("reuses", ("head",)) == (parent.verdict, parent.tensors)
    assert 0 < parent.share_of_parameters < 0.012


def test_rows_of_padding_are_few_parameters(popular: Tensors, hub: dict[str, Fingerprint]) -> None:
    """200 rows behind a head of 2,048 count as what they are, and never as the whole head."""
    forged = with_head(model(7), 17)
    forged["head"] = np.concatenate([forged["head"], popular["head"][:200]])
    [parent] = parents(forged, hub)
    assert "reuses" == parent.verdict
    head = forged["head"].size / sum(each.size for each in forged.values() if each.ndim == 2)
    assert 0.05 * head < parent.share_of_parameters < 0.1 * head


def test_a_file_that_holds_a_model_is_derived(
    popular: Tensors, hub: dict[str, Fingerprint]
) -> None:
    """Though nothing reads its tensors: half of the lines are those of the model."""
    forged = model(7) | {f"unused.{name}": values for name, values in popular.items()}
    [parent] = parents(forged, hub)
    assert "derived" == parent.verdict
    assert 0.5 < parent.share_of_lines < 0.65
