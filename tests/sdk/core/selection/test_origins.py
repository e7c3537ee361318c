"""The origin of a support: stated, attached or read; tensors left out and put in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin import select, select_support
from modelkin.core.importance import Importance, ImportanceKind, Origin, origin_of, with_origin
from modelkin.core.layout import Layout
from modelkin.core.matching.correspondence import correspond
from modelkin.core.selection.rule import SelectionRule
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, ModelkinError, SpaceMismatch

BASE = "org/base@sha256:" + "ab" * 32
SHAPES = {"stft": (4,), "conv": (2, 3), "scale": (), "empty": (0,), "head": (9,)}
LAYOUT = Layout.of(SHAPES.items())


class Tensorlike(np.ndarray[Any, Any]):
    """An array that takes attributes, as torch's tensors do."""


def importance() -> Any:
    """One entry for each parameter of ``LAYOUT``, all distinct."""
    return np.random.default_rng(3).permutation(LAYOUT.num_parameters).astype(np.float32) + 1


def named(support: Support, layout: Layout) -> set[tuple[str, int]]:
    """The parameters of a support by tensor and place in it: an oracle for any order."""
    found = set()
    for index in support.indices.tolist():
        begin = 0
        for tensor in layout.tensors:
            if begin <= index < begin + tensor.size:
                found.add((tensor.name, index - begin))
            begin += tensor.size
    return found


@given(st.permutations(sorted(SHAPES)), st.sets(st.integers(0, 19), min_size=1))
def test_a_support_in_another_order_is_of_the_same_parameters(
    names: list[str], indices: set[int]
) -> None:
    """Indices move with their tensors, to places that the support of the same parameters has."""
    target = Layout.of((name, SHAPES[name]) for name in names)
    support = Support(sorted(indices), 20, origin=Origin(layout=LAYOUT))
    moved = support.reordered(target)
    assert named(support, LAYOUT) == named(moved, target)
    assert Support(moved.indices, 20) == moved  # ascending and distinct
    assert target == moved.origin.layout if moved.origin else None
    assert support == moved.reordered(LAYOUT)


@pytest.mark.parametrize("half", [2**31, 2**32])
def test_reordering_reaches_the_last_index(half: int) -> None:
    """Neither 2^32 indices of 32 bits nor more of 64 bits overflow."""
    layout = Layout.of([("a", (half,)), ("b", (half,))])
    target = Layout.of([("b", (half,)), ("a", (half,))])
    support = Support([0, half - 1, half, 2 * half - 1], 2 * half, origin=Origin(layout=layout))
    assert support == support.reordered(target)
    lone = Support([1, 2 * half - 1], 2 * half, origin=Origin(layout=layout)).reordered(target)
    assert [half - 1, half + 1] == lone.indices.tolist()


@pytest.mark.slow
@given(st.permutations(sorted(SHAPES)), st.floats(0.05, 1))
def test_selection_in_an_order_is_selection_of_the_reordered_importance(
    names: list[str], fraction: float
) -> None:
    """``order`` moves the entries before the selection, with their resamples."""
    target, values = Layout.of((name, SHAPES[name]) for name in names), importance()
    again = [values + 1, values[::-1].copy()]
    places = correspond(LAYOUT, target).stretches_in(LAYOUT)
    moved = [np.concatenate([v[a:b] for a, b in places]) for v in (values, *again)]
    found = select(values, fraction=fraction, layout=LAYOUT, order=target, resamples=again)
    expected = select(moved[0], fraction=fraction, resamples=moved[1:])
    assert (expected.support, expected.stability) == (found.support, found.stability)


def test_excluded_tensors_have_no_index() -> None:
    """Without its largest tensor a model has fewer parameters, and K is a share of those."""
    values = importance()
    kept = LAYOUT.without(["st*", "head"])
    support = select_support(values, fraction=0.5, layout=LAYOUT, exclude=["st*", "head"])
    assert select_support(values[4:11], fraction=0.5) == support
    assert support.origin == Origin(None, kept)


def test_what_is_attached_or_stated_is_kept() -> None:
    """The attached origin stands until the caller states another."""
    values = with_origin(
        importance().view(Tensorlike), Origin(Importance.of("delta", BASE), LAYOUT)
    )
    assert select_support(values).origin == Origin(Importance.of("delta", BASE), LAYOUT)
    stated = select(values, kind="adam").support.origin
    assert Origin(Importance.of("adam"), LAYOUT) == stated
    assert select_support(importance()).origin is None
    assert select_support(importance(), kind="other").origin == Origin(Importance.of("other"))
    fewer = select_support(values, exclude=["stft"]).origin
    assert fewer == Origin(Importance.of("delta"), LAYOUT.without(["stft"]))  # digest of all is not


def test_a_foreign_attribute_is_no_origin() -> None:
    """Files may attach any text."""
    for text in ("", "{", "[]", '{"importance": ["fun", null, null], "layout": null}'):
        values = importance().view(Tensorlike)
        values.modelkin_origin = text
        assert origin_of(values) is None


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"kind": "weights"}, InvalidParameter, "kind must be one of fisher.*not 'weights'"),
        ({"kind": "adam", "base": BASE}, InvalidParameter, "base is for kind delta"),
        ({"base": BASE}, InvalidParameter, "pass kind='delta'"),
        ({"kind": "delta", "base": "org/base"}, InvalidParameter, "must be a digest"),
        ({"layout": Layout.of([("a", (3,))])}, SpaceMismatch, "3 parameters, the importance 20"),
        ({"layout": "conv"}, InvalidParameter, "must be a modelkin.Layout"),
        ({"exclude": ["stft"]}, InvalidParameter, "exclude needs the layout"),
        ({"layout": LAYOUT, "exclude": ["x.*"]}, InvalidParameter, r"'x\.\*' matches none"),
        ({"layout": LAYOUT, "exclude": ["*"]}, InvalidParameter, "leaves no parameter"),
        ({"layout": LAYOUT, "exclude": "stft"}, InvalidParameter, "one string"),
        (
            {"layout": LAYOUT, "order": Layout.of([*list(SHAPES.items())[:4], ("tail", (9,))])},
            SpaceMismatch,
            r"'head' \[9\] is only in this layout",
        ),
    ],
)
def test_origins_that_cannot_be(how: Any, error: type[ModelkinError], message: str) -> None:
    """Each is refused with what is wrong."""
    with pytest.raises(error, match=message):
        select_support(importance(), **how)


@pytest.mark.parametrize("kind", ["weight", "delta"])
def test_the_default_size_of_weights_is_a_twentieth(kind: ImportanceKind) -> None:
    """Of |w| and differences nearly all are positive; coverage would always end at its cap."""
    assert 50 == select_support(np.ones(1000, np.float32), kind=kind).k
    assert SelectionRule(50, None) == SelectionRule.of(1000, kind=kind)
    assert SelectionRule.of(1000) == SelectionRule.of(1000, kind="fisher")
    assert SelectionRule.of(1000, k_max=0.5) == SelectionRule.of(1000, k_max=0.5, kind=kind)
