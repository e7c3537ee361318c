"""``Places``: the spaces that pushed checkpoints go to, found or to be made.

``auto`` is the space of a model's family. That is the one where its declared base is, if the model
has enough of it to be compared there; else the one that :mod:`modelkin.core.matching.choosing`
chooses, as for models of a hub. Where there is none, a space is made. It is named after the
declared base, unless that is in another space, or else after the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Final

from modelkin.client._protocol import models, spaces
from modelkin.client._protocol.calls.flows import Flow
from modelkin.core.importance import Importance
from modelkin.core.layout import Layout
from modelkin.core.matching.choosing import (
    NO_FIT,
    Fit,
    best_fit,
    fit_of,
    free_name,
    space_name,
)
from modelkin.core.matching.correspondence import MIN_PART
from modelkin.errors import ApiError, InvalidParameter, PermissionDeniedError
from modelkin.types.checkpoints.pushed import AUTO
from modelkin.types.spaces import SpaceInfo

__all__ = ["Place", "Places", "Wanted", "bases_first", "reading"]


_MAX_READ: Final = 500
"""Spaces of about a model's size whose layouts are read, those of the nearest sizes."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model that needs a space.

    Attributes:
        layout: the tensors that are read of it.
        base_models: its declared bases.
    """

    model: str
    layout: Layout
    importance: Importance
    is_adapter: bool
    base_models: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Place:
    """A space that models go to.

    Attributes:
        space: the space; None until it is made.
        layout: its tensors, without those that it leaves out; None for a space without a layout.
        whole: of a space that is to be made, the tensors with those that it leaves out.
        exclude: patterns of the tensors that are left out, by the space or the caller.
        bases: the declared bases of the adapters that it is to be made for.
        held: the models that go to it.
    """

    name: str
    space: SpaceInfo | None
    layout: Layout | None
    importance: Importance
    exclude: tuple[str, ...] = ()
    whole: Layout | None = None
    bases: tuple[str, ...] | None = None
    held: set[str] = field(default_factory=set)

    @property
    def is_new(self) -> bool:
        """Whether it did not exist before."""
        return self.whole is not None


class Places:
    """The spaces of a service, as far as they matter to a push.

    Args:
        known: all spaces, without their layouts; those that were asked for by name may be enough.
        exclude: patterns of the tensors that the caller leaves out.
    """

    def __init__(self, known: Iterable[SpaceInfo], exclude: Sequence[str] = ()) -> None:
        self.exclude = tuple(exclude)
        self._names = set[str]()
        self._unread = list[SpaceInfo]()
        self._found = list[Place]()  # the oldest first, then those to be made
        self._named = dict[str, Place]()
        self._fits = dict[tuple[str, int], Fit]()
        self._holding = dict[tuple[str, str], bool]()
        for info in sorted(known, key=lambda each: (each.created_at, each.name)):
            self._names.add(info.name)
            plain = info.kind == "supports" and info.blinding is None and not info.ordered
            if plain and info.layout_digest is not None and info.importance.is_stated:
                self._unread.append(info)

    def named(self, name: str, wanted: Wanted, *, create: bool) -> Flow[Place]:
        """The space of a name, for a model.

        Raises:
            ApiError: there is none, and ``create`` is False; or a key may not read it.
            InvalidParameter: it takes no supports that are made here.
        """
        place = self._named.get(name)
        if place is None:
            try:
                with reading():
                    place = self._of(require_plain((yield spaces.get(name))))
            except ApiError as error:
                if error.problem_code != "space_not_found" or not create:
                    raise
                place = self._new(name, wanted)
            self._named[name] = place
        place.held.add(wanted.model)
        return place

    def auto(self, wanted: Wanted) -> Flow[Place]:
        """The space of a model's family."""
        yield from self._read_near(wanted.layout)
        fitting = list[tuple[Place, Fit]]()
        for place in self._found:
            fit = self._fit(place, wanted)
            if fit.share and (yield from self._takes(place, wanted, fit)):
                fitting.append((place, fit))
        chosen = yield from self._of_base(fitting, wanted)
        if chosen is None:
            best = best_fit([fit for _, fit in fitting])
            chosen = None if best is None else fitting[best][0]
        if chosen is None:
            chosen = self._new((yield from self._free_name(wanted)), wanted)
            self._found.append(chosen)
        chosen.held.add(wanted.model)
        return chosen

    def _read_near(self, layout: Layout) -> Flow[None]:
        """Read the layouts of the spaces of about this size."""
        m = layout.num_parameters
        least, most = MIN_PART * m, m / MIN_PART
        near = [each for each in self._unread if least <= each.num_parameters <= most]
        near.sort(key=lambda each: abs(each.num_parameters - m))  # stable: the oldest first
        read = set[str]()
        for info in near[:_MAX_READ]:
            read.add(info.name)
            try:
                self._found.append(self._of((yield spaces.get(info.name))))
            except ApiError as error:
                if error.problem_code != "space_not_found":  # deleted meanwhile
                    raise
        if read:
            self._unread = [each for each in self._unread if each.name not in read]
            self._found.sort(key=_age)

    def _fit(self, place: Place, wanted: Wanted) -> Fit:
        if place.layout is None or not place.importance.fits(wanted.importance):
            return NO_FIT
        key = wanted.layout.digest, id(place)
        if key not in self._fits:
            try:
                kept = wanted.layout.without(place.exclude, unmatched_ok=True)
                self._fits[key] = fit_of(kept, place.layout)
            except InvalidParameter:  # nothing is left
                self._fits[key] = NO_FIT
        return self._fits[key]

    def _takes(self, place: Place, wanted: Wanted, fit: Fit) -> Flow[bool]:
        """Whether a space may take a model: adapters of two bases do not compare."""
        if not wanted.is_adapter:
            return place.bases is None
        if not fit.is_same:
            return False
        if place.bases is not None:
            return place.bases == wanted.base_models
        base = wanted.base_models[0] if len(wanted.base_models) == 1 else None
        page = yield models.list_all(place.name, base_model=base)
        same = [each for each in page.items if each.base_models == wanted.base_models]
        return bool(same)

    def _of_base(self, fitting: Sequence[tuple[Place, Fit]], wanted: Wanted) -> Flow[Place | None]:
        """The space where a declared base is, among those that the model fits."""
        if len(fitting) < 2 or wanted.is_adapter:
            return None
        for base in wanted.base_models:
            for place, _ in fitting:
                if (yield from self._has(place, base)):
                    return place
        return None

    def _has(self, place: Place, model: str) -> Flow[bool]:
        if model in place.held:
            return True
        return place.space is not None and (yield from self._holds(place.name, model))

    def _holds(self, space: str, model: str) -> Flow[bool]:
        """Whether a stored space holds a model."""
        key = space, model
        if key not in self._holding:
            try:
                yield models.get(space, model)
                self._holding[key] = True
            except ApiError as error:
                if error.status != 404:
                    raise
                self._holding[key] = False
        return self._holding[key]

    def _of(self, info: SpaceInfo) -> Place:
        exclude = tuple(dict.fromkeys((*self.exclude, *info.exclude)))
        return Place(info.name, info, info.layout, info.importance, exclude)

    def _new(self, name: str, wanted: Wanted) -> Place:
        """A space to be made for a model, and for all that follow it."""
        self._names.add(name)
        exclude = wanted.layout.matching(self.exclude)
        kept = wanted.layout.without(exclude) if exclude else wanted.layout
        importance = replace(wanted.importance, note=None)  # it is of one model
        bases = wanted.base_models if wanted.is_adapter else None
        return Place(name, None, kept, importance, self.exclude, wanted.layout, bases)

    def _free_name(self, wanted: Wanted) -> Flow[str]:
        """A name after the base of a family, or after its first model."""
        bases = list[str]()
        for base in wanted.base_models[:1]:
            # The base of an adapter is in another space by nature.
            if wanted.is_adapter or not (yield from self._is_elsewhere(base)):
                bases.append(base)
        name = space_name(*bases, wanted.model)
        name += "-lora" if wanted.is_adapter else ""
        return free_name(name, lambda each: each in self._names or each == AUTO)

    def _is_elsewhere(self, base: str) -> Flow[bool]:
        """Whether a base is in a space of about the model's size, or in one of its own name."""
        for place in self._found:
            if (yield from self._has(place, base)):
                return True
        own = space_name(base)
        return own in self._names and (yield from self._holds(own, base))


@contextmanager
def reading() -> Iterator[None]:
    """Say why a push reads, where a key may not.

    Raises:
        PermissionDeniedError: the same, with what to do.
    """
    try:
        yield
    except PermissionDeniedError as error:
        raise PermissionDeniedError(
            error.status,
            error.problem_code,
            f"{error.detail}; a push of checkpoints compares with what is stored: use a key that "
            f"may read, too",
            request_id=error.request_id,
        ) from error


def require_plain(info: SpaceInfo) -> SpaceInfo:
    """Refuse a space whose supports are not those of plain weights.

    Raises:
        InvalidParameter: it holds data subspaces, or blinded or ordered supports.
    """
    what = None
    if info.kind != "supports":
        what = "data subspaces"
    elif info.blinding is not None:
        what = "blinded supports, which are pushed one by one with the key"
    elif info.ordered:
        what = "ordered supports, which are of gradients"
    if what is not None:
        raise InvalidParameter(f"space {info.name!r} holds {what}: name another", field="space")
    return info


def bases_first(wanted: Iterable[Wanted]) -> list[Wanted]:
    """The models by generations: those without a declared base among them, their derivatives, ….

    In a generation those stand first that others declare: one that declares a wrong base neither
    makes nor names the space of a family. The rest is by name, so that the same models go to the
    same spaces whenever they are pushed; those of circles of declarations come last.
    """
    by_name = {each.model: each for each in sorted(wanted, key=lambda each: each.model)}
    above = {each.model: by_name.keys() & {*each.base_models} for each in by_name.values()}
    declared = set[str]().union(*above.values())
    sorter = TopologicalSorter(above)
    with suppress(CycleError):  # what is in no circle is sorted all the same
        sorter.prepare()
    order = dict[str, None]()
    while ready := sorter.get_ready():
        order.update(dict.fromkeys(sorted(ready, key=lambda each: (each not in declared, each))))
        sorter.done(*ready)
    order.update(dict.fromkeys(by_name))
    return [by_name[model] for model in order]


def _age(place: Place) -> tuple[bool, float, str]:
    """Sorts spaces: those that exist by their age, then those to be made as they were."""
    if place.space is None:
        return True, 0.0, ""
    return False, place.space.created_at.timestamp(), place.name
