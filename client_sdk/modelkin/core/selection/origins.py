"""``prepare``: the entries to select from, with the kind of importance and the layout they follow.

Both may be attached to the importance or stated by the caller. Tensors to leave out are left out
here, and others put in order, before anything is selected: of ties the lower index wins, so that
only equal orders give equal supports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from modelkin.core.importance import Importance, Origin, origin_of
from modelkin.core.layout import Layout
from modelkin.core.matching.correspondence import Correspondence, correspond
from modelkin.core.selection.entries import Entries, entries_of
from modelkin.core.selection.request import SelectionRequest
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, SpaceMismatch

__all__ = ["Prepared", "prepare"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A selection that is ready to be decided.

    Attributes:
        entries: the importance to select from, one entry a parameter.
        request: the request, with the resamples and the layout of the entries and their kind.
        origin: what the support will say of its importance; None if nothing is known.
        order: the layout that a support is put in, if that has more than the entries; else None.
    """

    entries: Entries
    request: SelectionRequest
    origin: Origin | None
    order: Layout | None = None

    def place(self, support: Support) -> Support:
        """The support of the selected entries, in the layout that was asked for."""
        return support if self.order is None else support.reordered(self.order)


def prepare(importance: object, request: SelectionRequest) -> Prepared:
    """The entries of an importance as the request asks for them.

    Raises:
        InvalidParameter: a kind that does not exist, a base for another kind than a delta, a
            pattern without a match, or tensors to leave out of an unknown layout.
        SpaceMismatch: the layout is of another number of parameters, or has other tensors than
            ``order``.
        InvalidImportance: as :func:`entries_of`.
    """
    entries, order = entries_of(importance), None
    attached = origin_of(entries) or Origin()
    kind = _kind(request, attached.importance)
    layout = attached.layout if request.layout is None else request.layout
    if layout is not None:
        _check_layout(layout, entries.size)
    if request.exclude or request.order is not None:
        layout, tensors = _tensors(layout, request)
        target = tensors.common
        if target.digest != layout.digest:
            stretches = tensors.stretches_in(layout)
            if target.num_parameters != entries.size and request.base is None and kind is not None:
                kind = replace(kind, base=None)  # the digest was of all tensors of the base
            entries, request = _take(entries, request, stretches)
        order = None if tensors.complete else request.order
        layout = target
    request = replace(
        request, layout=layout, kind=None if kind is None else kind.kind, exclude=(), order=None
    )
    known = kind is not None or layout is not None
    return Prepared(entries, request, Origin(kind, layout) if known else None, order)


def _kind(request: SelectionRequest, attached: Importance | None) -> Importance | None:
    """The kind that the caller states, else the attached one."""
    if request.kind is not None:
        return Importance.of(request.kind, request.base)
    if request.base is None:
        return attached
    if attached is None:
        raise InvalidParameter(
            "base is for kind delta, and the kind is not known: pass kind='delta'", field="base"
        )
    return Importance.of(attached.kind, request.base)


def _check_layout(layout: object, num_parameters: int) -> None:
    if not isinstance(layout, Layout):
        raise InvalidParameter(
            f"layout must be a modelkin.Layout, not {layout!r}: pass "
            f"layout=modelkin.layout_of(model)",
            field="layout",
        )
    if layout.num_parameters != num_parameters:
        raise SpaceMismatch(
            f"the layout has {layout.num_parameters} parameters, the importance {num_parameters}"
        )


def _tensors(layout: Layout | None, request: SelectionRequest) -> tuple[Layout, Correspondence]:
    """The layout, and its tensors after some are left out and the others put in order."""
    if layout is None:
        what = "exclude needs" if request.exclude else "order needs"
        raise InvalidParameter(
            f"{what} the layout that the importance is in: pass layout=modelkin.layout_of(model)",
            field="layout",
        )
    if isinstance(request.exclude, str):
        raise InvalidParameter("exclude is one string; give a list of patterns", field="exclude")
    kept = layout.without(tuple(request.exclude)) if request.exclude else layout
    found = correspond(kept, kept if request.order is None else request.order)
    found.require_part()
    return layout, found


def _take(
    entries: Entries, request: SelectionRequest, stretches: Sequence[tuple[int, int]]
) -> tuple[Entries, SelectionRequest]:
    """The stretches of the importance and of its resamples."""
    if request.resamples is None:
        return entries.take(stretches), request
    resamples = [entries_of(resample) for resample in request.resamples]
    for j, resample in enumerate(resamples):
        if resample.size != entries.size:
            raise SpaceMismatch(
                f"resamples[{j}] is of {resample.size} parameters, the importance of {entries.size}"
            )
    again = [resample.take(stretches) for resample in resamples]
    return entries.take(stretches), replace(request, resamples=again)
