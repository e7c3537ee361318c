"""The rows of a report's tables. Each says what was measured, beside what is declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from modelkin._moments import Moment

__all__ = [
    "ContradictedBase",
    "CopyGroup",
    "DeclaredLicense",
    "LicenseFinding",
    "MeasuredBase",
    "ReportedModel",
    "Saving",
    "TakenApart",
    "UndeclaredBase",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBase:
    """A model with which another one has lines in common.

    Attributes:
        model: its name.
        verdict: ``"copy"``, ``"part"``, ``"derived"``, ``"reuses"`` or ``"related"``, as in an
            anatomy.
        share: of the model's lines, those that are found in this one.
        log10_p: the decimal logarithm of the probability of so many by chance.
        is_declared: whether the model names it as a base.
        is_older: whether it is the older one of the two; None where their dates do not say.
    """

    model: str
    verdict: str
    share: float
    log10_p: float
    is_declared: bool
    is_older: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedModel:
    """A model that is new in the time of a report, or was changed or measured again.

    Attributes:
        model: its name.
        is_new: whether it was stored in that time; else it was changed, or more is known of it.
        stored_at: when its fingerprint was stored or last changed.
        stated_by: ``"hub"`` where the service read the file, ``"client"`` where a client sent the
            fingerprint.
        parameters: how many it has, as far as its fingerprint knows.
        file_bytes: the bytes of its files, as declared beside them; None where nobody said.
        digest: ``sha256:`` and hex, of its fingerprint.
        weights: ``sha256:`` and hex, of its weights; None where nobody stated them.
        license: the declared one.
        declared: the bases that it declares.
        verdict: what it is as a whole, as in an anatomy; None before it was measured.
        sentences: what was found, a sentence each.
        bases: the models with which it has lines in common, the greatest share first.
    """

    model: str
    is_new: bool
    stored_at: Moment
    stated_by: str
    parameters: int
    file_bytes: int | None = None
    digest: str
    weights: str | None = None
    license: str | None = None
    declared: tuple[str, ...] = ()
    verdict: str | None = None
    sentences: tuple[str, ...] = ()
    bases: tuple[MeasuredBase, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContradictedBase:
    """A declared base that the measurements speak against.

    Attributes:
        model: the name of the model that declares it.
        declared_base: the name of the base.
        space: the space in which it was measured; None where fingerprints were compared.
        reason: what decided, as in a lineage.
        likely_base: the model that stands out in its place; None without one.
        log10_p: the decimal logarithm of the P of the verdict; None where it has none.
        no_p: why the verdict has no P; None where it has one.
        summary: why, in a sentence or two.
    """

    model: str
    declared_base: str
    space: str | None = None
    reason: str | None = None
    likely_base: str | None = None
    log10_p: float | None = None
    no_p: str | None = None
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeclaredBase:
    """A model whose weights another one has, and does not name.

    Attributes:
        model: the name of the model that does not name it.
        base: the model that was found.
        space: the space in which it was measured; None where fingerprints were compared.
        share: of the model's lines, those that are found in the base; None in a space.
        log10_p: the decimal logarithm of the probability of so many by chance; None in a space.
        similarity: S of the two in the space; None where fingerprints were compared.
        is_older: whether the base is the older of the two; None where their dates do not say.
        sentence: what was seen.
    """

    model: str
    base: str
    space: str | None = None
    share: float | None = None
    log10_p: float | None = None
    similarity: float | None = None
    is_older: bool | None = None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyGroup:
    """Models with the same weights.

    Attributes:
        models: their names, the one that was stored first ahead.
        share: the least share of lines that one has in common with another one.
        is_exact: whether the digests of all their weights are equal; False where lines alone say
            that they are copies.
        bytes: those of the files beyond the first; None where nobody stated them.
    """

    models: tuple[str, ...]
    share: float
    is_exact: bool
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenApart:
    """A merge, taken apart: an average of models, or a model put together of several.

    Attributes:
        model: the name of the merge.
        kind: ``"average"`` or ``"assembled"``.
        parts: the models that it is made of, the greatest part first.
        shares: of an average the weight of each part, of an assembled model its share of lines.
        sentence: what was seen.
    """

    model: str
    kind: Literal["average", "assembled"]
    parts: tuple[str, ...]
    shares: tuple[float | None, ...]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LicenseFinding:
    """A declared licence beside that of a model whose weights are in it.

    Attributes:
        model: the name of the model.
        license: the one that the model declares; None where it declares none.
        base: the model whose weights were found in it.
        base_license: the one that the base declares.
        share: of the model's lines, those that are found in the base.
        is_declared: whether the model names the base.
        kind: ``"differs"`` where both declare one, ``"missing"`` where only the base does.
    """

    model: str
    license: str | None = None
    base: str
    base_license: str
    share: float
    is_declared: bool
    kind: Literal["differs", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredLicense:
    """How many models declare a licence.

    Attributes:
        license: its name as declared; None for no licence.
        models: how many models declare it.
    """

    license: str | None = None
    models: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What storing a model as its difference to another one would save, estimated.

    Attributes:
        model: the name of the model.
        base: the model that would be stored whole.
        file_bytes: the bytes of the model's files.
        share: of the model's lines, those that are found in the base.
        saved: the bytes that would not be stored.
    """

    model: str
    base: str
    file_bytes: int
    share: float
    saved: int
