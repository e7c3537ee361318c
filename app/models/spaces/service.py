"""Index spaces: create, show and delete them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Literal, TypeAlias

import numpy as np

from app.infra.db.database import Reader, Writer
from app.infra.db.released_blobs import release_space
from app.infra.errors import SpaceExists, WrongKind
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import layouts, spaces
from app.models.spaces.requested import RequestedSpace
from app.models.spaces.terms import SpaceTerms
from app.tenancy.auth.records import Tenant
from app.tenancy.quotas.service import QuotaService
from modelkin._validation import check_space_name
from modelkin.core.layout import Layout
from modelkin.core.sketching.banding import DEFAULT_BANDING
from modelkin.core.subspaces.subspace import MAX_FEATURES
from modelkin.errors import InvalidParameter
from modelkin.types.paging import Page
from modelkin.types.spaces import SignatureSpec, SubspaceSpec

__all__ = ["MAX_MODELS_AT_ONCE", "SpaceService"]

MAX_MODELS_AT_ONCE: Final = 500
"""Models that are deleted in one transaction with their space, some 20 ms."""


SpaceKind: TypeAlias = Literal["supports", "subspaces"]

_WRONG_KIND: Final[Mapping[str, str]] = {
    "subspaces": "space {name!r} holds data subspaces, and this is for supports: models are "
    "written and read at /v1/spaces/{name}/subspaces/..., and compared by neighbors, similarity, "
    "overlap, graph, donors and clusterings",
    "supports": "space {name!r} holds supports, and this is for data subspaces: write models to "
    "/v1/spaces/{name}/supports/..., or create a space of kind subspaces",
}
"""The answer of a space of this kind to an operation for the other kind."""


class SpaceService:
    """The use cases of spaces.

    Args:
        on_delete: functions of the id of a deleted space, called once the deletion is committed;
            they delete what is derived from it outside of the database.
        quotas: the quotas of tenants; None where a command of the operator writes.
    """

    def __init__(
        self,
        on_delete: Sequence[Callable[[int], None]] = (),
        quotas: QuotaService | None = None,
    ) -> None:
        self._on_delete = tuple(on_delete)
        self._quotas = quotas

    def create(
        self,
        session: Writer,
        tenant: Tenant,
        name: str,
        requested: RequestedSpace,
        *,
        source_key: str | None = None,
    ) -> tuple[SpaceRecord, bool]:
        """Create a space, or find an equal one; return it and whether it is new.

        Args:
            source_key: by what a source finds it; None where that is its name.

        Raises:
            InvalidInput: the name is invalid; and see :meth:`RequestedSpace.terms`.
            SpaceExists: a different space has the name; the message lists the differences.
            QuotaExceeded: the tenant's quota of spaces is used up.
        """
        name = check_space_name(name, field="name")
        terms = requested.terms()
        created = spaces.insert_space(session, tenant, name, terms, source_key)
        if created is not None:
            self._require_quota(session, tenant)
            return created, True
        existing = spaces.get_space(session, tenant, name)
        terms.require_same(existing)
        return existing, False

    def create_of_subspaces(
        self,
        session: Writer,
        tenant: Tenant,
        name: str,
        *,
        num_features: int | None,
        spec: SubspaceSpec,
    ) -> tuple[SpaceRecord, bool]:
        """Create a space of data subspaces, or find an equal one; return it and whether it is new.

        Args:
            num_features: the number m of features, 2 to 65,535.
            spec: the specification that its subspaces share.

        Raises:
            InvalidParameter: an argument is out of its range.
            SpaceExists, QuotaExceeded: see :meth:`create`.
        """
        name = check_space_name(name, field="name")
        if num_features is None or not 2 <= num_features <= MAX_FEATURES:
            raise InvalidParameter(
                f"num_parameters of a space of data subspaces is how many features a sample has, "
                f"2 to {MAX_FEATURES}, not {num_features}",
                field="num_parameters",
            )
        # The constant as a payload states it: in single precision.
        spec = replace(spec, constant=float(np.float32(spec.constant)))
        terms = SpaceTerms(num_features, None, SignatureSpec(), DEFAULT_BANDING, subspaces=spec)
        created = spaces.insert_space(session, tenant, name, terms)
        if created is not None:
            self._require_quota(session, tenant)
            return created, True
        existing = spaces.get_space(session, tenant, name)
        if (existing.num_parameters, existing.subspaces) != (num_features, spec):
            held = existing.subspaces or "no space of data subspaces"
            raise SpaceExists(
                f"there is already a space {existing.name!r} and it differs: num_parameters is "
                f"{existing.num_parameters}, and it is {held}"
            )
        return existing, False

    def get(
        self, session: Reader, tenant: Tenant, name: str, *, kind: SpaceKind | None = None
    ) -> SpaceRecord:
        """Return the space of this name.

        Args:
            kind: the only kind that the caller can work with; None for all kinds.

        Raises:
            InvalidName: no space can have this name.
            SpaceNotFound: the tenant has no space of this name.
            WrongKind: the space is of another kind.
        """
        space = spaces.get_space(session, tenant, check_space_name(name))
        if kind not in (None, space.kind):
            raise WrongKind(_WRONG_KIND[space.kind].format(name=space.name))
        return space

    def list(
        self, session: Reader, tenant: Tenant, *, limit: int, cursor: str | None, text: str = ""
    ) -> Page[SpaceRecord]:
        """The tenant's spaces by name; with ``text`` those that have it in their name."""
        return spaces.list_spaces(session, tenant, limit=limit, cursor=cursor, text=text)

    def count(self, session: Reader, tenant: Tenant) -> int:
        """The number of the tenant's spaces."""
        return spaces.count_spaces(session, tenant.id)

    def layout(self, session: Reader, space: SpaceRecord) -> Layout | None:
        """The layout of a space; None without one."""
        return layouts.find_layout(session, space)

    def layout_text(self, session: Reader, space: SpaceRecord) -> str | None:
        """The tensors of the layout as JSON; None without one."""
        return layouts.layout_text(session, space)

    def delete(self, session: Writer, space: SpaceRecord) -> None:
        """Delete the space and everything in it.

        The space is gone for all readers when this is committed. The rows of many models go later,
        batch by batch: as one change they would keep SQLite's other writers waiting for seconds.
        """
        space = spaces.lock_space(session, space)
        release_space(session, space.id)
        if space.models > MAX_MODELS_AT_ONCE:
            spaces.retire_space(session, space)
        else:
            spaces.delete_space(session, space)
        for forget in self._on_delete:
            session.after_commit(partial(forget, space.id))

    def _require_quota(self, session: Writer, tenant: Tenant) -> None:
        """Refuse a space that was inserted just now, and with it the transaction.

        Only so does a client that asks for an existing space never meet the quota.
        """
        if self._quotas is not None:

            def used() -> int:
                return spaces.count_spaces(session, tenant.id) - 1

            self._quotas.require(session, tenant.id, "spaces", used)
