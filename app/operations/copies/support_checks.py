"""Checks of a model: its files against its rows, and the data derived from them.

Without ``deep`` only lengths are read. With ``deep`` every support is decoded, its digest compared
with the row, and signature, band values and index counts are computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from app.infra.storage.blobs import BlobStore, DamagedBlob
from app.models.catalog.stored_supports import SupportDecoder
from app.models.index.banding import signature_bytes
from app.models.spaces.records import SpaceRecord
from app.operations.copies.derivation import SpaceState, derive
from app.operations.copies.records import Finding, ModelState, StoredModel, StoredRevision, name_of
from app.operations.copies.repairs import Repairs
from modelkin import wire
from modelkin.core.packed import packed_bytes, packed_sizes
from modelkin.core.sketching.schemes import value_dtype
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.errors import InvalidSupport, ModelkinError

__all__ = ["SupportChecks"]


class _WrongFile(Exception):
    """The file of a support is not as its row says."""

    def __str__(self) -> str:
        return f"{super().__str__()}: restore it from a backup, or put the model again"


class SupportChecks:
    """Checks models, one at a time.

    Args:
        blobs: the store of supports.
        token: the database's token, with which all its keys begin.
        repairs: the repairs of derived data.
        deep: whether to decode supports.
    """

    def __init__(self, blobs: BlobStore, token: str, repairs: Repairs, *, deep: bool) -> None:
        self._blobs = blobs
        self._token = token
        self._repairs = repairs
        self._deep = deep

    def findings(self, of: SpaceState, state: ModelState) -> Iterator[Finding]:
        """All findings in one model."""
        model = state.model
        subject = f"{name_of(of.space)}, model {model.name!r}"
        if model.tenant_id != of.space.tenant_id:
            yield Finding(subject, "it belongs to another tenant than its space: delete its row")
        if model.version > of.space.version:
            yield Finding(
                subject,
                f"its version {model.version} is beyond {of.space.version}, that of its space: "
                f"restore the database from a backup",
            )
        yield from self._sizes(subject, of, state)
        yield from self._revisions(subject, of, state)
        yield from self._signature_length(subject, of, state)
        support: Support | None = None
        if model.blob_key is not None:
            try:
                support = self._support(of.space, model)
            except _WrongFile as wrong:
                yield Finding(subject, str(wrong))
        if self._deep:
            yield from self._derivation_findings(subject, of, state, support)

    def _sizes(self, subject: str, of: SpaceState, state: ModelState) -> Iterator[Finding]:
        """Bytes that rows note for quotas; a file that was lost when it was measured has 0."""
        rows: tuple[StoredModel | StoredRevision, ...] = (state.model, *state.revisions)
        for row in rows:
            if row.blob_key is None or row.blob_size is None:
                continue
            expected = _file_bytes(of.space, row)
            if row.blob_size != expected and self._has(row.blob_key, expected):
                yield Finding(
                    subject,
                    f"its row notes {row.blob_size} bytes for the file {row.blob_key}, which has "
                    f"{expected}",
                    partial(self._repairs.note_size, of.space, row.blob_key, expected),
                )
                return

    def _has(self, key: str, size: int) -> bool:
        """Whether the file exists with this size; other checks find damage."""
        with suppress(DamagedBlob):
            return self._blobs.size(key) == size
        return False

    def _revisions(self, subject: str, of: SpaceState, state: ModelState) -> Iterator[Finding]:
        model, spec = state.model, of.space.signature
        if state.revisions and not _is_present(state.revisions[-1], model):
            yield Finding(subject, "its last revision is not its present content: put it again")
        for revision in state.revisions:
            if revision.blob_key is None or revision.blob_key == model.blob_key:
                continue
            past = f"{subject}, revision {revision.revision}"
            try:
                support = self._support(of.space, revision)
            except _WrongFile as wrong:
                yield Finding(past, str(wrong))
                continue
            if support is not None and revision.minhash is not None:
                made = support.signature(spec.num_perm, spec.seed, spec.scheme)
                if revision.minhash != signature_bytes(made):
                    yield Finding(past, "its signature is not that of its support")

    def _support(self, space: SpaceRecord, row: StoredModel | StoredRevision) -> Support | None:
        """The support that a row names; None if only its length is to be verified.

        Raises:
            _WrongFile: the file is another's, missing or damaged.
        """
        key, folder = str(row.blob_key), f"{self._token}/{space.id}/"
        if not key.startswith(folder):
            raise _WrongFile(f"its file {key} is not in {folder}, the folder of its space")
        try:
            size = self._blobs.size(key)
        except DamagedBlob:
            raise _WrongFile(f"its file {key} is damaged") from None
        expected = _file_bytes(space, row)
        if size is None:
            raise _WrongFile(f"its file {key} is missing")
        if size != expected:
            raise _WrongFile(f"its file {key} has {size} bytes and not {expected}")
        return self._decode(space, key, row) if self._deep else None

    def _decode(self, space: SpaceRecord, key: str, row: StoredModel | StoredRevision) -> Support:
        """The support in a file, whose digest, which covers each index, is the row's."""
        try:
            data = self._blobs.read(key)  # not the copy of this machine
            return SupportDecoder(space, row.support_size, row.digest)(data).unpack()
        except KeyError:
            raise _WrongFile(f"its file {key} is missing") from None
        except (InvalidSupport, DamagedBlob) as error:
            raise _WrongFile(f"its file {key} is damaged: {error}") from None

    def _signature_length(
        self, subject: str, of: SpaceState, state: ModelState
    ) -> Iterator[Finding]:
        if of.space.subspaces is not None:
            yield from _subspace(subject, state)
            return
        spec = of.space.signature
        expected = spec.num_perm * value_dtype(spec.scheme).itemsize
        has = None if state.signature is None else len(state.signature)
        if has != expected:
            repair = self._mending(state) if state.model.kind == "support" else None
            what = "missing" if has is None else f"of {has} bytes and not {expected}"
            yield Finding(subject, f"its signature is {what}", repair)

    def _derivation_findings(
        self, subject: str, of: SpaceState, state: ModelState, support: Support | None
    ) -> Iterator[Finding]:
        if state.model.kind == "signature" and of.space.kind == "supports":
            yield from _sketch(subject, state)
        if support is None:
            return
        made = derive(of, support)
        if state.signature is not None and state.signature != made.signature:
            yield Finding(subject, "its signature is not that of its support", self._mending(state))
        if state.tensor_counts not in {None, made.tensor_counts}:
            yield Finding(
                subject, "its counts by tensor are not those of its support", self._mending(state)
            )

    def _mending(self, state: ModelState) -> Callable[[], None]:
        return partial(self._repairs.derive_again, state.model)


def _is_present(revision: StoredRevision, model: StoredModel) -> bool:
    return (
        revision.revision == model.revision
        and revision.blob_key == model.blob_key
        and revision.digest == model.digest
        and revision.support_size == model.support_size
    )


def _file_bytes(space: SpaceRecord, row: StoredModel | StoredRevision) -> int:
    """The bytes that the file of a support has; with gaps those that its row notes."""
    m, k, noted = space.num_parameters, row.support_size, row.blob_size
    if noted is not None and packed_sizes(noted, m, k, ordered=space.ordered):
        return noted
    return packed_bytes(m, k, ordered=space.ordered)


def _subspace(subject: str, state: ModelState) -> Iterator[Finding]:
    try:
        whole = state.signature is not None
        found = Subspace.from_bytes(state.signature or b"")
        if found.digest == state.model.digest:
            return
        what = "not that of its digest"
    except ModelkinError:
        what = "damaged" if whole else "missing"
    yield Finding(subject, f"its data subspace is {what}: put it again")


def _sketch(subject: str, state: ModelState) -> Iterator[Finding]:
    if state.sketch is None:
        return
    try:
        size = wire.decode_sketch(state.sketch).support_size
    except ModelkinError as error:
        yield Finding(subject, f"its sketch is damaged: {error}: put it again")
        return
    if size != state.model.support_size:
        yield Finding(
            subject,
            f"its sketch is of {size} indices, its signature of {state.model.support_size}: put "
            f"both again",
        )
