"""The order in which models of a push get their spaces."""

from __future__ import annotations

from modelkin.client._protocol.uploads.places import Wanted, bases_first
from modelkin.core.importance import Importance
from modelkin.core.layout import Layout


def wanted(model: str, *bases: str) -> Wanted:
    return Wanted(model, Layout.of([("w", (2,))]), Importance.of("weight"), False, bases)


def test_bases_stand_before_what_derives_from_them() -> None:
    """By generations; circles of declarations end, and each model is there once."""
    order = bases_first(
        [wanted("a", "c"), wanted("b", "a"), wanted("c"), wanted("x", "y"), wanted("y", "x")]
    )
    assert ["c", "a", "b", "x", "y"] == [each.model for each in order]
    order = bases_first(
        [wanted("lie", "far"), wanted("m", "z", "far"), wanted("n", "m"), wanted("z")]
    )
    assert ["z", "lie", "m", "n"] == [each.model for each in order]
