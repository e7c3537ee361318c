"""Merges of a space: parties average their models through the service, which opens nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from modelkin._moments import Moment
from modelkin._printing import Printed
from modelkin.types.vocabulary import MergeState

__all__ = ["Merge", "MergeInfo", "MergeParty", "Merged"]


@dataclass(frozen=True, slots=True)
class MergeParty:
    """A party of a merge.

    Attributes:
        name: the name of a model, or of a neutral party.
        joined: whether it has joined.
        neutral: whether it aggregates alone.
        may_aggregate: whether it may hold a shard.
        weight: None until it is known, and of a neutral party.
        left_out: why it does not count; None while it does.
        decided: whether it found all cells of this attempt good, as an aggregator.
    """

    name: str
    joined: bool
    neutral: bool
    may_aggregate: bool
    weight: float | None
    left_out: str | None
    decided: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MergeInfo(Printed):
    """A merge without its parties.

    Attributes:
        name: unique in its space.
        space: the name of the space whose models are averaged.
        state: ``joining``, ``sending``, ``combining``, ``done`` or ``failed``.
        attempt: 0, or 1 after members were left out.
        revision: grows with every change.
        request: what it was created with.
        digest: the digest of the roster, in hexadecimal, which parties compare; None while it is
            joined.
        failure: why it failed.
        due_at: when the present state ends by itself.
        ended_at: when it was done, or failed.
    """

    _listed: ClassVar[tuple[str, ...]] = ("name", "state", "created_at", "due_at", "failure")
    name: str
    space: str
    state: MergeState
    attempt: int
    revision: int
    request: Mapping[str, Any] = field(hash=False)
    digest: str | None
    failure: str | None
    created_at: Moment
    due_at: Moment | None
    ended_at: Moment | None

    @property
    def finished(self) -> bool:
        """Whether the merge is done, or has failed."""
        return self.ended_at is not None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Merge(MergeInfo):
    """A merge.

    Attributes:
        plan: M, A and all else that the parties agree on.
        parties: members and neutral parties, each with its state.
        awaited: the parties that the present state waits for.
        roster: plan, parties and keys, once joining has ended.
        peak: R of concealed sums.
    """

    plan: Mapping[str, Any] = field(hash=False)
    parties: tuple[MergeParty, ...]
    awaited: tuple[str, ...]
    roster: Mapping[str, Any] | None = field(hash=False)
    peak: float | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Merged(Printed):
    """The end of a merge for one of its parties.

    Attributes:
        merge: as it ended.
        digest: the digest of the roster; all parties have the same.
        members: the names of those whose models were averaged.
        values: the average, shape ``(M,)``; None where it was written to a file.
    """

    merge: Merge
    digest: str
    members: tuple[str, ...]
    values: npt.NDArray[np.float32] | None = None
