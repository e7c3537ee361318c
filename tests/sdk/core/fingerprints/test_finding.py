"""Among many models those that add something are named first, and no stranger is named at all."""

from __future__ import annotations

from itertools import permutations

import pytest

from modelkin.core.fingerprints.anatomy import anatomy
from modelkin.core.fingerprints.fingerprint import Fingerprint
from tests.sdk.core.fingerprints.planted import fingerprint, model
from tests.sdk.core.fingerprints.relatives import changed

SCALE = 8
RELATIVES = 25


@pytest.mark.slow
@pytest.mark.parametrize("taken", [("layers.3",), ("layers.2.up",)])
def test_a_popular_parent_hides_no_other(taken: tuple[str, ...]) -> None:
    """25 relatives of one have more of the checkpoint than the second parent, and add nothing."""
    popular, other = model(0), model(1)
    child = {k: (other if k.startswith(taken) else popular)[k] for k in popular}
    hub = {"popular": fingerprint(popular, SCALE), "other": fingerprint(other, SCALE)}
    hub |= {str(i): fingerprint(changed(popular, i, 0.1), SCALE) for i in range(RELATIVES)}
    parents = anatomy(fingerprint(child, SCALE), hub).parents
    assert ["popular", "other"] == [each.model for each in parents[:2]]
    assert RELATIVES + 2 == len(parents)
    assert all(each.share_of_lines > parents[1].share_of_lines for each in parents[2:])
    assert all(each.added == 0 for each in parents[2:])


def test_no_stranger_is_named() -> None:
    """Of 42 pairs none has a parent or a tensor, by all keys and by a sample."""
    whole = {str(seed): fingerprint(model(seed)) for seed in range(7)}
    for scale in (1, SCALE):
        made: dict[str, Fingerprint] = {name: each.at(scale) for name, each in whole.items()}
        for one, other in permutations(made, 2):
            found = anatomy(made[one], {other: made[other]})
            assert () == found.parents
            assert not any(each.sources for each in found.tensors)
