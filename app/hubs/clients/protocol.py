"""The contract of a hub client: listings, revisions and files of published models.

Downloads are pinned to the revision that was looked up, whatever is pushed meanwhile. Only
safetensors files are ever downloaded. Hub clients know no spaces, jobs or tenants.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from modelkin.core.kinship.lineage import BaseRelation

__all__ = [
    "Hub",
    "HubFile",
    "HubModel",
    "HubRevision",
    "HubSource",
    "RangesIgnored",
    "Received",
    "Sink",
    "tags_digest",
]

Received = Callable[[int], None]
"""A function of the bytes received, called again and again; an error ends the download."""


class Sink(Protocol):
    """Takes bytes one after another, as a file does."""

    def write(self, data: bytes, /) -> object:
        """Append bytes."""


class RangesIgnored(Exception):
    """The hub cannot be asked for ranges of a file; its caller downloads the whole file."""


class HubSource(Protocol):
    """The part of a source that a hub client needs."""

    @property
    def kind(self) -> str:
        """A name of :data:`app.hubs.kinds.HUB_KINDS`."""

    @property
    def url(self) -> str | None:
        """The hub's address; None where hub events are only recorded."""

    @property
    def token(self) -> str | None:
        """The access token for the hub, decrypted."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a revision.

    Attributes:
        path: the path inside the revision, with ``/`` between its folders.
        size: the bytes that the hub declares; None if it declares none.
        sha256: the SHA-256 in hex, if the hub declares it.
        blob: another name of the content on the hub, such as the id of a git blob; None without
            one.
    """

    path: str
    size: int | None
    sha256: str | None = None
    blob: str | None = None


@dataclass(frozen=True, slots=True)
class HubModel:
    """A line of a listing: a model, its newest revision, and the tags that filters compare.

    Attributes:
        name: the name on the hub: ``org/name``, or that of the registered model.
        revision: the commit's sha, or the version's number, that :meth:`Hub.look_up` answers
            now; None for a model without a revision.
        tags: the same as :attr:`HubRevision.tags`, as far as a listing has them.
        unreleased: whether there is no revision yet, and so nothing to read.
        mutable_tags: whether the tags may change while the revision stays.
        changed_at: when it was changed last; None where the hub does not say so.
    """

    name: str
    revision: str | None
    tags: tuple[str, ...] = ()
    unreleased: bool = False
    mutable_tags: bool = False
    changed_at: datetime | None = None

    @property
    def tags_digest(self) -> str:
        """A digest that is the same for the same tags in any order."""
        return tags_digest(self.tags)


@dataclass(frozen=True, slots=True)
class HubRevision:
    """A model at one immutable revision.

    Attributes:
        name: the model's present name on the hub, not the requested one if the model has moved.
        revision: the commit's sha, or the version's number.
        tags: the tags of a model card, or ``key:value`` of a registry.
        base_models: the declared bases on the same hub, as the publisher spells them.
        base_relation: what the publisher says that the model is of its bases; None for nothing.
        private: whether it is visible only with a token.
        attributes: small JSON to keep beside the model.
        files: all files, of every kind; only weights and small files about them are fetched.
        address: the web page of this revision.
        component: the component of a pipeline that this is, with the files of that alone; None for
            a whole model.
        license: the licence, as the publisher writes it; None for none.
        published_at: when the model, or the version of a registry, was published.
        changed_at: as of :class:`HubModel`.
    """

    name: str
    revision: str
    tags: tuple[str, ...]
    base_models: tuple[str, ...]
    base_relation: BaseRelation | None
    private: bool
    attributes: Mapping[str, Any]
    files: tuple[HubFile, ...] = field(default=(), repr=False)
    address: str = ""
    component: str | None = None
    license: str | None = None
    published_at: datetime | None = None
    changed_at: datetime | None = None

    @property
    def model_name(self) -> str:
        """The name of the model here: that of the hub, and of the component below it."""
        return self.name if self.component is None else f"{self.name}/{self.component}"


class Hub(Protocol):
    """An open connection to a hub, for one job.

    Every method raises :class:`HubUnavailable` while the hub is down. Tokens go to the hub's own
    host and nowhere else.
    """

    def models(self, filters: Mapping[str, Any]) -> Iterator[HubModel]:
        """List the models, last changed first where the hub can sort so.

        Args:
            filters: a source's. They narrow the request as far as the hub can filter; the caller
                filters each line again.

        Raises:
            HubForbidden: the hub refuses the token.
        """

    def look_up(self, name: str, revision: str | None = None) -> HubRevision:
        """Look up a model, at its newest revision unless a revision is named.

        Raises:
            HubNotFound: there is no such model, or this token does not show it.
            HubForbidden: the model is private or gated.
        """

    def reference(self, text: str) -> tuple[str, str | None]:
        """Read a declared base: the name on this hub, and the pinned revision.

        Args:
            text: a name, ``name@revision``, or an address that this kind of hub gives its models.

        Raises:
            HubNotFound: it is an address of something else.
        """

    def download(
        self, revision: HubRevision, file: HubFile, into: Path, received: Received | None = None
    ) -> int:
        """Write a file of a looked-up revision to ``into``; return its size.

        After a failure the bytes received so far stay there.

        Raises:
            HubNotFound, HubForbidden: see :meth:`look_up`; some hubs gate files and not pages.
            HubProtocolError: the hub sent more bytes than it declared, or different ones.
            PayloadTooLarge: the file exceeds the limit of a checkpoint.
            StorageFull: the disk is full.
        """

    def beginning(
        self, revision: HubRevision, file: HubFile, size: int
    ) -> tuple[bytes, int | None]:
        """Return the first ``size`` bytes of a file, or all of a shorter file; and its whole size.

        The size is None if the hub does not state it.

        Raises:
            HubNotFound, HubForbidden, HubProtocolError: see :meth:`download`.
        """

    def part(
        self, revision: HubRevision, file: HubFile, begin: int, end: int, into: Sink
    ) -> frozenset[str]:
        """Write the bytes ``begin`` up to ``end`` of a file to ``into``, from where that stands.

        Returns:
            What the hub calls the version of the file (ETag), of each answer; none where it does
            not say.

        Raises:
            RangesIgnored: the hub sends whole files alone; nothing is written.
            HubNotFound, HubForbidden, HubProtocolError: see :meth:`download`.
        """

    def knows_us(self) -> bool:
        """Whether the hub would show an existing model to this source.

        It does if it accepts the token, or if it distinguishes *missing* from *hidden*.
        """


def tags_digest(tags: Iterable[str]) -> str:
    """A digest that is the same for the same tags in any order."""
    return hashlib.sha256("\n".join(sorted(tags)).encode()).hexdigest()[:32]
