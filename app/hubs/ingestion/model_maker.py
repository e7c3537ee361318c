"""``ModelMaker``: one model of a sync: its file is read, and its supports and fingerprint are made.

One download serves all. A model of which no support can be made, since its source or a space asks
for something else, has a fingerprint all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Final

from app.hubs.clients.protocol import RangesIgnored
from app.hubs.ingestion.adapters import with_targets
from app.hubs.ingestion.bases import LACKING, BaseFinder, require_common_tensors
from app.hubs.ingestion.files.checkpoint_fetcher import CheckpointFetcher, Counter
from app.hubs.ingestion.files.downloads import Downloads
from app.hubs.ingestion.fingerprinting import Fingerprinting, FoundFingerprint
from app.hubs.ingestion.reading import LinesRequest, read_lines
from app.hubs.ingestion.results import IngestResult, PreparedModel
from app.hubs.ingestion.selector import Selection, SupportSelector
from app.hubs.ingestion.stored_models import Held
from app.hubs.ingestion.sync_results import SyncedModel
from app.infra.db.database import Database
from app.infra.errors import Conflict
from app.jobs.service import Progress
from app.models.catalog.puts import Put
from app.models.catalog.writer import ModelWriter
from app.tenancy.quotas.service import QuotaService
from modelkin.checkpoints import Adapter, Checkpoint
from modelkin.errors import InvalidImportance, InvalidParameter, SpaceMismatch

__all__ = ["NO_SUPPORT", "ModelMaker"]

NO_SUPPORT: Final = (SpaceMismatch, Conflict, InvalidParameter, InvalidImportance)
"""The errors that leave a model without supports, and say nothing of its file."""
_MIB: Final = 1 << 20


class ModelMaker:
    """Makes the supports and the fingerprints of models.

    Args:
        database: the database of spaces.
        downloads: the disk space for checkpoints.
        checkpoint_bytes: the largest checkpoint that is read.
    """

    def __init__(
        self,
        database: Database,
        downloads: Downloads,
        selector: SupportSelector,
        models: ModelWriter,
        quotas: QuotaService,
        fingerprinting: Fingerprinting,
        checkpoint_bytes: int,
    ) -> None:
        self._database = database
        self._downloads = downloads
        self._selector = selector
        self._models = models
        self._quotas = quotas
        self._fingerprinting = fingerprinting
        self._checkpoint_bytes = checkpoint_bytes

    def make(
        self, finder: BaseFinder, made: IngestResult, known: Sequence[Held], progress: Progress
    ) -> SyncedModel:
        """Make what is stored of a model, unless what is stored was made like it.

        Raises:
            ModelkinError: nothing can be made of it.
        """
        found = self._find_fingerprint(made)
        lines = LinesRequest() if made.source.fingerprints and found is None else None
        as_stored = made.refusal is None and any(held.is_made_like(made) for held in known)
        if lines is None and (as_stored or made.refusal is not None):
            return _allowed(SyncedModel(made, fingerprint=found))
        if not as_stored and made.refusal is None:
            with self._database.reading() as session:  # before a download that would be in vain
                new = 0 if known else 1
                self._quotas.require_allowance(session, made.source.tenant.id, models=new)
        reading = partial(self._read, finder, made, progress, lines, supports=not as_stored)
        try:
            read = reading()
        except RangesIgnored:
            read = reading(whole=True)
        if lines is not None:
            found = (
                self._fingerprinting.found(made, lines)
                if lines.is_read
                else self._find_fingerprint(read.made)  # it is an adapter, as its file says
            )
        progress(0, 0, "storing")
        read = _allowed(replace(read, fingerprint=found))
        if read.selection is None:
            return read
        return replace(read, prepared=tuple(self._prepare(read.made, read.selection)))

    def _find_fingerprint(self, made: IngestResult) -> FoundFingerprint | None:
        return self._fingerprinting.find(made) if made.source.fingerprints else None

    def discard(self, synced: Sequence[SyncedModel]) -> None:
        """Discard what was prepared for models that are not stored."""
        for part in synced:
            for ready in part.prepared:
                self._models.discard(Put(part.made.name, ready.content))

    def _read(
        self,
        finder: BaseFinder,
        made: IngestResult,
        progress: Progress,
        lines: LinesRequest | None,
        *,
        supports: bool,
        whole: bool = False,
    ) -> SyncedModel:
        """Fetch the checkpoint, and read what is asked for."""
        with self._downloads.directory() as directory:
            fetching = CheckpointFetcher(
                finder.hub,
                directory,
                self._checkpoint_bytes,
                _stage(progress, f"downloading {made.revision.component or 'it'}, MiB", _MIB),
                exclude=self._selector.exclude(made),
                whole=whole or made.adapter,  # an adapter is read several times
            )
            checkpoint = fetching.fetch(made.revision, "model")
            if made.refusal is None and supports:
                try:
                    read = self._select(finder, made, checkpoint, fetching, progress, lines)
                except NO_SUPPORT as error:
                    made = replace(made, refusal=error)
                except LACKING as error:
                    if lines is None or not lines.is_read:
                        raise
                    # The base that is required was read beside the model.
                    made = replace(made, refusal=error)
                else:
                    if read.selection is not None:
                        return read
                    made = read.made
            if isinstance(checkpoint, Adapter):
                return SyncedModel(replace(made, adapter=True))
            if lines is not None and not lines.is_read:
                self._read_lines(made, checkpoint, fetching, progress, lines)
            return SyncedModel(made, notes=checkpoint.notes)

    def _read_lines(
        self,
        made: IngestResult,
        checkpoint: Checkpoint,
        fetching: CheckpointFetcher,
        progress: Progress,
        lines: LinesRequest,
    ) -> None:
        """Read a checkpoint for its fingerprint alone."""
        resumption = fetching.resumption("lines", made.fingerprint_recipe)
        read_lines(lines, checkpoint, fetching, _stage(progress, "reading"), resumption)
        resumption.forget()

    def _select(
        self,
        finder: BaseFinder,
        made: IngestResult,
        checkpoint: Checkpoint,
        fetching: CheckpointFetcher,
        progress: Progress,
        lines: LinesRequest | None,
    ) -> SyncedModel:
        """Read a checkpoint, and its base, for its supports and its fingerprint.

        Where the base cannot be read, nothing is selected, and the model is refused.
        """
        downloaded = fetching.on_progress
        checkpoint, tables = self._selector.without_tables(fetching, checkpoint, made)
        fetching.on_progress = _stage(progress, "downloading its base, MiB", _MIB)
        if isinstance(checkpoint, Adapter):
            made, base = with_targets(finder, fetching, made, checkpoint), None
        else:
            try:
                made, base = _with_base(fetching, made, checkpoint)
            except LACKING as error:
                return SyncedModel(replace(made, refusal=error))
        fetching.on_progress = downloaded  # both, as they are read
        selection = self._selector.select(checkpoint, base, made, fetching, progress, tables, lines)
        rounding = [] if selection.rounding is None else [selection.rounding]
        notes = (
            *_notes(made, selection.reason, checkpoint),
            *checkpoint.notes,
            *rounding,
            *selection.notes,
        )
        return SyncedModel(made, selection, notes=notes)

    def _prepare(self, made: IngestResult, selection: Selection) -> list[PreparedModel]:
        """Return the supports, ready to be stored, or none."""
        prepared: list[PreparedModel] = []
        try:
            for one in selection.models:
                with self._database.reading() as session:
                    content = self._models.prepare(
                        session, one.placed.space, made.name, one.support
                    )
                prepared.append(PreparedModel(one.importance, one.placed, content))
        except BaseException:
            for ready in prepared:
                self._models.discard(Put(made.name, ready.content))
            raise
        return prepared


def _allowed(synced: SyncedModel) -> SyncedModel:
    """Refuse a model of which there is nothing: no support, and no fingerprint."""
    found, refusal = synced.fingerprint, synced.made.refusal
    if refusal is not None and (found is None or found.prepared is None):
        raise refusal
    return synced


def _stage(progress: Progress, stage: str, unit: int = 1) -> Counter:
    """Counts the work of a stage."""
    return lambda done, total: progress(done // unit, total // unit, stage)


def _with_base(
    fetching: CheckpointFetcher, made: IngestResult, checkpoint: Checkpoint
) -> tuple[IngestResult, Checkpoint | None]:
    """The base of a checkpoint, if it has enough of its tensors; its headers are read first.

    Without an optional base that cannot be downloaded, a later sync tries again.
    """
    revision = made.base.revision
    if revision is None:
        return made, None
    try:
        require_common_tensors(checkpoint, fetching.outline(revision, "outline"), revision)
        base = fetching.fetch(revision, "base")
        require_common_tensors(checkpoint, base, revision)
        return made, base
    except SpaceMismatch as error:
        if made.base.required:
            raise
        return replace(made, base=replace(made.base, reason=str(error))), None
    except LACKING as error:
        return replace(made, base=made.base.without(error, revision.name, made.revision)), None


def _notes(made: IngestResult, reason: str | None, checkpoint: Checkpoint) -> list[str]:
    """The notes: why a declared base gives no difference, and which patterns exclude nothing."""
    declared = made.base.revision is not None or made.base.lacking is not None
    what = "the targets are not compared with a base" if made.adapter else "no delta"
    reason = made.base.reason if made.adapter else reason
    unmatched = [
        pattern
        for pattern in made.source.exclude
        if not any(fnmatchcase(name, pattern) for name in checkpoint.excluded)
    ]
    return [
        *([f"{what}: {reason}"] if declared and reason is not None else []),
        *(f"exclude: {pattern!a} matches no tensor" for pattern in unmatched),
    ]
