"""A requested space: what a client asks for, and the terms that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from app.models.spaces.origins import require_gradients
from app.models.spaces.stored_layouts import StoredLayout
from app.models.spaces.support_sizes import SupportSizeRequest
from app.models.spaces.terms import SpaceTerms
from modelkin.core.blinding import check_blinding
from modelkin.core.importance import Importance
from modelkin.core.indices import check_num_parameters
from modelkin.core.sketching.banding import Banding, banding_for, default_banding, recall_at
from modelkin.core.sketching.schemes import MAX_NUM_PERM, check_scheme, default_scheme
from modelkin.errors import InvalidParameter, InvalidSignature
from modelkin.types.spaces import FREE, SignatureSpec
from modelkin.types.vocabulary import SignatureScheme

__all__ = ["BandingRequest", "RequestedSpace"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedSpace:
    """A requested space of supports; what is left out gets its default.

    Attributes:
        num_parameters: M; None to count the parameters of the layout.
        layout: the layout without the tensors that supports leave out.
        scheme: the scheme of signatures; the best for M if None.
        banding: the default for ``num_perm`` if None.
        support_size: the policy for the sizes of its supports; no restriction if None.
        importance: the importance that selects its supports; unstated if None, and then an
            existing space may have any kind.
        exclude: shell patterns of the tensors that supports leave out.
        blinding: the check value of the key that its supports are blinded under.
        ordered: whether its supports have the octaves of their ranks.
    """

    num_parameters: int | None
    layout: StoredLayout | None
    scheme: str | None
    num_perm: int
    seed: int
    banding: BandingRequest | None = None
    support_size: SupportSizeRequest | None = None
    importance: Importance | None = None
    exclude: Sequence[str] = ()
    blinding: str | None = None
    ordered: bool = False

    def terms(self) -> SpaceTerms:
        """Return the terms of the space.

        Raises:
            InvalidInput: M, the layout, the signature, the banding, the size or the check value is
                invalid, or they do not go together; or the supports are ordered, and their
                importance is one of weights.
        """
        _require_layout(self.exclude, self.layout)
        if self.blinding is not None:
            _require_blind(self.blinding, self.layout)
        if self.ordered and self.importance is not None:
            require_gradients(self.importance)
        m = _num_parameters(self.num_parameters, self.layout, self.exclude)
        h = _num_perm(self.num_perm)
        scheme = cast(SignatureScheme, _scheme(self.scheme, m))
        return SpaceTerms(
            num_parameters=m,
            layout=self.layout,
            signature=SignatureSpec(scheme, h, _seed(self.seed)),
            banding=_banding(self.banding, h),
            support_size=FREE if self.support_size is None else self.support_size.resolve(m),
            importance=self.importance,
            exclude=tuple(self.exclude),
            blinding=self.blinding,
            ordered=self.ordered,
        )


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
