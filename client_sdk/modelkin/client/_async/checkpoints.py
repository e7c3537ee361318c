"""The part of the client that pushes folders of checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from modelkin._threads import check_threads, processors
from modelkin._validation import check_tags
from modelkin.client._async.flows import run_flow
from modelkin.client._async.resources.fingerprints import AsyncFingerprints
from modelkin.client._async.resources.models import AsyncModels
from modelkin.client._async.resources.spaces import AsyncSpaces
from modelkin.client._async.uploads import AsyncUploads
from modelkin.client._protocol.uploads.journal import Journal
from modelkin.client._transport.concurrency import AsyncTaskPool, async_offload
from modelkin.client._transport.progress import Count, counting
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.support import Support
from modelkin.core.weights import Weights
from modelkin.errors import (
    ApiError,
    ConflictError,
    InvalidInput,
    NotFoundError,
    PermissionDeniedError,
    SpaceMismatch,
)
from modelkin.types.checkpoints.pushed import (
    AUTO,
    CheckpointItem,
    PushedCheckpoint,
    PushedCheckpoints,
)
from modelkin.types.models import ModelInfo
from modelkin.types.spaces import SpaceInfo
from modelkin.types.vocabulary import PushState

if TYPE_CHECKING:
    from modelkin.checkpoints.pushes.pushed_file import PushedFile
    from modelkin.client._protocol.uploads.pushes import Job, Push

__all__ = ["AsyncCheckpoints"]


class AsyncCheckpoints(AsyncUploads):
    """The half of :class:`modelkin.AsyncClient` that reads checkpoints."""

    models: AsyncModels
    spaces: AsyncSpaces
    fingerprints: AsyncFingerprints

    async def push_checkpoints(
        self,
        checkpoints: str | os.PathLike[str] | Iterable[str | os.PathLike[str] | CheckpointItem],
        *,
        space: str = AUTO,
        prefix: str = "",
        manifest: str | os.PathLike[str] | None = None,
        tags: Iterable[str] = (),
        exclude: Iterable[str] = (),
        create: bool = False,
        fingerprints: bool = True,
        dry_run: bool = False,
        concurrency: int | None = None,
        resume: str | os.PathLike[str] | None = None,
        progress: Count | bool = False,
        on_result: Callable[[PushedCheckpoint], object] | None = None,
    ) -> PushedCheckpoints:
        """Stores the supports of a folder of checkpoints, with their digests and fingerprints.

            done = await client.push_checkpoints("zoo", prefix="acme/")
            for each in done.failed:
                print(each.path, each.reason)

        What the service has already is not sent again, so the same call goes on after an
        interruption. A checkpoint that cannot be read or is refused does not stop the others.

        Args:
            checkpoints: a folder; or checkpoints, each by its path or as a
                :class:`modelkin.CheckpointItem`. A folder that holds one model gives it its name,
                other files give theirs without the ending. Its card is the hub's own: the base, the
                tags and the licence are read from it.
            space: the space of all; ``"auto"`` for that of each model's family. That is where its
                declared base is, or else the oldest space of its tensors, or the one that it has
                most of; where there is none, one is made.
            prefix: the beginning of all names, such as ``"acme/"``.
            manifest: a CSV file about the checkpoints of a folder, with the columns path, name,
                base, tags (apart by ``;``) and space. What it does not list is skipped.
            tags: tags of all, beside those of the cards or the manifest.
            exclude: shell patterns of names of tensors to leave out, such as ``"lm_head.*"``.
            create: whether to make a named space that does not exist, for the first model.
            fingerprints: whether to send fingerprints, too.
            dry_run: whether to say only what would go where: headers are read, nothing is sent.
            concurrency: checkpoints at a time, by default one for each processor. Files of 4 GiB in
                all are read at a time, or one that is larger.
            resume: a journal file of the files that are stored, so that a later call does not read
                them again. It may be deleted in the end.
            progress: True shows a line on a terminal. A function is called with the checkpoints
                done and all of them.
            on_result: a function that is called with what became of each.

        Returns:
            What became of each checkpoint, and what was skipped.

        Raises:
            InvalidParameter: the manifest is wrong, or the space takes no supports of weights.
            OSError: the folder cannot be read.
            ApiError: ``space_not_found``, or another refusal that concerns all.
        """
        # Those who push no checkpoints need not load what reads them.
        from modelkin.checkpoints.pushes.gathering import gather
        from modelkin.client._protocol.uploads import places, pushes

        self._connection.require_open()
        check_threads(concurrency)
        exclude, common = tuple(exclude), check_tags(tags)
        gathered = await async_offload(gather, checkpoints, prefix, manifest)
        read = await async_offload(pushes.open_all, gathered.named, exclude, common, prefix)
        opened, failed = read
        known: list[SpaceInfo] = []
        if any((each.named.space or space) == AUTO for each in opened):
            with places.reading():
                known = [each async for each in self.spaces.list()]
        found = places.Places(known, exclude)
        flow = pushes.jobs_of(opened, found, space, create=create)
        jobs, unplaced = await run_flow(flow, self._connection.run)
        done = [*gathered.results, *failed, *unplaced]
        with ExitStack() as stack:
            journal = None
            if resume is not None and not dry_run:
                journal = Journal.open(resume, self._connection.url, {"kind": "checkpoints"})
                stack.callback(journal.close)
            report = stack.enter_context(counting(progress, "checkpoints"))
            options = (*exclude, str(fingerprints))
            push = pushes.Push(len(done) + len(jobs), journal, options, on_result, report)
            push.add(done)
            if dry_run:
                push.add(job.planned() for job in jobs)
            else:
                await self._push_jobs(push, jobs, concurrency or processors(), fingerprints)
            return push.results

    async def _push_jobs(self, push: Push, jobs: list[Job], at_a_time: int, lines: bool) -> None:
        """Pushes several checkpoints at a time; raises an error of all once none is in flight."""
        pool: AsyncTaskPool[Job, PushedCheckpoint] = AsyncTaskPool(at_a_time)
        try:
            for job in jobs:
                if push.knows(job):
                    continue
                while len(pool) >= at_a_time or not push.has_room(job):
                    push.settle(*await pool.next_result())
                push.start(job)
                pool.start(job, self._push_job, job, lines)
            while len(pool):
                push.settle(*await pool.next_result())
        finally:
            for job, result in await pool.close():
                push.settle(job, result)

    async def _push_job(self, job: Job, lines: bool) -> PushedCheckpoint:
        from modelkin.client._protocol.uploads.pushes import FILE_ERRORS, refusal_of

        try:
            return await self._store(job, lines)
        except (ApiError, *FILE_ERRORS) as error:
            return job.result("failed", refusal_of(error))

    async def _store(self, job: Job, lines: bool) -> PushedCheckpoint:
        """Stores a checkpoint, or what of it the service does not have."""
        file = await self._read(job, lines)
        space = await self._made(job)
        support = await self._sized(space, job.model, file)
        before = await self._stored(space.name, job.model)
        info = before
        if before is None or before.kind != "support" or before.digest != support.digest:
            info = await self.put_support(space.name, job.model, support)
        assert info is not None
        info = await self._described(info, job)
        changed = before is None or before.version != info.version
        notes = list(file.notes)
        changed |= await self._state_weights(info, file.weights(), before is None, notes)
        if lines and not job.opened.is_adapter:
            changed |= await self._send_lines(job, await async_offload(file.fingerprint), notes)
        state: PushState = "replaced" if changed else "unchanged"
        return job.result("created" if before is None else state, "; ".join(notes) or None)

    async def _read(self, job: Job, lines: bool) -> PushedFile:
        from modelkin.checkpoints.pushes.opening import other_tensors, read_for_space

        place, space = job.place, job.place.space
        try:
            return await async_offload(
                read_for_space,
                job.opened,
                place.layout,
                place.exclude,
                fixed=None if space is None else space.support_size.k,
                lines=lines,
                own_exclude=job.exclude,
                threads=1,
            )
        except SpaceMismatch as error:
            raise other_tensors(place.name, error) from None

    async def _made(self, job: Job) -> SpaceInfo:
        """The space of a checkpoint, which is made where it does not exist.

        It is made only now, since the first layout of a space stays: the checkpoint is valid.
        """
        place = job.place
        if place.space is None:
            place.space = await self.ensure_space(
                place.name,
                layout=place.whole,
                importance=place.importance,
                exclude=() if place.whole is None else place.whole.matching(place.exclude),
            )
        return place.space

    async def _sized(self, space: SpaceInfo, model: str, file: PushedFile) -> Support:
        """The support of the size that the space asks for."""
        k = space.support_size.k
        if space.support_size.policy == "agreed":
            chosen = await async_offload(file.support)
            size = await self.spaces.report_support_size(
                space.name, chosen.k, client=model, support=chosen
            )
            k = size.k
            if k is None or file.share_of(k) == chosen.k:
                return chosen
        return await async_offload(file.support, k)

    async def _stored(self, space: str, model: str) -> ModelInfo | None:
        """The model as it is stored; None where it is not."""
        with suppress(NotFoundError):
            return await self.models.get(space, model)
        return None

    async def _described(self, info: ModelInfo, job: Job) -> ModelInfo:
        """The model with what is said of it, after a request where that differs."""
        fields = job.changes(info)
        return await self.models.update(info.space, info.model, **fields) if fields else info

    async def _state_weights(
        self, info: ModelInfo, weights: Weights, is_new: bool, notes: list[str]
    ) -> bool:
        """States the digests of the weights; whether they are others than before."""
        if not is_new:
            with suppress(NotFoundError):
                stated = await self.models.weights(info.space, info.model)
                if stated.digest == weights.digest and stated.revision == info.revision:
                    return False
        try:
            await self.models.put_weights(info.space, info.model, weights, revision=info.revision)
            async for copies in self.models.duplicates(info.space, info.model):
                notes += [
                    each.says
                    for each in copies
                    if each.says and (each.space, each.model) == (info.space, info.model)
                ]
        except (NotFoundError, ConflictError, PermissionDeniedError):
            return False  # an older service, a later revision, or a key that may not write
        return True

    async def _send_lines(self, job: Job, fingerprint: Fingerprint, notes: list[str]) -> bool:
        """Stores the fingerprint with what is said of the model; whether it is another."""
        with suppress(NotFoundError):
            if job.has_lines(await self.fingerprints.info(job.model), fingerprint.digest):
                return False
        try:
            await self.fingerprints.put(job.model, fingerprint, **job.stated)
        except (NotFoundError, PermissionDeniedError):
            return False  # an older service, or a key that may not write it
        except (ApiError, InvalidInput) as error:
            notes.append(f"its fingerprint is not stored: {error}")
            return False
        return True
