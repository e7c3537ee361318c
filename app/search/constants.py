"""The constants of a space: tensors that comparisons leave out, since no training changed them.

:mod:`modelkin.core.similarity.constants` has the rule. They are derived from a few supports of the
space, in each process, and follow its version: a process that starts again finds the same.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.infra.db.database import Reader
from app.infra.errors import SpaceNotFound, Unavailable
from app.infra.storage.guarded_maps import intact_maps
from app.models.catalog.reader import ModelReader, Subject
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories.candidates import candidates_by_id
from app.models.index.change_feed import ChangeFeed
from app.models.index.registry import IndexRegistry
from app.models.index.space_index import Snapshot
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.layouts import find_layout, tensor_sizes
from modelkin.core.gaps import Gaps
from modelkin.core.kernels.reference.search import mix64
from modelkin.core.layout import Layout
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.constants import ConstantFinder, Witness
from modelkin.core.similarity.tensor_probe import TensorProbe

__all__ = ["LATE", "NO_CONSTANTS", "Constants", "SpaceConstants", "tensors_in_words"]

log = logging.getLogger(__name__)

_DRAWN: Final = 12
"""Models that are compared with each other, of a space of any size."""
_FARTHEST: Final = 6
"""Models that are least like three of these: strangers among many kin."""
_MAX_SEARCHED: Final = 1 << 14
"""The largest space that is searched for these."""
_STALE: Final = 64
"""In a larger space the sample is drawn again after one change for each 64 models."""
_MAX_SPACES, _MAX_BYTES = 64, 256 << 20
"""Spaces whose samples are kept, and their bytes in all."""
_MAX_SHARE: Final = 0.99
"""The largest share of constants with which signatures say anything of the rest."""
_IN_VIEW: Final = "constants"
_FETCH_S: Final = 2.0
"""Seconds that an answer waits for supports that are not on this machine yet."""


LATE: Final = (
    "supports have not come to this machine yet, by which tensors would be known that no training "
    "changed: ask again"
)


@dataclass(frozen=True)
class Constants:
    """Tensors that comparisons leave out.

    Attributes:
        layout: the layout of the space; None where no tensor is left out.
        tensors: whether each tensor is left out, shape ``(tensors,)``.
        share: the share of the indices of supports that lies in them, below 1.
        late: whether supports that may show more have not come to this machine yet.
    """

    layout: Layout | None = None
    tensors: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    share: float = 0.0
    late: bool = False

    def __bool__(self) -> bool:
        return bool(self.tensors.any())

    def __or__(self, other: Constants) -> Constants:
        """The union; late where one of them is."""
        if self is other:
            return self
        late = self.late or other.late
        if not (self and other):
            return replace(self or other, late=late)
        share = max(self.share, other.share)
        return Constants(self.layout, self.tensors | other.tensors, share, late)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the tensors that are left out, in the order of the layout."""
        if self.layout is None:
            return ()
        places = np.flatnonzero(self.tensors).tolist()
        return tuple(self.layout.tensors[place].name for place in places)

    @cached_property
    def gaps(self) -> Gaps:
        """The parameters that are left out."""
        return Gaps() if self.layout is None else self.layout.gaps(self.names)

    def note(self, space: SpaceRecord, *, estimated: bool) -> str | None:
        """The caveat of a space, and the tensors that an answer leaves out.

        Args:
            space: the space.
            estimated: whether some of the answer comes from signatures, which cannot leave them
                out.
        """
        said = [] if space.note is None else [space.note]
        if self:
            left_out = tensors_in_words(self.names)
            said.append(f"the comparison leaves out {left_out}, which no training changed")
        if self and estimated:
            said.append(
                "signatures cannot, and estimates take it that both models hold as much of it"
            )
        if self.late:
            said.append(LATE)
        return "; ".join(said) or None

    def share_of(self, packed: PackedSupport | None) -> float:
        """The share of a support's indices that lies in them; of supports here without one."""
        if packed is None or not self:
            return self.share
        return min(_MAX_SHARE, packed.count_in(self.gaps) / packed.k)

    def without(self, counts: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
        """Figures of tensors, in the last dimension, with zeros for those that are left out."""
        return np.where(self.tensors, counts.dtype.type(0), counts) if self else counts


NO_CONSTANTS: Final = Constants()


def tensors_in_words(names: Sequence[str]) -> str:
    """Name one tensor, in ASCII as headers need it, and count the others."""
    return (
        f"tensor {names[0]!a}" if len(names) == 1 else f"{len(names)} tensors ({names[0]!a}, ...)"
    )


@dataclass(slots=True)
class _Answer:
    """What one view of the database has been told of a space.

    Attributes:
        constants: what was left out; None before the first question.
        subjects: what those that were asked about are known by.
    """

    constants: Constants | None = None
    subjects: dict[Hashable, PackedSupport | None] = field(default_factory=dict)


class SpaceConstants:
    """Finds the constants of spaces, and keeps them until the spaces change.

    Args:
        reader: reads supports.
        indexes: the models of all spaces.
    """

    def __init__(self, reader: ModelReader, indexes: IndexRegistry) -> None:
        self._reader = reader
        self._indexes = indexes
        self._lock = threading.Lock()
        self._samples: OrderedDict[int, _Sample] = OrderedDict()

    def of(self, session: Reader, space: SpaceRecord, *subjects: Subject) -> Constants:
        """The constants of a space, with those that subjects show beside some of its models.

        All comparisons of one view of the database leave out the same tensors, and more only where
        another subject shows more: S, chance and kappa of an answer are of the same parameters,
        whatever comes to this machine, or to the space, while it is made.

        Raises:
            Unavailable: a support's file was cut meanwhile.
        """
        given = sum(each.model is None and each.packed is not None for each in subjects)
        if space.layout_digest is None or space.kind == "subspaces" or space.supports + given < 2:
            return NO_CONSTANTS
        answers: dict[Hashable, _Answer] = session.info.setdefault(_IN_VIEW, {})
        answer = answers.setdefault((space.id, space.version), _Answer())
        asked = dict(_known_by(each) for each in subjects if each.packed is not None)
        if answer.constants is None or not asked.keys() <= answer.subjects.keys():
            before = answer.constants or NO_CONSTANTS
            answer.constants = self._of(session, space, subjects) | before
            answer.subjects |= asked
        return answer.constants

    def _of(self, session: Reader, space: SpaceRecord, subjects: Sequence[Subject]) -> Constants:
        sample = self._sample_of(session, space)
        if sample is None:
            return NO_CONSTANTS

        def layout() -> Layout:
            """The layout, whose names and shapes are read only where two strangers agree."""
            if sample.layout is None:
                sample.layout = find_layout(session, space)
            if sample.layout is None:
                raise SpaceNotFound(f"space {space.name!r} was deleted meanwhile")
            return sample.layout

        with sample.lock:
            if sample.is_stale(space):
                self._draw(session, space, sample, layout)
                self._evict(space.id)
            found = replace(sample.constants, late=sample.late)
            for subject in subjects:
                found = found | sample.with_subject(subject, layout)
            return found

    def _sample_of(self, session: Reader, space: SpaceRecord) -> _Sample | None:
        with self._lock:
            sample = self._samples.get(space.id)
            if sample is not None:
                self._samples.move_to_end(space.id)
                return sample
        sizes = tensor_sizes(session, space)
        if sizes is None:
            return None
        with self._lock:
            return self._samples.setdefault(space.id, _Sample(sizes))

    def _evict(self, used: int) -> None:
        """Forget the samples that were not used for longest where all take too much memory."""
        with self._lock:
            sizes = {space_id: sample.nbytes for space_id, sample in self._samples.items()}
            total = sum(sizes.values())
            for space_id, size in sizes.items():
                if total <= _MAX_BYTES and len(self._samples) <= _MAX_SPACES:
                    break
                if space_id != used:
                    del self._samples[space_id]
                    total -= size

    def _draw(
        self, session: Reader, space: SpaceRecord, sample: _Sample, layout: Callable[[], Layout]
    ) -> None:
        """Draw the models of a sample, and read those that are new in it."""
        feed = ChangeFeed(session, space.id)
        snapshot = self._indexes.snapshot_at(space.id, space.signature, space.version, feed)
        ids = self._drawn_ids(session, space, snapshot)
        names = {each.id: each.name for each in candidates_by_id(session, space, ids)}
        found = self._reader.find(session, space, names.values())
        models = [found[names[i]] for i in ids if names.get(i) in found]
        with intact_maps():
            witnesses, late = self._witnesses(space, sample, models)
            sample.update(space, snapshot, witnesses, layout)
            sample.late = late

    def _drawn_ids(self, session: Reader, space: SpaceRecord, snapshot: Snapshot) -> list[int]:
        """The ids of some models that may have a support, whatever order they came in."""
        eligible = np.flatnonzero(snapshot.alive & (snapshot.contents != 0))
        ids = snapshot.ids[eligible]
        if ids.size > _DRAWN:
            keys = mix64(ids.astype(np.uint64))
            drawn = np.argpartition(keys, _DRAWN)[:_DRAWN]
            drawn = drawn[np.argsort(keys[drawn])]
        else:
            drawn = np.argsort(ids)
        chosen: list[int] = ids[drawn].tolist()
        if _DRAWN < ids.size <= _MAX_SEARCHED:
            few = self._reader.values(session, space, chosen[:3])
            alike = np.max([snapshot.counts(each)[eligible] for each in few.values()], axis=0)
            far = ids[np.lexsort((ids, alike))[: _FARTHEST + _DRAWN]].tolist()
            chosen += [i for i in far if i not in chosen][:_FARTHEST]
        return chosen

    def _witnesses(
        self, space: SpaceRecord, sample: _Sample, models: Sequence[ModelRecord]
    ) -> tuple[dict[Hashable, Witness], bool]:
        """The models whose supports could be read, and whether others may come later."""
        families = _families(models)
        missing = [model for model in models if _key(model) not in sample.witnesses]
        # Others wait for the sample, so once a bucket was late it is not waited for again.
        within = 0.0 if sample.late else _FETCH_S
        late = self._reader.fetch(missing, within) if missing else set()
        found: dict[Hashable, Witness] = {}
        for model, family in zip(models, families, strict=True):
            known = sample.witnesses.get(_key(model))
            if known is not None:
                found[_key(model)] = Witness(known.support, family)
                continue
            if model.blob_key is None or model.blob_key in late:
                continue
            try:
                packed = self._reader.find_packed(space, model, mapped=True)
            except Unavailable as error:  # one damaged file must not fail the whole answer
                log.error("%s", error)
                continue
            if packed is not None:
                found[_key(model)] = Witness(sample.probe.read(packed), family)
        return found, bool(late)


class _Sample:
    """Some models of a space, and the constants that they show."""

    def __init__(self, sizes: npt.NDArray[np.integer[Any]]) -> None:
        self.lock = threading.Lock()
        self.layout: Layout | None = None
        self.late = False
        self.probe = TensorProbe.of(sizes)
        self.witnesses: Mapping[Hashable, Witness] = {}
        self.constants = NO_CONSTANTS
        self._finder = ConstantFinder(self.probe)
        self._version, self._drawn_at, self._models = -1, -1, 0
        self._shown: dict[Hashable, Constants] = {}

    @property
    def nbytes(self) -> int:
        """The bytes that the looked-at parts of its supports take."""
        return sum(witness.support.words.nbytes for witness in self.witnesses.values())

    def is_stale(self, space: SpaceRecord) -> bool:
        """Whether the space has changed since, as far as it matters, or supports were late."""
        if self.late:
            return True
        if self._models <= _MAX_SEARCHED:
            return space.version > self._version
        return space.version - self._version > self._models // _STALE

    def update(
        self,
        space: SpaceRecord,
        snapshot: Snapshot,
        witnesses: Mapping[Hashable, Witness],
        layout: Callable[[], Layout],
    ) -> None:
        """Find the constants that these models show."""
        self.witnesses = witnesses
        self._version, self._models = max(space.version, snapshot.version), len(snapshot)
        found = self._finder.find(witnesses, lambda: layout().shapes)
        self.constants = self._named(found, layout)
        self._shown = {}

    def with_subject(self, subject: Subject, layout: Callable[[], Layout]) -> Constants:
        """The constants, with those that a subject shows; what a stored model shows is kept."""
        if subject.packed is None:
            return self.constants
        key = None if subject.model is None else _key(subject.model)
        if key in self.witnesses:
            return self.constants
        if key is None or key not in self._shown:
            probed = self.probe.read(subject.packed)
            shown = self._finder.find_with(probed, self.witnesses, lambda: layout().shapes)
            if not shown.any():
                found = self.constants
            else:
                known = self.constants.tensors if self.constants else np.zeros_like(shown)
                found = self._named(shown | known, layout)
            if key is None:
                return found
            self.constants = self._shown[key] = found
        return self.constants

    def _named(self, tensors: npt.NDArray[np.bool_], layout: Callable[[], Layout]) -> Constants:
        if not tensors.any():
            return NO_CONSTANTS
        counts = [each.support.counts * self.probe.scale for each in self.witnesses.values()]
        shares = [float(each[tensors].sum() / each.sum()) for each in counts if each.any()]
        share = min(_MAX_SHARE, sum(shares) / len(shares)) if shares else 0.0
        return Constants(layout(), tensors, share)


def _known_by(subject: Subject) -> tuple[Hashable, PackedSupport | None]:
    """What a subject is known by within one view, and what has to be kept that it stays so."""
    if subject.model is None:
        return id(subject.packed), subject.packed
    return _key(subject.model), None


def _key(model: ModelRecord) -> Hashable:
    """What a model's support is known by: every new content has a new id."""
    return model.id, model.content_id


def _families(models: Sequence[ModelRecord]) -> list[str]:
    """What each model is declared to come from, as far as these models say: a base, or itself."""
    bases = {model.name: model.base_model for model in models}
    roots = []
    for model in models:
        name, seen = model.name, {model.name}
        while (base := bases.get(name)) is not None and base not in seen:
            seen.add(base)
            name = base
        roots.append(name)
    return roots
