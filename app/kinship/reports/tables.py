"""The tables of a report, made from its evidence: each row one finding."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from app.kinship.reports.evidence import Evidence
from app.kinship.reports.families import Families, age_of, is_older
from app.kinship.reports.known import KnownModel, Likeness
from modelkin.core.fingerprints.relations.edges import EDGE_SHARE
from modelkin.core.fingerprints.sources import WHOLE
from modelkin.types.reports import (
    CopyGroup,
    DeclaredLicense,
    LicenseFinding,
    MeasuredBase,
    ReportedModel,
    Saving,
    UndeclaredBase,
)

__all__ = [
    "copies",
    "count_undated",
    "declared_licenses",
    "license_findings",
    "reported_models",
    "savings",
    "undeclared_bases",
]

_PART_OF_SHARE: Final = 0.5
"""What a difference saves of the bytes of the lines found. Values of a line with an equal key are
near to those of the base, and seldom equal: ``docs/evidence/lines.md`` has what was measured."""
_MOST_BASES: Final = 5
"""Models with lines in common that the row of a model names."""
_NO_LETTERS: Final = re.compile(r"[^a-z0-9.]+")


def reported_models(evidence: Evidence) -> Iterator[ReportedModel]:
    """The models that the report is about, by name."""
    for model in _reported(evidence):
        likenesses = sorted(
            evidence.likenesses.of(model.name), key=lambda each: (-each.share, each.other)
        )
        yield ReportedModel(
            model=model.name,
            is_new=model.is_new,
            stored_at=model.changed_at,
            stated_by=model.stated_by,
            parameters=model.parameters,
            file_bytes=model.file_bytes,
            digest=model.digest,
            weights=model.weights,
            license=model.license,
            declared=model.declared,
            verdict=model.verdict,
            sentences=model.sentences,
            bases=tuple(_measured(evidence, model, likenesses)),
        )


def _measured(
    evidence: Evidence, model: KnownModel, likenesses: Sequence[Likeness]
) -> Iterator[MeasuredBase]:
    declared = [each for each in likenesses if each.other in model.declared]
    others = [each for each in likenesses if each.other not in model.declared]
    for each in [*declared, *others][:_MOST_BASES]:
        other = evidence.models.get(each.other)
        yield MeasuredBase(
            model=each.other,
            verdict=each.verdict,
            share=each.share,
            log10_p=each.log10_p,
            is_declared=each.other in model.declared,
            is_older=None if other is None else is_older(other, model),
        )


def undeclared_bases(evidence: Evidence) -> Iterator[UndeclaredBase]:
    """The bases that were found and not declared: by lines, else in spaces; large shares first."""
    families, said = evidence.families, evidence.sentences
    found = {model.name: families.undeclared(model) for model in _reported(evidence)}
    rows = [
        UndeclaredBase(
            model=name,
            base=each.other,
            share=each.share,
            log10_p=each.log10_p,
            is_older=is_older(evidence.models[each.other], evidence.models[name]),
            sentence=said.get((name, each.other), f"shares weights with {each.other}"),
        )
        for name, each in found.items()
        if each is not None
    ]
    named = {each.model for each in rows}
    rows += [each for each in evidence.undeclared if each.model not in named]
    yield from sorted(rows, key=lambda each: (-(each.share or each.similarity or 0), each.model))


def count_undated(evidence: Evidence) -> int:
    """How many models may have an undeclared base that no date shows, and declare none.

    A model that others declare is the root of a family, and none of these.
    """
    known = evidence.models
    others = {base for each in known.values() for base in each.declared}
    others |= {each.model for each in undeclared_bases(evidence)}
    return sum(
        not model.declared
        and model.name not in others
        and any(
            each.verdict in WHOLE
            and each.share >= EDGE_SHARE
            and each.other in known
            and is_older(known[each.other], model) is None
            for each in evidence.likenesses.of(model.name)
        )
        for model in _reported(evidence)
    )


def copies(evidence: Evidence) -> Iterator[CopyGroup]:
    """The groups of models with the same weights, the largest first."""
    groups = _Groups()
    exact: dict[str, str] = {}
    for model in evidence.models.values():
        if model.weights is not None:
            groups.join(exact.setdefault(model.weights, model.name), model.name)
    shares: dict[str, float] = {}
    for each in evidence.likenesses.copies():
        groups.join(each.model, each.other)
        for name in (each.model, each.other):
            shares[name] = min(each.share, shares.get(name, 1.0))
    found = [_group(evidence, names, shares) for names in groups.of_several()]
    told = (each for each in found if any(evidence.models[m].is_reported for m in each.models))
    yield from sorted(told, key=lambda each: (-len(each.models), each.models))


def _group(evidence: Evidence, names: Iterable[str], shares: dict[str, float]) -> CopyGroup:
    models = sorted((evidence.models[name] for name in names), key=age_of)
    digests = {model.weights for model in models}
    sizes = [model.file_bytes for model in models[1:]]
    return CopyGroup(
        models=tuple(model.name for model in models),
        share=min(shares.get(model.name, 1.0) for model in models),
        is_exact=len(digests) == 1 and None not in digests,
        bytes=None if None in sizes else sum(size for size in sizes if size is not None),
    )


def license_findings(evidence: Evidence) -> Iterator[LicenseFinding]:
    """The declared licences of models that are not those of their bases; large shares first."""
    found = _license_findings(evidence)
    yield from sorted(found, key=lambda each: (-each.share, each.model, each.base))


def _license_findings(evidence: Evidence) -> Iterator[LicenseFinding]:
    for model in _reported(evidence):
        for like in evidence.families.bases(model):
            base = evidence.models.get(like.other)
            if base is None or not base.license or _same(base.license, model.license):
                continue
            yield LicenseFinding(
                model=model.name,
                license=model.license,
                base=base.name,
                base_license=base.license,
                share=like.share,
                is_declared=base.name in model.declared,
                kind="differs" if model.license else "missing",
            )


def declared_licenses(evidence: Evidence) -> Iterator[DeclaredLicense]:
    """How many of the models that the report is about declare which licence, the most first."""
    counts = Counter(model.license or None for model in _reported(evidence))
    for name, models in sorted(counts.items(), key=lambda each: (-each[1], each[0] or "")):
        yield DeclaredLicense(license=name, models=models)


def savings(evidence: Evidence, groups: Sequence[CopyGroup]) -> Iterator[Saving]:
    """What storing models as differences to others would save, the greatest first.

    Args:
        groups: the copies.
    """
    whole: set[str] = set()
    firsts = {name: each.models[0] for each in groups for name in each.models[1:]}
    exact = {name for each in groups if each.is_exact for name in each.models}
    found = []
    for model in sorted(_reported(evidence), key=age_of):
        base, share = _stored_beside(model, firsts, evidence.families)
        if base is None or model.name in whole or not model.file_bytes:
            continue
        whole.add(base)
        saved = round(model.file_bytes * (1 if model.name in exact else _PART_OF_SHARE * share))
        found.append(
            Saving(
                model=model.name, base=base, file_bytes=model.file_bytes, share=share, saved=saved
            )
        )
    yield from sorted(found, key=lambda each: (-each.saved, each.model))


def _stored_beside(
    model: KnownModel, firsts: dict[str, str], families: Families
) -> tuple[str | None, float]:
    """The model that would be stored whole beside a difference, and the share of common lines."""
    if model.name in firsts:
        return firsts[model.name], 1.0
    nearest = max(families.bases(model), key=lambda each: each.share, default=None)
    return (None, 0.0) if nearest is None else (nearest.other, nearest.share)


def _reported(evidence: Evidence) -> list[KnownModel]:
    models = (model for model in evidence.models.values() if model.is_reported)
    return sorted(models, key=lambda model: model.name)


def _same(one: str, other: str | None) -> bool:
    return _plain(one) == _plain(other or "")


def _plain(license_name: str) -> str:
    """A licence's name in one spelling: case and separators differ between hubs."""
    return _NO_LETTERS.sub("-", license_name.casefold()).strip("-")


class _Groups:
    """Names in groups, which grow together as their members are joined."""

    def __init__(self) -> None:
        self._head: dict[str, str] = {}

    def join(self, one: str, other: str) -> None:
        """Put two names into one group."""
        self._head[self._find(one)] = self._find(other)

    def of_several(self) -> Iterator[list[str]]:
        """The groups of two names or more."""
        groups: dict[str, list[str]] = {}
        for name in self._head:
            groups.setdefault(self._find(name), []).append(name)
        yield from (names for names in groups.values() if len(names) > 1)

    def _find(self, name: str) -> str:
        head = self._head.setdefault(name, name)
        while head != self._head[head]:
            self._head[head] = self._head[self._head[head]]
            head = self._head[head]
        return head
