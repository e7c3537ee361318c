"""Files of a hub are found in the model that they were made of, and the shares fall as expected."""

from __future__ import annotations

import pytest

from modelkin.core.fingerprints.anatomy import Anatomy, anatomy
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.relations.relation import ORIGIN
from tests.sdk.core.fingerprints.planted import DERIVED, Tensors, fingerprint, model
from tests.sdk.core.fingerprints.stored import STORED

SHARES = {
    "Q8_0": 0.94,
    "Q6_K": 0.84,
    "Q5_0": 0.62,
    "Q4_K": 0.48,
    "Q4_0": 0.37,
    "Q3_K": 0.18,
    "Q2_K": 0.12,
    "int4 of 128": 0.33,
    "nf4": 0.26,
    "fp8": 0.64,
    "bf16": 0.97,
    "half": 0.22,
    "quarter": 0.16,
    "new head": 0.98,
    "fewer layers": 1.0,
    "narrow units": 0.77,
    "narrow stream": 0.15,
    "rescaled": 0.49,
    "permuted values": 0.89,
    "average .9": 0.36,
    "average .8": 0.11,
    "average .7": 0.03,
}
QUICK = ["Q8_0", "Q4_0", "half", "narrow stream", "rescaled", "average .7"]


@pytest.fixture(scope="module")
def base() -> Tensors:
    return model(0)


@pytest.fixture(scope="module")
def hub(base: Tensors) -> dict[str, Fingerprint]:
    return {"base": fingerprint(base), "stranger": fingerprint(model(1))}


def sources(found: Anatomy) -> dict[str, tuple[str, str]]:
    """The model and the tensor that each compared tensor comes from."""
    return {
        each.tensor.name.removeprefix("model."): (
            each.sources[0].model,
            each.sources[0].tensor.name,
        )
        for each in found.tensors
        if each.sources
    }


def check(how: str, base: Tensors, hub: dict[str, Fingerprint]) -> None:
    """Each tensor that is compared has its own place in the base, but for a head of its own."""
    stored = fingerprint(STORED[how](base))
    found = anatomy(stored, hub)
    [parent] = found.parents
    expected = "part" if how == "fewer layers" else "derived"
    assert ("base", expected) == (parent.model, parent.verdict)
    assert SHARES[how] == pytest.approx(parent.share_of_lines, abs=0.03), how
    assert parent.log10_p < -100
    compared = {each.name.removeprefix("model.") for each in stored.tensors if each.lines}
    assert {name: ("base", name) for name in compared - {"score"}} == sources(found), how


@pytest.mark.parametrize("how", QUICK)
def test_a_file_is_found_in_its_base(base: Tensors, hub: dict[str, Fingerprint], how: str) -> None:
    """All its tensors at their places, with the share of lines that rounding or cutting leaves."""
    check(how, base, hub)


@pytest.mark.slow
def test_all_kinds_of_files_are_found_in_their_base(
    base: Tensors, hub: dict[str, Fingerprint]
) -> None:
    """Every type of quantisation, parts of tensors and of layers, and averages with a stranger."""
    for how in sorted(SHARES.keys() - set(QUICK)):
        check(how, base, hub)


@pytest.mark.parametrize("scale", [1, None])
def test_what_lines_cannot_find(
    base: Tensors, hub: dict[str, Fingerprint], scale: int | None
) -> None:
    """A rotated stream is in no model; of half a stranger some lines are left, and none sampled."""
    assert () == anatomy(fingerprint(STORED["rotated"](base), scale), hub).parents
    for parent in anatomy(fingerprint(STORED["average .5"](base), scale), hub).parents:
        assert (1, "base") == (scale, parent.model)
        assert parent.share_of_lines < 0.005


def test_twins_of_one_seed_look_like_a_base_and_its_child() -> None:
    """Lines cannot tell them apart, so the answer says what equal lines may mean."""
    begun = model(0)
    first = {name: values + 0.3 * (model(3)[name] - values) for name, values in begun.items()}
    found = anatomy(fingerprint(DERIVED["noise .2"](begun)), {"twin": fingerprint(first)})
    [parent] = found.parents
    assert ("twin", "derived") == (parent.model, parent.verdict)
    assert ORIGIN in found.sentences
    assert "the same random seed" in ORIGIN
