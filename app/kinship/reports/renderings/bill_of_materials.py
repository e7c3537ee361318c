"""A report as a bill of materials: CycloneDX, one component a model, with its pedigree.

Ancestors are bases, as a report counts them; variants are other models that share lines, of which
nothing says what came first. The library knows no model cards, so figures stand as properties.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from app.infra.extras import DISTRIBUTION
from modelkin._terminal_text import one_line
from modelkin._validation import quote_whole_name
from modelkin.core.fingerprints.relations.relation import ORIGIN
from modelkin.errors import MissingExtra
from modelkin.types.reports import Report, ReportedModel

if TYPE_CHECKING:
    from cyclonedx.model import ExternalReference, HashType, Property
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component
    from cyclonedx.model.license import License

__all__ = ["bill_of_materials"]

_HUB: Final = "hub"
"""What names the hub within the document."""
_AT_ONCE: Final = 50
"""Models of one document of the library, which looks through all of them for each: each of 2,000
takes twice as long."""
_MOST_KEPT: Final = 100_000
"""Models of pedigrees that are kept as they are written, half a kilobyte each."""


def bill_of_materials(report: Report) -> Iterator[bytes]:
    """The document of a report, piece by piece: CycloneDX 1.6 as JSON, in UTF-8.

    Raises:
        MissingExtra: the library is not installed.
    """
    try:
        import cyclonedx  # noqa: F401 - asked for before the first piece
    except ImportError as error:
        raise MissingExtra("cyclonedx-python-lib", "cyclonedx", of=DISTRIBUTION) from error
    return _pieces(report)


def _pieces(report: Report) -> Iterator[bytes]:
    """The parts of documents of a few models each, put together."""
    origins, left, refs = _Origins(report), iter(report.models), list[str]()
    yield _text(_head(report)).removesuffix("}").encode() + b',\n"components":['
    while some := list(islice(left, _AT_ONCE)):
        parts = _components(some, origins)
        yield (",\n" if refs else "\n").encode() + ",\n".join(map(_text, parts)).encode()
        refs += [each["bom-ref"] for each in parts]
    yield b'\n],\n"dependencies":[\n'
    alone: list[dict[str, Any]] = [{"ref": each} for each in refs]
    yield ",\n".join(map(_text, [{"ref": _HUB, "dependsOn": sorted(refs)}, *alone])).encode()
    yield b"\n]}\n"


def _head(report: Report) -> dict[str, Any]:
    """What a document says of itself."""
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.tool import ToolRepository

    tool = Component(name="modelkin", version=report.service, type=ComponentType.APPLICATION)
    subject = Component(
        name=one_line(report.owner),
        bom_ref=_HUB,
        type=ComponentType.DATA,
        description=report.opening,
    )
    figures = [(f"finding:{n}", line) for n, line in enumerate(report.headlines, 1)]
    if left := report.size.models - len(report.models):
        figures.append(("models:left_out", str(left)))
    head = _written(
        Bom(
            serial_number=UUID(report.id),
            metadata=BomMetaData(
                timestamp=report.until,
                tools=ToolRepository(components=[tool]),
                component=subject,
                properties=_properties(figures),
            ),
        )
    )
    return {name: value for name, value in head.items() if name != "dependencies"}


def _written(bom: Bom) -> dict[str, Any]:
    """A document as the library writes it."""
    from cyclonedx.output.json import JsonV1Dot6

    document: dict[str, Any] = json.loads(JsonV1Dot6(bom).output_as_string())
    return document


def _text(part: dict[str, Any]) -> str:
    return json.dumps(part, ensure_ascii=False, separators=(",", ":"))


class _Origins:
    """What the findings of a report say of the origins of its models."""

    def __init__(self, report: Report) -> None:
        self._others: dict[str, dict[str, Any]] = {}
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

    def variants(self, model: ReportedModel) -> list[str]:
        """Other models that share lines."""
        return sorted({each.model for each in model.bases}.difference(self.ancestors(model)))

    def others(self, models: Iterable[str]) -> Mapping[str, dict[str, Any]]:
        """What stands of models in the pedigrees of others, as the library writes it."""
        if len(self._others) >= _MOST_KEPT:
            self._others.clear()
        left = sorted(set(models) - self._others.keys())
        for begin in range(0, len(left), _AT_ONCE):
            some = {_ref(each): each for each in left[begin : begin + _AT_ONCE]}
            for part in _parts(_other(each, self.weights.get(each)) for each in some.values()):
                self._others[some[part.pop("bom-ref")]] = part
        return self._others


def _components(models: Sequence[ReportedModel], origins: _Origins) -> list[dict[str, Any]]:
    """The components of models, as the library writes them, with their pedigrees.

    The library compares all of a pedigree, for each, many times: so its parts are written once.
    """
    by_ref = {_ref(each.model): each for each in models}
    parts = _parts(_component(each, origins) for each in models)
    pedigrees = {
        ref: (origins.ancestors(each), origins.variants(each)) for ref, each in by_ref.items()
    }
    others = origins.others(each for both in pedigrees.values() for some in both for each in some)
    for part in parts:
        for name, some in zip(("ancestors", "variants"), pedigrees[part["bom-ref"]], strict=True):
            if some and "pedigree" in part:
                part["pedigree"][name] = [others[each] for each in some]
    return parts


def _parts(components: Iterable[Component]) -> list[dict[str, Any]]:
    from cyclonedx.model.bom import Bom

    parts: list[dict[str, Any]] = _written(Bom(components=components)).get("components", [])
    return parts


def _ref(model: str) -> str:
    return f"model:{quote_whole_name(model)}"


def _component(model: ReportedModel, origins: _Origins) -> Component:
    from cyclonedx.model.component import Component, ComponentType, Pedigree

    group, _, name = one_line(model.model).rpartition("/")
    pedigree = None
    if model.sentences:
        said = [*model.sentences, *((ORIGIN,) if model.bases else ())]
        pedigree = Pedigree(notes=" ".join(f"{one_line(each).rstrip('.')}." for each in said))
    return Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        bom_ref=_ref(model.model),
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
        bom_ref=_ref(model),
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
