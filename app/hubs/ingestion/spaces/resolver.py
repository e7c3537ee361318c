"""``SpaceResolver``: the spaces of a checkpoint, found or created.

A layout is the tensors by name and shape; names that mean the same are the same. The space that a
source names takes the layout it was created with, else the first that arrives. Checkpoints of
another layout go to a space of the key ``{space}-{digest of the first such layout}``. Differences
from a base go to a sister of that space, ``{key}-delta-{digest of the base's weights}``. The
differences of adapters go to ``{space}-lora-{digest of the base's name and of the targeted
tensors}``. The names of these spaces are of :func:`~app.hubs.ingestion.spaces.names.name_after`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from app.hubs.ingestion.spaces.names import (
    DIGEST_DIGITS,
    adapter_key,
    continues,
    layout_key,
    name_after,
    sister_key,
    stem_of,
)
from app.hubs.ingestion.spaces.targets import ResolvedSpace, SpaceTarget
from app.infra.db.database import Database, Reader
from app.infra.errors import SpaceExists
from app.models.catalog.repositories import bases, models
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import layouts, spaces
from app.models.spaces.requested import RequestedSpace
from app.models.spaces.service import SpaceService
from app.models.spaces.stored_layouts import StoredLayout
from app.models.spaces.support_sizes import SupportSizeRequest
from app.tenancy.auth.records import Tenant
from app.tenancy.quotas.repository import lock_tenant
from modelkin.core.importance import Importance
from modelkin.core.layout import Layout
from modelkin.core.matching.choosing import NO_FIT, SAME, Fit, best_fit, fit_of, free_name
from modelkin.core.matching.correspondence import correspond
from modelkin.core.matching.remedies import remedy_of
from modelkin.errors import SpaceMismatch

__all__ = ["SpaceResolver"]

_MAX_SIBLINGS: Final = 1000
_NUM_PERM, _SEED = 256, 1


class SpaceResolver:
    """Finds the spaces of a checkpoint, or creates them.

    Args:
        service: creates spaces.
    """

    def __init__(self, database: Database, service: SpaceService) -> None:
        self._database = database
        self._service = service

    def exclude(self, tenant: Tenant, name: str, patterns: Sequence[str]) -> tuple[str, ...]:
        """The patterns of a source and those of the space that it names."""
        with self._database.reading() as session:
            return _patterns(spaces.find_space(session, tenant, name), patterns)

    def find(
        self,
        session: Reader,
        tenant: Tenant,
        name: str,
        layout: Layout,
        patterns: Sequence[str],
        called: Sequence[str] = (),
    ) -> SpaceTarget:
        """Find the space for a layout: one that has all of it, or that it has the most of.

        Args:
            session: a reader of spaces.
            tenant: the owner of the spaces.
            name: the space that the source names.
            patterns: the patterns of the tensors that the source leaves out.
            called: the model's base, if it is known, and the model: a new space is named after the
                base, unless that is in another space of the source.

        Raises:
            InvalidParameter: the patterns leave nothing of the layout.
            SpaceMismatch: the space named for this layout was created with another one, or the
                source's own space is blinded.
        """
        named = spaces.find_space(session, tenant, name)
        _require_plain(named)
        exclude = _patterns(named, patterns)
        kept = layout.without(exclude, unmatched_ok=True)
        target = partial(_target, session, tenant, name, kept=kept, exclude=exclude, kind="weight")
        if named is None or _fit(session, named, kept).share:
            return target(name, name, named)
        key = layout_key(name, kept)
        found = _fitting(session, tenant, key, kept)
        if found is None:
            siblings = list(_siblings(session, tenant, name, kept))
            best = best_fit([_fit(session, space, kept) for space in siblings])
            if best is not None:
                return target(key, name, siblings[best])
            known = [named, *siblings]
            free = [each for each in called[:-1] if not _hold(session, known, each)]
            called = [*free, *called[-1:]]
        return target(key, name_after(name, *called), found)

    def apart(
        self, session: Reader, tenant: Tenant, name: str, layout: Layout, base: Layout
    ) -> str | None:
        """A note for a model that does not fit the source's space, where its base does.

        Args:
            session: reads spaces.
            name: the space that the source names; ``layout`` is that of the model.
        """
        space = spaces.find_space(session, tenant, name)
        own = None if space is None else layouts.find_layout(session, space)
        if own is None or not correspond(base, own).fits:
            return None
        found = correspond(layout, own)
        differing, remedy = found.difference("the model", "that space"), remedy_of(found)
        said = f"its base fits space {name!r}, of which the model has too little: {differing}"
        if remedy is None:
            return said
        source = "a source of another space" if remedy.of_space else "a source"
        return f"{said}; {source} with exclude={list(remedy.patterns)} has both in one space"

    def find_sister(
        self, session: Reader, tenant: Tenant, main: SpaceTarget, base: Importance
    ) -> SpaceTarget:
        """The space for differences from a base.

        This is the main space itself if that states to hold differences.

        Args:
            session: reads spaces.
            main: the space of the layout, which gives the order of the tensors.
            base: the importance, with the digest of the base's weights.

        Raises:
            SpaceMismatch: the space of this name has another layout, kind or base.
        """
        assert base.base_digest is not None
        target = main
        if main.space is None or main.space.importance.kind != "delta":
            key = sister_key(main.key, base.base_digest.partition(":")[2])
            target = _target(
                session,
                tenant,
                main.beside,
                key,
                name_after(main.beside, *_name_of(base), kind="delta"),
                _fitting(session, tenant, key, main.layout),
                kept=main.layout,
                exclude=main.exclude,
                kind="delta",
            )
        target.require(base)
        return target

    def find_adapters(
        self,
        session: Reader,
        tenant: Tenant,
        name: str,
        layout: Layout,
        patterns: Sequence[str],
        base: str | None,
        model: str,
        former: str | None = None,
    ) -> SpaceTarget:
        """Find the space for adapters of one base and the same targets.

        It keeps its name where the base gets another one, and a model that takes the old name of
        that base has a space of its own.

        Args:
            session: a reader of spaces.
            tenant: the owner of the spaces.
            name: the space that the source names.
            layout: the layout of an adapter, the tensors that it targets.
            patterns: the patterns of the tensors that the source leaves out.
            base: the name of the base; None if it is not known.
            model: the name of the adapter.
            former: the name that the base has here, where the hub has another one now.

        Raises:
            InvalidParameter: the patterns leave nothing of the layout.
            SpaceMismatch: the space of this name has another layout, or the source's own space is
                blinded.
        """
        named = spaces.find_space(session, tenant, name)
        _require_plain(named)
        exclude = _patterns(named, patterns)
        kept = layout.without(exclude, unmatched_ok=True)
        key = adapter_key(name, base, kept)
        found = _fitting(session, tenant, key, kept)
        if found is not None and base is not None and bases.are_of_others(session, found.id, base):
            key = adapter_key(name, f"{base} (another)", kept)
            found = _fitting(session, tenant, key, kept)
        if found is None and former is not None:
            found = _fitting(session, tenant, adapter_key(name, former, kept), kept)
        if found is None and base is not None:
            found = _of_moved(session, tenant, name, kept, base)
        return _target(
            session,
            tenant,
            name,
            key,
            name_after(name, *filter(None, (base, model)), kind="lora"),
            found,
            kept=kept,
            exclude=exclude,
            kind="delta",
        )

    def make(
        self,
        tenant: Tenant,
        target: SpaceTarget,
        importance: Importance,
        like: SpaceTarget,
        k: int | None = None,
    ) -> ResolvedSpace | None:
        """Return the space of a target, created if it did not exist.

        The checkpoint must be valid: the first layout of a space stays its layout.

        One job of a tenant at a time makes spaces here. Else two models of one family, which both
        found no space, would make one each, under the names of their layouts.

        Args:
            importance: the importance that selects its supports.
            like: the space whose signatures and fixed K a new space takes over.
            k: the K that a new space fixes; None for that of ``like``.

        Returns:
            The space; None if another job has created it meanwhile, maybe with another layout,
            order or K, or any of its kind, which the checkpoint may fit: look for it again.
        """
        if target.space is not None:
            return ResolvedSpace(target.space, created=False)
        model = like.space
        fixed = model.support_size.k if k is None and model is not None else k
        try:
            with self._database.writing() as session:
                lock_tenant(session, tenant.id)
                if spaces.newest(session, tenant, importance.kind) > target.newest:
                    return None
                space, created = self._service.create(
                    session,
                    tenant,
                    target.name,
                    RequestedSpace(
                        num_parameters=None,
                        layout=StoredLayout.of(target.layout),
                        scheme=None if model is None else model.signature.scheme,
                        num_perm=_NUM_PERM if model is None else model.signature.num_perm,
                        seed=_SEED if model is None else model.signature.seed,
                        support_size=None
                        if fixed is None
                        else SupportSizeRequest("fixed", k=fixed),
                        importance=importance,
                        exclude=target.exclude,
                    ),
                    source_key=None if target.key == target.name else target.key,
                )
        except SpaceExists:
            return None
        return ResolvedSpace(space, created) if created else None


def _target(
    session: Reader,
    tenant: Tenant,
    beside: str,
    key: str,
    name: str,
    space: SpaceRecord | None,
    *,
    kept: Layout,
    exclude: tuple[str, ...],
    kind: str,
) -> SpaceTarget:
    """The target of a space; the key and the name are for a new one, and the name may be taken."""
    newest = spaces.newest(session, tenant, kind)
    if space is None:
        if key != name:
            name = free_name(
                name, lambda each: spaces.find_space(session, tenant, each) is not None
            )
        return SpaceTarget(name, key, beside, kept, exclude, None, newest)
    layout = layouts.find_layout(session, space) or kept
    return SpaceTarget(space.name, space.key, beside, layout, exclude, space, newest)


def _hold(session: Reader, known: Sequence[SpaceRecord], model: str) -> bool:
    """Whether one of some spaces holds a model."""
    return any(models.find_model(session, space, model) is not None for space in known)


def _name_of(base: Importance) -> tuple[str, ...]:
    """The name of a base, if the importance has it, and digits of the digest of its weights."""
    assert base.base is not None
    name, _, digest = base.base.rpartition("@")
    return name, digest.partition(":")[2][:DIGEST_DIGITS]


def _fitting(session: Reader, tenant: Tenant, key: str, layout: Layout) -> SpaceRecord | None:
    """The space of this key, which must have this layout; None if it does not exist."""
    found = spaces.find_by_key(session, tenant, key)
    if found is None or _fits(session, found, layout):
        return found
    raise SpaceMismatch(
        f"the space {found.name!r} would be for checkpoints of this layout, but it has another one"
    )


def _siblings(session: Reader, tenant: Tenant, name: str, layout: Layout) -> Iterator[SpaceRecord]:
    """The spaces of weights that were made beside a space for other layouts, oldest first."""
    stem = stem_of(layout_key(name, layout))
    for space in spaces.find_by_key_prefix(session, tenant, stem, limit=_MAX_SIBLINGS):
        if continues(stem, space.key) and space.importance.kind == "weight":
            yield space


def _of_moved(
    session: Reader, tenant: Tenant, name: str, layout: Layout, base: str
) -> SpaceRecord | None:
    """The space of a base's adapters that was made when the base had another name."""
    stem = stem_of(adapter_key(name, base, layout))
    for space_id in bases.spaces_declaring(session, tenant.id, [base]):
        space = spaces.find_space_by_id(session, space_id)
        if space is None or not continues(stem, space.key):
            continue
        if _fits(session, space, layout):
            return space
    return None


def _require_plain(space: SpaceRecord | None) -> None:
    """Refuse a blinded or ordered space: supports made here are plain, and of weights."""
    if space is not None and space.blinding is not None:
        raise SpaceMismatch(
            f"space {space.name!r} holds supports that are blinded under a key, which this service "
            f"does not have: give the source another space"
        )
    if space is not None and space.ordered:
        raise SpaceMismatch(
            f"space {space.name!r} holds ordered supports, which are of importances of gradients, "
            f"and a hub has weights alone: give the source another space"
        )


def _patterns(space: SpaceRecord | None, patterns: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*patterns, *(() if space is None else space.exclude)]))


def _fits(session: Reader, space: SpaceRecord, layout: Layout) -> bool:
    """Whether a space has this layout; without a layout only its M is compared."""
    if space.kind != "supports":
        return False
    own = layouts.find_layout(session, space)
    if own is None:
        return space.num_parameters == layout.num_parameters
    return correspond(layout, own).equal


def _fit(session: Reader, space: SpaceRecord, layout: Layout) -> Fit:
    """How a checkpoint fits a space; without a layout only its M is compared."""
    own = None if space.kind != "supports" else layouts.find_layout(session, space)
    if own is None:
        return SAME if _fits(session, space, layout) else NO_FIT
    return fit_of(layout, own)
