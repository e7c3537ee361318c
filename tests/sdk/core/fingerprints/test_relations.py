"""What a checkpoint is to models, in sentences: those that are right, and none that is wrong."""

from __future__ import annotations

from modelkin.core.fingerprints.anatomy import anatomy
from modelkin.core.fingerprints.relations.relation import ORIGIN
from tests.sdk.core.fingerprints.planted import fingerprint, model


def test_nothing_found_is_said_to_prove_nothing() -> None:
    """In one sentence, for strangers."""
    found = anatomy(fingerprint(model(0)), {"stranger": fingerprint(model(1))})
    [relation] = found.relations
    assert ("none", ()) == (relation.relation, relation.models)
    assert "proves nothing" in relation.sentence
    assert (relation.sentence,) == found.sentences


def test_a_copy_is_called_one() -> None:
    """And beside it stands what equal lines mean."""
    base = fingerprint(model(0))
    found = anatomy(base, {"base": base})
    assert ("copy of base: all lines of both are equal", ORIGIN) == found.sentences
