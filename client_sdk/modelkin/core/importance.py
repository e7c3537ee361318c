"""``Importance``: the kind of importance that supports are selected by, and their ``Origin``.

Supports selected by different kinds of importance, or by differences from different bases, cannot
be compared: a space states its kind, and an upload may state its own. Neither is part of a
support's bytes or digest.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

from modelkin.core.layout import Layout
from modelkin.core.matching.correspondence import correspond
from modelkin.errors import InvalidParameter, SpaceMismatch

__all__ = [
    "IMPORTANCE_KINDS",
    "UNSTATED",
    "Importance",
    "ImportanceKind",
    "Origin",
    "check_origin",
    "check_same_origin",
    "origin_of",
    "with_origin",
]

T = TypeVar("T")

ImportanceKind: TypeAlias = Literal["fisher", "grad_moment", "adam", "weight", "delta", "other"]
"""A kind that a space or an upload may state."""
IMPORTANCE_KINDS: Final[tuple[ImportanceKind, ...]] = get_args(ImportanceKind)

MAX_BASE_LENGTH: Final = 300
MAX_NOTE_LENGTH: Final = 500
"""The most characters of a note."""

_DIGEST = re.compile(r"[a-z0-9]{1,16}:[0-9a-f]{8,128}")


@dataclass(frozen=True, slots=True)
class Importance:
    """A kind of importance.

    Attributes:
        kind: one of :data:`IMPORTANCE_KINDS`, or ``"unstated"`` for a space that takes any.
        base: for ``"delta"``, the digest of the weights that differences are taken from, after a
            name and "@" if there is one: ``"org/base@sha256:9f2c..."``. Digests alone are compared.
        note: for people, such as the number of epochs.
    """

    kind: str
    base: str | None = None
    note: str | None = None

    @classmethod
    def of(
        cls,
        kind: str,
        base: str | None = None,
        note: str | None = None,
        *,
        fields: tuple[str, str, str] = ("importance.kind", "importance.base", "importance.note"),
    ) -> Importance:
        """Check a stated kind of importance.

        Args:
            kind: one of :data:`IMPORTANCE_KINDS`.
            base: a digest, or a name, "@" and a digest.
            note: a text of at most 500 characters.
            fields: the names of the three in errors.

        Raises:
            InvalidParameter: there is no such kind, a base for a kind other than ``"delta"``, a
                base without a digest, or a text that is too long.
        """
        kind_field, base_field, note_field = fields
        if kind not in IMPORTANCE_KINDS:
            raise InvalidParameter(
                f"{kind_field} must be one of {', '.join(IMPORTANCE_KINDS)}, not {kind!r}",
                field=kind_field,
            )
        if base is not None:
            _check_base(kind, base, base_field)
        if note is not None and len(note) > MAX_NOTE_LENGTH:
            raise InvalidParameter(
                f"{note_field} has at most {MAX_NOTE_LENGTH} characters, not {len(note)}",
                field=note_field,
            )
        return cls(kind, base, note)

    @property
    def base_digest(self) -> str | None:
        """The digest of the base, without its name."""
        return None if self.base is None else self.base.rpartition("@")[2]

    @property
    def is_stated(self) -> bool:
        """Whether the kind is known."""
        return self.kind != UNSTATED.kind

    def fits(self, other: Importance) -> bool:
        """Whether supports of the two may be compared, as far as both state what they are.

        Notes do not count, and a base counts only if both state one.
        """
        if not (self.is_stated and other.is_stated):
            return True
        bases = {self.base_digest, other.base_digest} - {None}
        return self.kind == other.kind and len(bases) <= 1

    def __str__(self) -> str:
        return self.kind if self.base is None else f"{self.kind} against {self.base}"


UNSTATED: Final = Importance("unstated")
"""The kind of a space that does not state one."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a support: the kind of importance, and the layout that its indices follow.

    Attributes:
        importance: None if it is not known.
        layout: None if it is not known, or if the indices are blinded.
        blinding: the check value of the blinding that the indices are under; None if they are not.
        note: a remark on how tensors were fitted to the layout; None where they are those.
    """

    importance: Importance | None = None
    layout: Layout | None = None
    blinding: str | None = None
    note: str | None = None

    def to_text(self) -> str:
        """The origin as JSON text."""
        kind = self.importance
        return json.dumps(
            {
                "importance": None if kind is None else [kind.kind, kind.base, kind.note],
                "layout": None if self.layout is None else self.layout.to_json(),
                **({} if self.blinding is None else {"blinding": self.blinding}),
                **({} if self.note is None else {"note": self.note}),
            }
        )

    @classmethod
    def from_text(cls, text: str) -> Origin:
        """The origin of :meth:`to_text`.

        Raises:
            ValueError: it is not one, or states a kind or layout that cannot be.
        """
        try:
            fields = json.loads(text)
            kind, layout = fields["importance"], fields["layout"]
            return cls(
                None if kind is None else Importance.of(*kind),
                None if layout is None else Layout.from_json(layout),
                fields.get("blinding"),
                fields.get("note"),
            )
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"this is not an origin: {error}") from error


def check_origin(origin: Any, num_parameters: int) -> Origin | None:
    """Require an origin, or None, of a support of M parameters.

    Raises:
        InvalidParameter: it is no ``Origin``.
        SpaceMismatch: its layout has another number of parameters.
    """
    if origin is None:
        return None
    if not isinstance(origin, Origin):
        raise InvalidParameter(
            f"origin must be a modelkin.core.importance.Origin, not {origin!r}", field="origin"
        )
    if origin.layout is not None and origin.layout.num_parameters != num_parameters:
        raise SpaceMismatch(
            f"the layout of the origin has {origin.layout.num_parameters} parameters, the support "
            f"{num_parameters}"
        )
    return origin


def check_same_origin(a: Origin | None, b: Origin | None) -> None:
    """Refuse to compare supports of different origins, as far as both state them.

    Raises:
        SpaceMismatch: they are of different kinds of importance, follow different layouts, or are
            not blinded under one key; names both.
    """
    if a is None or b is None:
        return
    if a.blinding != b.blinding:
        raise SpaceMismatch(
            f"an index means another parameter in a support that is blinded under "
            f"{a.blinding or 'no key'} and in one under {b.blinding or 'no key'}: blind both with "
            f"one key"
        )
    if a.importance is not None and b.importance is not None:
        _check_same_importance(a.importance, b.importance)
    if a.layout is not None and b.layout is not None and a.layout.digest != b.layout.digest:
        raise SpaceMismatch(
            f"an index means another parameter in each of the layouts {a.layout.digest[:19]} and "
            f"{b.layout.digest[:19]}: {_layout_difference(a.layout, b.layout)}"
        )


def _check_same_importance(a: Importance, b: Importance) -> None:
    if not a.fits(b):
        raise SpaceMismatch(
            f"supports selected by {a} and by {b} do not compare: use one kind of importance "
            f"for both, and one base for differences"
        )


def _layout_difference(a: Layout, b: Layout) -> str:
    tensors = correspond(a, b)
    if not tensors.equal:
        return tensors.difference()
    return (
        "they have the same tensors in another order or by other names, so use "
        "a.reordered(b.origin.layout)"
    )


def with_origin(importance: T, origin: Origin) -> T:
    """Attach an origin to a tensor, in a form that ``torch.save`` keeps and any loader reads."""
    importance.modelkin_origin = origin.to_text()  # type: ignore[attr-defined]
    return importance


def origin_of(importance: Any) -> Origin | None:
    """The origin that :func:`with_origin` attached; None where there is none.

    Functions of ``modelkin.torch`` attach one to what they return. Arithmetic and copies to another
    device make tensors without one.
    """
    attached = getattr(importance, "modelkin_origin", None)
    if isinstance(attached, Origin):
        return attached
    try:
        return Origin.from_text(attached) if isinstance(attached, str) else None
    except ValueError:  # a file may have any text there
        return None


def _check_base(kind: str, base: str, field: str) -> None:
    if kind != "delta":
        raise InvalidParameter(
            f"{field} is for kind delta, and the kind is {kind!r}: leave it out", field=field
        )
    if len(base) > MAX_BASE_LENGTH or not _DIGEST.fullmatch(base.rpartition("@")[2]):
        raise InvalidParameter(
            f"{field} must be a digest such as sha256:9f2c..., or name@digest, of at most "
            f"{MAX_BASE_LENGTH} characters, not {base[:100]!r}",
            field=field,
        )
