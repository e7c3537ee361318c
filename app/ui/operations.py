"""The words of pages of operations: kinds of jobs, durations, and advice about errors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

__all__ = ["ADVICE", "duration", "kind_in_words", "what_to_do"]

_KINDS: Final[Mapping[str, str]] = {
    "clustering": "clustering",
    "backfill": "sync of a model, for its fingerprint",
    "ingest": "sync of a model",
    "map": "map",
    "poll": "poll of a source",
    "rebuild_buckets": "rebuilding of buckets",
}

ADVICE: Final[Mapping[str, str]] = {
    "hub_refused": "Give the source a token that may read there, or ask its owner for access.",
    "hub_not_found": "Compare the address of the source and the name on the hub. A private model "
    "looks the same without a token.",
    "hub_unavailable": "Nothing to do: it is tried again, and the next poll finds the rest.",
    "hub_too_slow": "Nothing to do: the next poll tries again.",
    "hub_untrue": "Look whether the address of the source is really that of such a hub.",
    "egress_refused": "The service may not call this address. Where it is one of your own network, "
    "your operator allows it with MODELKIN_EGRESS_ALLOW.",
    "invalid_checkpoint": "Mend the file on the hub; the next push there starts another sync.",
    "space_mismatch": "Choose another space for the source, or leave out the tensors that differ.",
    "invalid_layout": "Choose another space for the source, or leave out the tensors that differ.",
    "storage_full": "Ask your operator for more room, or delete what is not needed.",
    "quota_exceeded": "Delete what is not needed, or ask your operator for a larger quota.",
    "unavailable": "Try again in a while; if it lasts, your operator finds the cause in the log.",
    "timed_out": "Ask for less, such as fewer models, or let your operator give jobs more time.",
    "internal_error": "This is a bug: your operator finds it in the log.",
    "job_cancelled": "Nothing to do. The same request makes another job.",
    "model_not_found": "A model was deleted meanwhile: ask again.",
    "space_not_found": "The space was deleted meanwhile.",
}
"""Advice about the error of a job, by the ``code`` of the error."""

_UNITS: Final = ((86400, "day"), (3600, "hour"), (60, "minute"))


def kind_in_words(kind: str) -> str:
    """The work of jobs of a kind, in words."""
    return _KINDS.get(kind, kind.replace("_", " "))


def what_to_do(error: Mapping[str, Any] | None) -> str | None:
    """The advice about the error of a job or of a source; None if there is none."""
    return None if error is None else ADVICE.get(error.get("code", ""))


def duration(length: timedelta) -> str:
    """A length of time in one or two units: ``3.2 s``, ``2 minutes``, ``3 hours``."""
    seconds = max(length.total_seconds(), 0.0)
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}s"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
