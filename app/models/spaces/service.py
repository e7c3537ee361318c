"""Index spaces: create, show and delete them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, TypeAlias, cast

import numpy as np

from app.infra.db.database import Reader, Writer
from app.infra.db.released_blobs import release_space
from app.infra.errors import SpaceExists, WrongKind
from app.models.spaces.origins import require_gradients
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import layouts as layout_repository
from app.models.spaces.repositories import spaces as repository
from app.models.spaces.stored_layouts import StoredLayout
from app.models.spaces.support_sizes import SupportSizeRequest
from app.tenancy.auth.records import Tenant
from app.tenancy.quotas.service import QuotaService
from modelkin._validation import check_space_name
from modelkin.core.blinding import check_blinding
from modelkin.core.importance import UNSTATED, Importance
from modelkin.core.indices import check_num_parameters
from modelkin.core.layout import Layout
from modelkin.core.sketching.banding import Banding, banding_for, default_banding, recall_at
from modelkin.core.sketching.schemes import MAX_NUM_PERM, check_scheme, default_scheme
from modelkin.core.subspaces.subspace import MAX_FEATURES
from modelkin.errors import InvalidParameter, InvalidSignature
from modelkin.types.paging import Page
from modelkin.types.spaces import FREE, SignatureSpec, SubspaceSpec, SupportSizePolicy
from modelkin.types.vocabulary import SignatureScheme

__all__ = ["MAX_MODELS_AT_ONCE", "BandingRequest", "SpaceService"]

MAX_MODELS_AT_ONCE: Final = 500
"""Models that are deleted in one transaction with their space, some 20 ms."""


@dataclass(frozen=True, slots=True)
class BandingRequest:
    """A requested banding: bands and rows, or the similarity that they must find."""

    bands: int | None
    rows: int | None
    similarity: float | None

    def resolve(self, num_perm: int) -> Banding:
        """Return the banding for signatures of ``num_perm`` values.

        Raises:
            InvalidParameter: no such banding is possible; the message says why.
        """
        if self.similarity is not None:
            if self.bands is not None or self.rows is not None:
                raise InvalidParameter(
                    "give bands and rows, or the similarity that they are to find, not both",
                    field="similarity",
                )
            return self._finding(self.similarity, num_perm)
        if self.bands is None or self.rows is None:
            missing = "bands" if self.bands is None else "rows"
            raise InvalidParameter("a banding needs both bands and rows", field=missing)
        cut = Banding(self.bands, self.rows)
        cut.check(num_perm)
        return cut

    def _finding(self, similarity: float, num_perm: int) -> Banding:
        cut = banding_for(similarity, num_perm)
        if cut is None:
            most = recall_at(similarity, Banding(num_perm, 1))
            raise InvalidParameter(
                f"no banding of {num_perm} minhashes finds 99% of the models at S = {similarity:g}:"
                f" {num_perm} x 1 finds {most:.1%}; take more minhashes or a larger S",
                field="similarity",
            )
        return cut


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
        *,
        num_parameters: int | None,
        layout: StoredLayout | None,
        scheme: str | None,
        num_perm: int,
        seed: int,
        banding: BandingRequest | None = None,
        support_size: SupportSizeRequest | None = None,
        importance: Importance | None = None,
        exclude: Sequence[str] = (),
        blinding: str | None = None,
        ordered: bool = False,
    ) -> tuple[SpaceRecord, bool]:
        """Create a space, or find an equal one; return it and whether it is new.

        Args:
            banding: the default for ``num_perm`` if None.
            support_size: the policy for the sizes of its supports; no restriction if None.
            importance: the importance that selects its supports; unstated if None, and then an
                existing space may have any kind.
            layout: the layout without the tensors that supports leave out.
            exclude: shell patterns of those tensors.
            blinding: the check value of the key that its supports are blinded under.
            ordered: whether its supports have the octaves of their ranks.

        Raises:
            InvalidInput: the name, M, the layout, the signature, the banding, the size or the check
                value is invalid, or they do not go together; or the supports are ordered, and their
                importance is one of weights.
            SpaceExists: a different space has the name; the message lists the differences.
            QuotaExceeded: the tenant's quota of spaces is used up.
        """
        name = check_space_name(name, field="name")
        _require_layout(exclude, layout)
        if blinding is not None:
            _require_blind(blinding, layout)
        if ordered and importance is not None:
            require_gradients(importance)
        m = _num_parameters(num_parameters, layout, exclude)
        h = _num_perm(num_perm)
        spec = SignatureSpec(cast(SignatureScheme, _scheme(scheme, m)), h, _seed(seed))
        cut = _banding(banding, h)
        size = FREE if support_size is None else support_size.resolve(m)
        created = repository.insert_space(
            session,
            tenant,
            name,
            num_parameters=m,
            layout=layout,
            signature=spec,
            banding=cut,
            support_size=size,
            importance=importance or UNSTATED,
            exclude=exclude,
            blinding=blinding,
            ordered=ordered,
        )
        if created is not None:
            self._require_quota(session, tenant)
            return created, True
        existing = repository.get_space(session, tenant, name)
        _require_same_blinding(existing, blinding)
        _require_same(existing, m, layout, spec, cut, size, importance, ordered)
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
        created = repository.insert_space(
            session,
            tenant,
            name,
            num_parameters=num_features,
            layout=None,
            signature=SignatureSpec(),
            subspaces=spec,
        )
        if created is not None:
            self._require_quota(session, tenant)
            return created, True
        existing = repository.get_space(session, tenant, name)
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
        space = repository.get_space(session, tenant, check_space_name(name))
        if kind not in (None, space.kind):
            raise WrongKind(_WRONG_KIND[space.kind].format(name=space.name))
        return space

    def list(
        self, session: Reader, tenant: Tenant, *, limit: int, cursor: str | None, text: str = ""
    ) -> Page[SpaceRecord]:
        """The tenant's spaces by name; with ``text`` those that have it in their name."""
        return repository.list_spaces(session, tenant, limit=limit, cursor=cursor, text=text)

    def layout(self, session: Reader, space: SpaceRecord) -> Layout | None:
        """The layout of a space; None without one."""
        return layout_repository.find_layout(session, space)

    def layout_text(self, session: Reader, space: SpaceRecord) -> str | None:
        """The tensors of the layout as JSON; None without one."""
        return layout_repository.layout_text(session, space)

    def delete(self, session: Writer, space: SpaceRecord) -> None:
        """Delete the space and everything in it.

        The space is gone for all readers when this is committed. The rows of many models go later,
        batch by batch: as one change they would keep SQLite's other writers waiting for seconds.
        """
        space = repository.lock_space(session, space)
        release_space(session, space.id)
        if space.models > MAX_MODELS_AT_ONCE:
            repository.retire_space(session, space)
        else:
            repository.delete_space(session, space)
        for forget in self._on_delete:
            session.after_commit(partial(forget, space.id))

    def _require_quota(self, session: Writer, tenant: Tenant) -> None:
        """Refuse a space that was inserted just now, and with it the transaction.

        Only so does a client that asks for an existing space never meet the quota.
        """
        if self._quotas is not None:

            def used() -> int:
                return repository.count_spaces(session, tenant.id) - 1

            self._quotas.require(session, tenant.id, "spaces", used)


def _is_same(one: Importance, other: Importance) -> bool:
    return (one.kind, one.base_digest) == (other.kind, other.base_digest)


def _require_layout(exclude: Sequence[str], layout: StoredLayout | None) -> None:
    """Refuse patterns of tensors where a space has none."""
    if exclude and layout is None:
        raise InvalidParameter(
            "exclude names tensors, so the space needs a layout that holds them", field="exclude"
        )


def _require_blind(blinding: str, layout: StoredLayout | None) -> None:
    check_blinding(blinding)
    if layout is not None:
        raise InvalidParameter(
            "a blinded space has no layout here: its indices do not follow one. Give "
            "num_parameters, and the layout to the Blinding alone",
            field="layout",
        )


def _require_same_blinding(existing: SpaceRecord, blinding: str | None) -> None:
    if existing.blinding != blinding:
        theirs = existing.blinding or "no key"
        raise SpaceExists(
            f"there is already a space {existing.name!r}, blinded under {theirs}, not "
            f"{blinding or 'no key'}: take its key and layout, or another name"
        )


def _num_parameters(
    num_parameters: int | None, layout: StoredLayout | None, exclude: Sequence[str]
) -> int:
    if num_parameters is None:
        if layout is None:
            raise InvalidParameter(
                "a space needs num_parameters, or a layout to count them", field="num_parameters"
            )
        return layout.num_parameters
    m = check_num_parameters(num_parameters)
    if layout is not None and layout.num_parameters != m:
        of_others = ", without those that are excluded," if exclude else ""
        raise InvalidParameter(
            f"the layout holds {layout.num_parameters} parameters{of_others} and "
            f"num_parameters says {m}: leave num_parameters out",
            field="num_parameters",
        )
    return m


def _scheme(scheme: str | None, num_parameters: int) -> str:
    if scheme is None:
        return default_scheme(num_parameters)
    return check_scheme(scheme, num_parameters)


def _num_perm(num_perm: int) -> int:
    if not 1 <= num_perm <= MAX_NUM_PERM:
        raise InvalidSignature(
            f"num_perm must be 1 to {MAX_NUM_PERM}, not {num_perm}", field="signature.num_perm"
        )
    return num_perm


def _seed(seed: int) -> int:
    if not 0 <= seed < 2**32:
        raise InvalidSignature(f"seed must be 0 to 2^32 - 1, not {seed}", field="signature.seed")
    return seed


def _banding(banding: BandingRequest | None, num_perm: int) -> Banding:
    if banding is None:
        return default_banding(num_perm)
    try:
        return banding.resolve(num_perm)
    except InvalidParameter as error:
        raise InvalidParameter(str(error), field=f"banding.{error.field}") from None


def _require_same(
    existing: SpaceRecord,
    m: int,
    layout: StoredLayout | None,
    spec: SignatureSpec,
    banding: Banding,
    size: SupportSizePolicy,
    importance: Importance | None,
    ordered: bool,
) -> None:
    """:class:`SpaceExists` that names all differences at once, unless there are none."""
    if existing.subspaces is not None:
        raise SpaceExists(
            f"there is already a space {existing.name!r}, and it is of data subspaces"
        )
    differences = []
    if existing.num_parameters != m:
        differences.append(f"num_parameters is {existing.num_parameters}, not {m}")
    if existing.layout_digest != (None if layout is None else layout.digest):
        differences.append(_layout_difference(existing))
    if importance is not None and not _is_same(existing.importance, importance):
        differences.append(f"its importance is {existing.importance}, not {importance}")
    if existing.signature != spec:
        differences.append(
            f"its signature is {_signature_words(existing.signature)}, not {_signature_words(spec)}"
        )
    if existing.banding != banding:
        differences.append(f"it has {existing.banding}, not {banding}")
    if existing.support_size != size:
        differences.append(
            f"its support_size is {_size_words(existing.support_size)}, not {_size_words(size)}"
        )
    if existing.ordered != ordered:
        held = "ordered" if existing.ordered else "plain"
        differences.append(f"its supports are {held}: ordered is {str(existing.ordered).lower()}")
    if differences:
        raise SpaceExists(
            f"there is already a space {existing.name!r} and it differs: {'; '.join(differences)}"
        )


def _signature_words(spec: SignatureSpec) -> str:
    return f"{spec.scheme} of num_perm {spec.num_perm} and seed {spec.seed}"


def _size_words(size: SupportSizePolicy) -> str:
    return size.policy if size.k is None else f"{size.policy} at K = {size.k}"


def _layout_difference(existing: SpaceRecord) -> str:
    if existing.layout_digest is None:
        return "it has no layout"
    if not existing.exclude:
        return "its layout differs"
    return f"its layout differs (that space excludes {', '.join(map(repr, existing.exclude))})"
