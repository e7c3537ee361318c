"""What a sync has found of each model, and the result of its job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.hubs.ingestion.files.checkpoint_fetcher import revision_label
from app.hubs.ingestion.fingerprinting import FoundFingerprint
from app.hubs.ingestion.results import IngestResult, PreparedModel
from app.hubs.ingestion.selector import Selection
from app.infra.errors import Unavailable
from modelkin.errors import ModelkinError

__all__ = [
    "SyncedModel",
    "difference_facts",
    "fingerprint_result",
    "pipeline_result",
    "refusal_of",
    "superseded_error",
]


@dataclass(frozen=True, slots=True)
class SyncedModel:
    """A model, or a component of a pipeline, as its sync found it.

    Attributes:
        made: the findings about it.
        selection: its new supports; None if they have not changed, or none can be made.
        prepared: these, ready to be stored.
        notes: remarks for people.
        fingerprint: what is known of its fingerprint; None where its source asks for none.
    """

    made: IngestResult
    selection: Selection | None = None
    prepared: tuple[PreparedModel, ...] = ()
    notes: tuple[str, ...] = ()
    fingerprint: FoundFingerprint | None = None

    @property
    def component(self) -> str | None:
        """The name of the component; None for a whole model."""
        return self.made.revision.component


def refusal_of(error: ModelkinError) -> dict[str, str]:
    """The reason why there is no support, as rows and results of jobs have it."""
    return {"code": error.code, "detail": str(error)}


def superseded_error(name: str) -> Unavailable:
    """The error of a sync of a model that another one has overtaken."""
    return Unavailable(f"another sync of {name} has ended meanwhile: this one runs again")


def pipeline_result(
    results: Mapping[str | None, Mapping[str, Any]],
    refused: Mapping[str, Mapping[str, Any]],
    notes: Sequence[str],
    made: IngestResult,
) -> dict[str, Any]:
    """The result of a job about a pipeline: that of each component, and of the first for pages."""
    outcomes = {result["outcome"] for result in results.values()}
    ranks = ("stored", "unchanged", "fingerprint")
    first = min(results.values(), key=lambda result: ranks.index(result["outcome"]))
    return {
        "outcome": next(each for each in ranks if each in outcomes),
        "space": first["space"],
        "model": first["model"],
        "revision": made.revision.revision,
        "components": {name: dict(result) for name, result in results.items() if name is not None}
        | {name: {"outcome": "refused", **error} for name, error in refused.items()},
        "notes": list(notes),
        "moved_from": made.moved_from,
    }


def difference_facts(
    made: IngestResult, prepared: Sequence[PreparedModel], selection: Selection
) -> dict[str, Any]:
    """Describe the difference: its space, base, size and caveat, or why there is none."""
    for part in prepared:
        if part.importance == "delta":
            base = made.base.revision
            return {
                "space": part.placed.space.name,
                "base": made.base.name if base is None or made.adapter else revision_label(base),
                "support_size": part.content.support.k,
                **({} if selection.rounding is None else {"note": selection.rounding}),
            }
    return {"reason": selection.reason}


def fingerprint_result(part: SyncedModel, refusal: ModelkinError) -> dict[str, Any]:
    """The result of a job about a model that has a fingerprint, and no support.

    Args:
        refusal: why it has none.
    """
    return {
        "outcome": "fingerprint",
        "space": None,
        "model": part.made.name,
        "revision": part.made.revision.revision,
        "refused": refusal_of(refusal),
        "notes": list(part.notes),
        "moved_from": part.made.moved_from,
    }
