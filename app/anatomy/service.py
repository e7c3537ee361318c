"""The use cases of anatomies: which of a tenant's models a checkpoint comes from.

The finding index proposes models by few keys; their whole fingerprints are read, one after the
other, and the core compares them. What is no kin is let go at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from app.anatomy.records import ModelAnatomy, Relative, Relatives, TensorPairs, edge_to
from app.fingerprints.finding.index import FindingIndex
from app.fingerprints.finding.listing import found_by, query_of
from app.fingerprints.finding.pairs import are_kin_by
from app.fingerprints.records import FingerprintRecord
from app.fingerprints.service import FingerprintService
from app.infra.db.database import Reader
from app.infra.deadlines import NEVER, Deadline
from app.tenancy.auth.records import Tenant
from modelkin.core.fingerprints.anatomy import anatomy_of
from modelkin.core.fingerprints.comparison import MODEL_LIMIT, Comparison, compare
from modelkin.core.fingerprints.fingerprint import Fingerprint

__all__ = [
    "LEAST_FOUND",
    "MOST_RELATIVES",
    "AnatomyService",
    "Subject",
    "relative_to",
]

Subject: TypeAlias = FingerprintRecord | Fingerprint
"""A stored fingerprint, by its record, or one that is not stored."""


LEAST_FOUND: Final = 20
"""The models of a round of the index whose whole fingerprints are compared."""
MOST_RELATIVES: Final = 100
"""The most relatives of an answer."""
_SHOWN: Final = -3.0
"""The decimal logarithm of the expected number of strangers up to which a relative is shown: such
are listed without a verdict, and stored nowhere."""
_READ_AT_ONCE: Final = 8
_BYTES_OF_A_TENSOR: Final = 2000
"""Memory of a tensor with its names, as read and as compared."""
_BYTES_OF_A_KEY: Final = 100
"""Memory of a key, its owner and where it meets others."""


@dataclass(frozen=True, eq=False)
class _Asked:
    """A checkpoint among the models that were found for it."""

    record: FingerprintRecord | None
    fingerprint: Fingerprint
    met: Sequence[tuple[FingerprintRecord, Comparison]]
    compared: int
    common: int
    truncated: bool
    is_whole: bool
    degraded: bool
    unrelated: tuple[int, ...]
    sharing: Mapping[int, int]


class AnatomyService:
    """Anatomies, relatives and pairs of tensors.

    Args:
        fingerprints: the stored fingerprints.
        index: proposes models by their keys.
    """

    def __init__(self, fingerprints: FingerprintService, index: FindingIndex) -> None:
        self._fingerprints = fingerprints
        self._index = index

    def anatomy(
        self,
        session: Reader,
        tenant: Tenant,
        subject: Subject,
        *,
        exclude: Collection[str] = (),
        beside: Collection[int] = (),
        deadline: Deadline = NEVER,
        reserve: Callable[[int], None] = lambda _: None,
    ) -> ModelAnatomy:
        """Find the models that the tensors of a checkpoint come from.

        Models whose files the service read stand before those that clients stated, unless they are
        the origin of a few tensors alone. The connection is given back while it computes.

        Args:
            subject: the checkpoint; a stored one is no parent of its own.
            exclude: names of models that are left out.
            beside: ids of fingerprints that are compared whether the index finds them or not,
                unless they have nothing but common keys of it.
            deadline: where it passes, what was compared until then is the answer, if there is any.
            reserve: waits for this much memory.

        Raises:
            FingerprintNotFound: the stored fingerprint is gone.
            TooMuch: the time was over before any model was compared.
            Unavailable: the index is being built, or there is no memory now.
            ClientLeft: the client has hung up.
        """
        asked = self._ask(session, tenant, subject, LEAST_FOUND, exclude, beside, deadline, reserve)
        kin = [(record, each) for record, each in asked.met if each.log10_p < MODEL_LIMIT]
        found = anatomy_of(
            asked.fingerprint,
            [each for _, each in kin],
            asked=asked.compared,
            preferred=[record.name for record, _ in kin if record.stated_by == "hub"],
            of_equals=_likely_bases(asked.record, [record for record, _ in kin]),
            made_from_it=_made_from(asked.record, [record for record, _ in kin]),
        )
        return ModelAnatomy(
            asked.record,
            found,
            {record.name: record for record, _ in kin},
            {each.model: each for _, each in kin},
            asked.compared,
            asked.common,
            asked.truncated,
            asked.is_whole,
            asked.degraded,
            asked.unrelated,
            asked.sharing,
        )

    def relatives(
        self,
        session: Reader,
        tenant: Tenant,
        subject: Subject,
        k: int = 10,
        *,
        exclude: Collection[str] = (),
        deadline: Deadline = NEVER,
        reserve: Callable[[int], None] = lambda _: None,
    ) -> Relatives:
        """The ``k`` models with the least probability of being strangers, each by itself.

        Args: as :meth:`anatomy`.

        Raises: as :meth:`anatomy`.
        """
        most = max(k, LEAST_FOUND)
        asked = self._ask(session, tenant, subject, most, exclude, (), deadline, reserve)
        shown = [
            relative_to(asked.fingerprint, asked.record, record, each, asked.compared)
            for record, each in asked.met
            if each.log10_p < MODEL_LIMIT or _log10_e(each, asked.compared) <= _SHOWN
        ]
        shown.sort(key=_nearest_first)
        return Relatives(
            asked.record,
            tuple(shown[:k]),
            asked.compared,
            asked.common,
            asked.truncated or len(shown) > k,
            asked.is_whole,
            asked.degraded,
        )

    def tensors(
        self,
        session: Reader,
        record: FingerprintRecord,
        other: FingerprintRecord,
        *,
        reserve: Callable[[int], None] = lambda _: None,
    ) -> TensorPairs:
        """Compare two stored models of a tenant tensor by tensor.

        Args:
            reserve: waits for this much memory.

        Raises:
            FingerprintNotFound: one of them is gone.
        """
        session.release()
        reserve(_memory_of(record) + _memory_of(other))
        first = self._fingerprints.read(session, record)
        second = self._fingerprints.read(session, other)
        session.release()
        found = compare(first, other.name, second)
        return TensorPairs(record, other, anatomy_of(first, [found]), found)

    def _ask(
        self,
        session: Reader,
        tenant: Tenant,
        subject: Subject,
        most: int,
        exclude: Collection[str],
        beside: Collection[int],
        deadline: Deadline,
        reserve: Callable[[int], None],
    ) -> _Asked:
        """Compare a checkpoint with the models that the index proposes."""
        if isinstance(subject, Fingerprint):
            record, own = None, subject
        else:
            record, own = subject, self._fingerprints.read(session, subject)
        named = self._fingerprints.find_many(session, tenant, exclude) if exclude else {}
        left_out = {each.id for each in named.values()} | ({record.id} if record else set())
        proposed = self._index.find(
            session, tenant.id, own, leave_out=left_out, limit=most, deadline=deadline
        )
        candidates = dict.fromkeys(each.id for each in proposed.candidates)
        ids = candidates | dict.fromkeys(beside)
        records = self._fingerprints.by_ids(session, tenant, [i for i in ids if i not in left_out])
        ordered = [records[each] for each in ids if each in records]
        met = list[tuple[FingerprintRecord, Comparison]]()
        unrelated, query, common = list[int](), query_of(own), proposed.common_keys
        read = 0
        for other, fingerprint in self._read(session, ordered, deadline, reserve):
            read += 1
            if other.id not in candidates and are_kin_by(
                common, query, found_by(fingerprint), limit=MODEL_LIMIT
            ):
                unrelated.append(other.id)
                continue
            found = compare(own, other.name, fingerprint)
            if found.log10_p < MODEL_LIMIT or _log10_e(found, proposed.compared) <= _SHOWN:
                met.append((other, found))
        is_whole = read == len(ordered)
        if not read and not is_whole:
            deadline.require(
                "comparing a checkpoint with the first model that has its lines",
                "ask /v1/fingerprints/{model}/tensors about two models, or try again later",
            )
        return _Asked(
            record,
            own,
            met,
            max(proposed.compared - len(left_out), read),
            proposed.common,
            proposed.truncated or not is_whole,
            is_whole,
            proposed.degraded,
            tuple(unrelated),
            proposed.sharing,
        )

    def _read(
        self,
        session: Reader,
        records: Sequence[FingerprintRecord],
        deadline: Deadline,
        reserve: Callable[[int], None],
    ) -> Iterator[tuple[FingerprintRecord, Fingerprint]]:
        """Read whole fingerprints, as far as there is time; no connection is held in between."""
        for begin in range(0, len(records), _READ_AT_ONCE):
            some = records[begin : begin + _READ_AT_ONCE]
            session.release()
            reserve(sum(map(_memory_of, some)))
            found = self._fingerprints.read_many(session, [record.id for record in some])
            session.release()
            for record in some:
                deadline.require_client()
                if deadline.passed():
                    return
                if record.id in found:
                    yield record, found.pop(record.id)


def relative_to(
    fingerprint: Fingerprint,
    record: FingerprintRecord | None,
    other: FingerprintRecord,
    found: Comparison,
    asked: int,
) -> Relative:
    """What a checkpoint is to one model, whatever other models are.

    Args:
        fingerprint: of the checkpoint.
        record: of it; None where it is not stored.
        other: of the model.
        found: of both.
        asked: how many models were asked.
    """
    alone = anatomy_of(fingerprint, [found], asked=asked)
    if not alone.parents:
        return Relative(other, None, (), found, _log10_e(found, asked), None)
    [parent] = alone.parents
    edge = edge_to(record, other, parent.verdict, parent.share_of_lines)
    return Relative(other, parent, alone.relations, found, parent.log10_e, edge)


def _made_from(record: FingerprintRecord | None, kin: Sequence[FingerprintRecord]) -> set[str]:
    """Those of a model's kin that are declared to be made from it, through any number of them."""
    own = set[str]() if record is None else {record.name}
    found, more = set[str](), own
    while more:
        declare = {each.name for each in kin if more & {*each.facts.base_models}}
        more = declare - found - own
        found |= more
    return found


def _likely_bases(record: FingerprintRecord | None, kin: Sequence[FingerprintRecord]) -> list[str]:
    """The names of declared bases, then of others with a date of publication, the oldest first."""
    declared = () if record is None else record.facts.base_models
    dated = [
        (each.name not in declared, published is None, published, each.name)
        for each in kin
        if (published := each.facts.published_at) is not None or each.name in declared
    ]
    return [name for *_, name in sorted(dated)]


def _nearest_first(relative: Relative) -> tuple[bool, float, float, str]:
    """By P; equal ones by share. Those without a verdict are the last."""
    found = relative.comparison
    return relative.parent is None, found.log10_p, -found.share, relative.record.name


def _log10_e(found: Comparison, asked: int) -> float:
    return found.log10_p + math.log10(max(asked, 1))


def _memory_of(record: FingerprintRecord) -> int:
    return _BYTES_OF_A_TENSOR * record.tensors + _BYTES_OF_A_KEY * record.keys
