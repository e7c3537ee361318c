"""The contract of a hub: what ingestion and the poller ask of wherever models are published.

Every answer is of the moment it is asked, and pinned: what is downloaded is of the revision that
was looked up, whatever is pushed meanwhile. Nothing here knows spaces, jobs or tenants, and nothing
but safetensors is ever downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

__all__ = [
    "Hub",
    "HubFile",
    "HubModel",
    "HubRevision",
    "HubSource",
    "Received",
]

Received = Callable[[int], None]
"""Is told how many bytes of a file are there, again and again; what it raises ends the download."""


class HubSource(Protocol):
    """What of a source a hub needs."""

    @property
    def kind(self) -> Literal["huggingface", "mlflow"]: ...

    @property
    def url(self) -> str | None:
        """The hub's address; None where deliveries are only recorded."""

    @property
    def token(self) -> str | None:
        """What the hub lets in by, decrypted."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a revision.

    Attributes:
        path: inside the revision, ``/`` between its folders.
        size: bytes, as the hub declares them; None where it does not.
        sha256: in hex, where the hub declares it.
    """

    path: str
    size: int | None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class HubModel:
    """A line of a listing: a model, its newest revision, and what filters look at.

    Attributes:
        name: on the hub: ``org/name``, or the registered model's.
        revision: the commit's sha, or the version's number, of what :meth:`Hub.look_up` answers
            now; None of a model that has none yet.
        tags: as :attr:`HubRevision.tags`, as far as a listing tells them.
    """

    name: str
    revision: str | None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HubRevision:
    """A model at one revision, which never changes any more.

    Attributes:
        name: the model's, as the hub calls it now: another than was asked for if it has moved.
        revision: the commit's sha, or the version's number.
        tags: of a card, or ``key:value`` of a registry.
        base_model: what the hub says that it was made from, a name on the same hub.
        private: whether it is seen with a token alone.
        attributes: small JSON to keep beside the model.
        files: all there are, of every kind; only safetensors are ever fetched.
        address: where people see this revision.
    """

    name: str
    revision: str
    tags: tuple[str, ...]
    base_model: str | None
    private: bool
    attributes: Mapping[str, Any]
    files: tuple[HubFile, ...] = field(default=(), repr=False)
    address: str = ""


class Hub(Protocol):
    """A hub, open for one job; every method raises :class:`HubUnavailable` where it is away.

    Tokens are sent to the hub's own host and nowhere else.
    """

    def models(self, filters: Mapping[str, Any]) -> Iterator[HubModel]:
        """The models there, those changed last first where the hub can sort them so.

        Args:
            filters: a source's. They narrow what is asked of the hub, as far as it can be asked;
                whoever calls looks at each line once more.

        Raises:
            HubForbidden: the token is no good.
        """

    def look_up(self, name: str, revision: str | None = None) -> HubRevision:
        """A model, at its newest revision unless another is named.

        Raises:
            HubNotFound: there is none, or not for this token.
            HubForbidden: it is private or gated.
        """

    def download(
        self, revision: HubRevision, file: HubFile, into: Path, received: Received | None = None
    ) -> int:
        """Write a file of a looked-up revision to ``into``; answers its size.

        What came before it failed is left there, for whoever made the folder.

        Raises:
            HubNotFound, HubForbidden: as :meth:`look_up`; some gate files and not pages.
            HubProtocolError: more came than was declared, or other bytes.
            PayloadTooLarge: it is beyond what is left of the limit for a checkpoint.
            StorageFull: the disk is.
        """

    def beginning(
        self, revision: HubRevision, file: HubFile, size: int
    ) -> tuple[bytes, int | None]:
        """The first bytes of a file, so many unless it is shorter; and how many it has in all, or
        None if nobody says so.

        Raises:
            HubNotFound, HubForbidden, HubProtocolError: as :meth:`download`.
        """

    def knows_us(self) -> bool:
        """Whether the hub would show a model to this source if there were one: it takes the token,
        or tells what is missing from what is kept from us.
        """
