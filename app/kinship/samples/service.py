"""``SampleService``: stores the samples of a tenant, and removes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from app.fingerprints.records import Facts, FingerprintPut, PreparedFingerprint
from app.fingerprints.service import FingerprintService
from app.infra.db.database import Database, Reader, Writer
from app.infra.errors import SpaceExists, SpaceNotFound
from app.kinship.samples.checkpoints import Checkpoint, checkpoints, fingerprint_of, names_of
from app.models.catalog.puts import Put
from app.models.catalog.repositories import models
from app.models.catalog.writer import ModelWriter
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.models.spaces.requested import RequestedSpace
from app.models.spaces.service import SpaceService
from app.models.spaces.stored_layouts import StoredLayout
from app.models.weights.service import WeightsService
from app.tenancy.auth.records import Tenant
from modelkin.core.importance import Importance
from modelkin.core.layout import Layout
from modelkin.core.selection.selection import select_support
from modelkin.core.support import Support
from modelkin.core.weights import TensorDigest, Weights, WeightsDigest
from modelkin.errors import ModelkinError
from modelkin.types.spaces import SignatureSpec

__all__ = ["SAMPLES", "PreparedSample", "SampleService"]

SAMPLES: Final = "samples"
"""The space of the samples, and the owner of most of their names."""
T = TypeVar("T")

_TAGS: Final = ("sample",)
_SIGNATURES: Final = SignatureSpec()


@dataclass(frozen=True, eq=False)
class PreparedSample:
    """A checkpoint, ready to be stored.

    Attributes:
        support: None for a checkpoint of another layout than the first one's.
    """

    checkpoint: Checkpoint
    layout: Layout
    support: Support | None
    weights: Weights
    fingerprint: PreparedFingerprint


class SampleService:
    """The use cases of samples."""

    def __init__(
        self,
        database: Database,
        spaces: SpaceService,
        writer: ModelWriter,
        weights: WeightsService,
        fingerprints: FingerprintService,
    ) -> None:
        self._database = database
        self._spaces = spaces
        self._writer = writer
        self._weights = weights
        self._fingerprints = fingerprints

    def find(self, session: Reader, tenant: Tenant) -> SpaceRecord | None:
        """The space of the samples; None where there is none, or where it holds other models."""
        space = spaces.find_space(session, tenant, SAMPLES)
        if (
            space is None
            or len(models.find_models(session, space, names_of(SAMPLES))) < space.models
        ):
            return None
        return space

    def prepare(self) -> Sequence[PreparedSample]:
        """Make the checkpoints, and all that is stored of them: a second or two."""
        made = list(checkpoints(SAMPLES))
        first = _layout_of(made[0])
        return [self._prepared(each, first) for each in made]

    def store(self, tenant: Tenant, samples: Sequence[PreparedSample]) -> None:
        """Store all of them, in a space of their own, or nothing.

        Raises:
            SpaceExists: the tenant has a space of this name.
            QuotaExceeded: the tenant has no room left for them.
        """
        with self._database.writing() as session:
            terms = _space_of(samples[0].layout)
            space, is_new = self._spaces.create(session, tenant, SAMPLES, terms)
            if not is_new:
                raise SpaceExists(f"there is already a space {SAMPLES!r}: delete it first")
        try:
            puts = self._puts(space, samples)
            with self._database.writing() as session:
                self._store_models(session, space, samples, puts)
                stored = [_fingerprint_put(each) for each in samples]
                _require_all(self._fingerprints.put_each(session, tenant, stored))
        except ModelkinError:
            with self._database.writing() as session:
                self._spaces.delete(session, space)
            raise

    def remove(self, session: Writer, tenant: Tenant) -> None:
        """Delete the space of the samples, and their fingerprints.

        Raises:
            SpaceNotFound: there are no samples, or their space holds other models, too.
        """
        space = self.find(session, tenant)
        if space is None:
            raise SpaceNotFound(f"there is no space {SAMPLES!r} of samples alone")
        self._spaces.delete(session, space)
        for name in self._fingerprints.find_many(session, tenant, names_of(SAMPLES)):
            self._fingerprints.delete(session, tenant, name)

    def _prepared(self, made: Checkpoint, first: Layout) -> PreparedSample:
        layout = _layout_of(made)
        return PreparedSample(
            made,
            layout,
            _support_of(made, layout) if layout == first else None,
            _weights_of(made),
            self._fingerprints.prepare(fingerprint_of(made.weights)),
        )

    def _puts(self, space: SpaceRecord, samples: Sequence[PreparedSample]) -> list[Put]:
        """Write the supports, and return what is to be recorded of them."""
        written = [each for each in samples if each.support is not None]
        with self._database.reading() as session:
            supports = [(s.checkpoint.name, s.support) for s in written if s.support is not None]
            contents = self._writer.prepare_each(session, space, supports)
        return [
            Put(
                sample.checkpoint.name,
                content,
                tags=_TAGS,
                base_model=next(iter(sample.checkpoint.bases), None),
            )
            for sample, content in zip(written, _require_all(contents), strict=True)
        ]

    def _store_models(
        self,
        session: Writer,
        space: SpaceRecord,
        samples: Sequence[PreparedSample],
        puts: Sequence[Put],
    ) -> None:
        for put in puts:
            self._writer.delete_unless_committed(session, put)
        _require_all(self._writer.put_each(session, space, puts))
        weights = {each.checkpoint.name: each.weights for each in samples}
        for put in puts:
            self._weights.state(session, space, put.name, weights[put.name], stated_by="hub")


def _layout_of(made: Checkpoint) -> Layout:
    return Layout.of((name, values.shape) for name, values in made.weights.items())


def _support_of(made: Checkpoint, layout: Layout) -> Support:
    sizes = np.concatenate([np.abs(values).ravel() for values in made.weights.values()])
    return select_support(sizes, kind="weight", layout=layout)


def _weights_of(made: Checkpoint) -> Weights:
    digest = WeightsDigest()
    for name, values in made.weights.items():
        one = TensorDigest(name, values.shape, "F32")
        one.add([values.ravel()])
        digest.take(one)
    count = sum(values.size for values in made.weights.values())
    return Weights(digest.result(), digest.tensors, 1, 4 * count, {"F32": count})


def _space_of(layout: Layout) -> RequestedSpace:
    return RequestedSpace(
        num_parameters=None,
        layout=StoredLayout.of(layout),
        scheme=None,
        num_perm=_SIGNATURES.num_perm,
        seed=_SIGNATURES.seed,
        importance=Importance.of("weight"),
    )


def _fingerprint_put(sample: PreparedSample) -> FingerprintPut:
    made = sample.checkpoint
    facts = Facts(base_models=made.bases, published_at=made.published_at)
    return FingerprintPut(made.name, sample.fingerprint, "client", facts)


def _require_all(results: Sequence[T | ModelkinError]) -> list[T]:
    """Raise the first error among results, so that all or none are stored."""
    found = list[T]()
    for result in results:
        if isinstance(result, ModelkinError):
            raise result
        found.append(result)
    return found
