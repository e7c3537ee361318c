"""A report as a bill of materials: CycloneDX, one component a model, with its pedigree.

Ancestors are bases, as a report counts them; variants are other models that share lines, of which
nothing says what came first. The library knows no model cards, so figures stand as properties.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from modelkin._terminal_text import one_line
from modelkin._validation import quote_whole_name
from modelkin.core.fingerprints.relations.relation import ORIGIN
from modelkin.errors import MissingExtra
from modelkin.types.reports import Report, ReportedModel

if TYPE_CHECKING:
    from cyclonedx.model import ExternalReference, HashType, Property
    from cyclonedx.model.component import Component
    from cyclonedx.model.dependency import Dependency
    from cyclonedx.model.license import License

__all__ = ["MAX_COMPONENTS", "bill_of_materials"]

MAX_COMPONENTS: Final = 2_000
"""Models of a document: the library takes 2.5 ms and 60 kB for each of so many, and looks through
all of them for each."""


def bill_of_materials(report: Report, most: int = MAX_COMPONENTS) -> bytes:
    """The document of a report: CycloneDX 1.6 as JSON, in UTF-8.

    Args:
        most: the most models that it holds; it says how many are left out.

    Raises:
        MissingExtra: the library is not installed.
    """
    try:
        from cyclonedx.model.bom import Bom, BomMetaData
        from cyclonedx.model.component import Component, ComponentType
        from cyclonedx.model.tool import ToolRepository
        from cyclonedx.output.json import JsonV1Dot6
    except ImportError as error:
        raise MissingExtra("cyclonedx-python-lib", "cyclonedx", of=".") from error
    tool = Component(name="modelkin", version=report.service, type=ComponentType.APPLICATION)
    subject = Component(
        name=one_line(report.owner),
        bom_ref="hub",
        type=ComponentType.DATA,
        description=report.opening,
    )
    kept = report.models[:most]
    figures = [(f"finding:{n}", line) for n, line in enumerate(report.headlines, 1)]
    if len(kept) < len(report.models):
        figures.append(("models:left_out", str(len(report.models) - len(kept))))
    origins = _Origins(report)
    components = [_component(model, origins) for model in kept]
    bom = Bom(
        serial_number=UUID(report.id),
        metadata=BomMetaData(
            timestamp=report.until,
            tools=ToolRepository(components=[tool]),
            component=subject,
            properties=_properties(figures),
        ),
        components=components,
        dependencies=_dependencies(subject, components),
    )
    return JsonV1Dot6(bom).output_as_string(indent=1).encode()


def _dependencies(subject: Component, components: Sequence[Component]) -> Iterator[Dependency]:
    """What the library would register one by one, each time looking through all before."""
    from cyclonedx.model.dependency import Dependency

    alone = [Dependency(each.bom_ref) for each in components]
    yield Dependency(subject.bom_ref, alone)
    yield from alone


class _Origins:
    """What the findings of a report say of the origins of its models."""

    def __init__(self, report: Report) -> None:
        self._others: dict[str, Component] = {}
        self.weights = {each.model: each.weights for each in report.models}
        self.found = defaultdict[str, set[str]](set)
        for base in report.undeclared:
            self.found[base.model].add(base.base)
        for merge in report.merges:
            self.found[merge.model].update(merge.parts)
        self.contradicted = defaultdict[str, list[str]](list)
        for wrong in report.contradicted:
            self.contradicted[wrong.model].append(wrong.declared_base)

    def ancestors(self, model: ReportedModel) -> list[str]:
        """The bases of a model: those that are declared and found, and those that are found."""
        confirmed = {each.model for each in model.bases if each.is_declared}
        return sorted(confirmed | self.found[model.model])

    def other(self, model: str) -> Component:
        """A component in the pedigrees of others: one for all, since a base has many children."""
        if model not in self._others:
            self._others[model] = _other(model, self.weights.get(model))
        return self._others[model]


def _component(model: ReportedModel, origins: _Origins) -> Component:
    from cyclonedx.model.component import Component, ComponentType, Pedigree

    ancestors = origins.ancestors(model)
    variants = sorted({each.model for each in model.bases} - {*ancestors})
    group, _, name = one_line(model.model).rpartition("/")
    pedigree = None
    if model.sentences:
        said = [*model.sentences, *((ORIGIN,) if model.bases else ())]
        pedigree = Pedigree(
            ancestors=map(origins.other, ancestors),
            variants=map(origins.other, variants),
            notes=" ".join(f"{one_line(each).rstrip('.')}." for each in said),
        )
    return Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        bom_ref=f"model:{one_line(model.model)}",
        group=group or None,
        name=name,
        hashes=_hashes(model.weights),
        licenses=_licenses(model.license),
        pedigree=pedigree,
        properties=_properties(_figures(model, origins)),
        external_references=_fingerprint(model),
    )


def _other(model: str, weights: str | None) -> Component:
    from cyclonedx.model.component import Component, ComponentType

    group, _, name = one_line(model).rpartition("/")
    return Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        group=group or None,
        name=name,
        hashes=_hashes(weights),
    )


def _figures(model: ReportedModel, origins: _Origins) -> Iterator[tuple[str, str]]:
    if model.verdict is not None:
        yield "verdict", model.verdict
    yield "parameters", str(model.parameters)
    yield "stated_by", model.stated_by
    if model.file_bytes is not None:
        yield "file_bytes", str(model.file_bytes)
    for declared in model.declared:
        yield "declared_base", declared
    for wrong in origins.contradicted[model.model]:
        yield "contradicted_base", wrong
    for each in model.bases:
        yield (
            "shares_lines_with",
            f"{each.model}: {each.share:.4f} of lines, {each.verdict}, P 10^{each.log10_p:.0f}",
        )


def _properties(figures: Iterable[tuple[str, str]]) -> list[Property]:
    from cyclonedx.model import Property

    return [Property(name=f"modelkin:{name}", value=one_line(value)) for name, value in figures]


def _hashes(weights: str | None) -> list[HashType]:
    """The digest of all weights, if anybody stated it: of tensors, in whatever files they are."""
    from cyclonedx.model import HashAlgorithm, HashType

    if weights is None:
        return []
    return [HashType(alg=HashAlgorithm.SHA_256, content=weights.removeprefix("sha256:"))]


def _licenses(declared: str | None) -> list[License]:
    """The declared licence: an SPDX identifier where it is one, else a name."""
    from cyclonedx.model.license import DisjunctiveLicense, LicenseAcknowledgement
    from cyclonedx.spdx import fixup_id

    if not declared:
        return []
    known = fixup_id(declared)
    name = None if known else one_line(declared)
    return [
        DisjunctiveLicense(id=known, name=name, acknowledgement=LicenseAcknowledgement.DECLARED)
    ]


def _fingerprint(model: ReportedModel) -> list[ExternalReference]:
    """Where the fingerprint is, by which anyone may measure again, with its digest."""
    from cyclonedx.model import (
        ExternalReference,
        ExternalReferenceType,
        HashAlgorithm,
        HashType,
        XsUri,
    )

    digest = HashType(alg=HashAlgorithm.SHA_256, content=model.digest.removeprefix("sha256:"))
    address = XsUri(f"/v1/fingerprints/{quote_whole_name(model.model)}")
    return [ExternalReference(type=ExternalReferenceType.EVIDENCE, url=address, hashes=[digest])]
