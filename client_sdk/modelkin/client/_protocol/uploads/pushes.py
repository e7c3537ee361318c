"""A push of many checkpoints: what is asked, what is in flight, and what came of each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from modelkin.checkpoints.pushes.gathering import NamedCheckpoint
from modelkin.checkpoints.pushes.opening import (
    OpenedCheckpoint,
    check_fit,
    fit_note,
    open_named,
    other_tensors,
)
from modelkin.client._protocol.calls.flows import Flow
from modelkin.client._protocol.calls.requests import json_bytes
from modelkin.client._protocol.uploads.journal import Journal
from modelkin.client._protocol.uploads.places import Place, Places, Wanted, bases_first
from modelkin.client._transport.progress import Count
from modelkin.core.importance import Importance
from modelkin.core.layout import Layout
from modelkin.core.quoting import quote
from modelkin.errors import ApiError, InvalidInput, MissingExtra, ModelkinError, SpaceMismatch
from modelkin.types.checkpoints.pushed import AUTO, PushedCheckpoint, PushedCheckpoints
from modelkin.types.fingerprints.stored import StoredFingerprint
from modelkin.types.models import ModelInfo
from modelkin.types.vocabulary import PushState

__all__ = ["FILE_ERRORS", "Job", "Push", "jobs_of", "open_all", "refusal_of"]

FILE_ERRORS: Final = (InvalidInput, SpaceMismatch, MissingExtra, OSError)
"""Errors of one checkpoint, so that the others go on."""
_REFUSALS: Final = frozenset({404, 409, 412, 413, 422, 507})
"""Statuses that concern one model: no room for it is one."""
_MAX_BYTES: Final = 4 << 30
"""The bytes of the files that are read at a time; a larger one is read alone."""


@dataclass(frozen=True, slots=True)
class Job:
    """A checkpoint and the space that it goes to.

    Attributes:
        exclude: patterns of the tensors that the caller leaves out.
    """

    opened: OpenedCheckpoint
    place: Place
    exclude: tuple[str, ...]

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.opened.named.model

    @property
    def stated(self) -> dict[str, Any]:
        """What goes with its fingerprint."""
        return {**asdict(self.opened.said), "file_bytes": self.opened.size}

    def changes(self, info: ModelInfo) -> dict[str, Any]:
        """The fields of a stored model that are to be others."""
        said, tags = self.opened.said, self.opened.tags
        changed = dict[str, Any]()
        if tags is not None and {*tags} != {*info.tags}:
            changed["tags"] = tags
        if said.base_models and said.base_models != info.base_models:
            changed["base_models"] = said.base_models
        bases = said.base_models or info.base_models  # without any there is no relation
        if bases and said.base_relation and said.base_relation != info.base_relation:
            changed["base_relation"] = said.base_relation
        return changed

    def has_lines(self, stored: StoredFingerprint, digest: str) -> bool:
        """Whether a stored fingerprint is this one, with all that is said of it."""
        if stored.digest != digest:
            return False
        if stored.stated_by == "hub":  # what the service read itself stays as it was read
            return True
        return all(getattr(stored, name) == value for name, value in self.stated.items())

    def result(self, state: PushState, reason: str | None = None) -> PushedCheckpoint:
        """What became of it."""
        is_new, path = self.place.is_new, str(self.opened.named.path)
        why = "; ".join(filter(None, (reason, self.opened.note))) or None
        return PushedCheckpoint(self.model, self.place.name, state, why, is_new, path)

    def planned(self) -> PushedCheckpoint:
        """What a push would do with it, as its headers show."""
        place = self.place
        if place.layout is None:
            return self.result("planned")
        return self.result("planned", fit_note(self.opened, place.layout, place.exclude))

    def fingerprint(self, space_made: str, options: Sequence[str]) -> str:
        """Changes with the files, with what is said of them, and with the space."""
        said = self.opened.said
        facts = [
            self.place.name,
            space_made,
            str(self.opened.named.path.absolute()),
            self.opened.state,
            said.base_models,
            said.base_relation,
            said.license,
            None if said.published_at is None else said.published_at.isoformat(),
            self.opened.tags,
            options,
        ]
        return hashlib.sha256(json_bytes({"facts": facts})).hexdigest()[:32]


class Push:
    """The state of one push.

    Args:
        total: how many checkpoints there are.
        journal: the journal of the models that earlier runs stored.
        options: what else changes what is stored.
        on_result: is called with what became of each.
        report: is called with the checkpoints done and all of them.
    """

    def __init__(
        self,
        total: int,
        journal: Journal | None,
        options: Sequence[str],
        on_result: Callable[[PushedCheckpoint], object] | None,
        report: Count | None,
    ) -> None:
        self._total = total
        self._journal = journal
        self._options = tuple(options)
        self._on_result = on_result
        self._report = report
        self._results: list[PushedCheckpoint] = []
        self._bytes = 0
        self._in_flight = 0

    def add(self, results: Iterable[PushedCheckpoint]) -> None:
        """Record what is known without a request."""
        for result in results:
            self._record(result)

    def knows(self, job: Job) -> bool:
        """Whether an earlier run stored a checkpoint, by the journal; records that."""
        sent = self._sent(job)
        if self._journal is None or sent is None or not self._journal.has(job.model, sent):
            return False
        self._record(job.result("unchanged", "as an earlier run stored it"))
        return True

    def has_room(self, job: Job) -> bool:
        """Whether a checkpoint may be read beside those that are in flight."""
        return not self._in_flight or self._bytes + job.opened.size <= _MAX_BYTES

    def start(self, job: Job) -> None:
        """Count a checkpoint as in flight."""
        self._in_flight += 1
        self._bytes += job.opened.size

    def settle(self, job: Job, result: PushedCheckpoint) -> None:
        """Record what became of a checkpoint, in the journal first."""
        self._in_flight -= 1
        self._bytes -= job.opened.size
        sent = self._sent(job)
        if self._journal is not None and sent is not None and result.state != "failed":
            self._journal.add([(job.model, sent)])
        self._record(result)

    @property
    def results(self) -> PushedCheckpoints:
        """What became of all so far."""
        return PushedCheckpoints.of(self._results)

    def _sent(self, job: Job) -> str | None:
        space = job.place.space
        return None if space is None else job.fingerprint(str(space.created_at), self._options)

    def _record(self, result: PushedCheckpoint) -> None:
        self._results.append(result)
        if self._on_result is not None:
            self._on_result(result)
        if self._report is not None:
            self._report(len(self._results), self._total)


def open_all(
    named: Iterable[NamedCheckpoint], exclude: Sequence[str], tags: Sequence[str], prefix: str
) -> tuple[list[OpenedCheckpoint], list[PushedCheckpoint]]:
    """The headers of checkpoints, and what is wrong with others; equal layouts are kept once.

    Args:
        named: the checkpoints.
        exclude: patterns of tensors that are left out.
        tags: tags of all of them.
        prefix: the beginning of all names; a note says where it does not fit the names or bases.
    """
    opened, failed = list[OpenedCheckpoint](), list[PushedCheckpoint]()
    layouts = dict[str, Layout]()
    for each in named:
        try:
            found = open_named(each, exclude)
        except FILE_ERRORS as error:
            why, path = refusal_of(error), str(each.path)
            failed.append(PushedCheckpoint(each.model, None, "failed", why, path=path))
            continue
        layout = layouts.setdefault(found.layout.digest, found.layout)
        own = found.tags
        if tags:
            own = tuple(dict.fromkeys((*(own or ()), *tags)))
        opened.append(replace(found, layout=layout, tags=own))
    names = {each.named.model for each in opened} if prefix else set[str]()
    return [_with_prefix(each, prefix, names) for each in opened], failed


def jobs_of(
    opened: Sequence[OpenedCheckpoint], places: Places, space: str, *, create: bool
) -> Flow[tuple[list[Job], list[PushedCheckpoint]]]:
    """The space of each checkpoint, and those that have none.

    Raises:
        ApiError: a space does not exist, and may not be made.
        InvalidParameter: a space takes no supports that are made here.
    """
    by_name = {each.named.model: each for each in opened}
    jobs, failed = list[Job](), list[PushedCheckpoint]()
    for wanted in bases_first(map(_wanted, opened)):
        each = by_name[wanted.model]
        name = each.named.space or space
        place: Place | None = None
        if name != AUTO:
            place = yield from places.named(name, wanted, create=create)
        try:
            place = place or (yield from places.auto(wanted))
            if not place.importance.fits(wanted.importance):
                raise SpaceMismatch(
                    f"space {name!r} holds supports by {place.importance}, and this one is by "
                    f"{wanted.importance}: name another space, or {AUTO}"
                )
            if place.layout is not None and not place.is_new:
                _require_fit(each, place, place.layout)
            jobs.append(Job(each, place, places.exclude))
        except (InvalidInput, SpaceMismatch) as error:
            path = str(each.named.path)
            failed.append(PushedCheckpoint(wanted.model, None, "failed", str(error), path=path))
    return sorted(jobs, key=lambda job: job.model), failed


def refusal_of(error: Exception) -> str:
    """Why a checkpoint failed, in words.

    Raises:
        ApiError: the refusal concerns all checkpoints.
    """
    if isinstance(error, ApiError):
        if error.status not in _REFUSALS:
            raise error
        return error.detail
    if isinstance(error, OSError) and not isinstance(error, ModelkinError):
        return error.strerror or str(error)
    return str(error)


def _with_prefix(opened: OpenedCheckpoint, prefix: str, names: set[str]) -> OpenedCheckpoint:
    """A checkpoint with a note, where its name or a base was written for another prefix."""
    model, note = opened.named.model, None
    bases = [
        base
        for base in opened.said.base_models
        if base not in names and prefix + base in names and prefix + base != model
    ]
    if prefix and not prefix[-1].isalnum() and model.startswith(2 * prefix):
        note = f"its name begins with {quote(prefix)} twice: leave out the prefix, or that of names"
    elif bases:
        note = (
            f"its base {quote(bases[0])} is not among these models, and {quote(prefix + bases[0])} "
            f"is: a prefix stands before names alone, so declare bases by their whole names"
        )
    return replace(opened, note="; ".join(filter(None, (opened.note, note))) or None)


def _require_fit(opened: OpenedCheckpoint, place: Place, layout: Layout) -> None:
    try:
        check_fit(opened, layout, place.exclude)
    except SpaceMismatch as error:
        raise other_tensors(place.name, error) from None


def _wanted(opened: OpenedCheckpoint) -> Wanted:
    bases = tuple(base for base in opened.said.base_models if base != opened.named.model)
    importance = Importance.of(opened.kind)
    return Wanted(opened.named.model, opened.layout, importance, opened.is_adapter, bases)
