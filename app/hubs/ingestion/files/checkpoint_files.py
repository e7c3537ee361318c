"""The checkpoint among the files of a revision, by the rule that the command line has, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from app.hubs.clients.protocol import HubFile
from modelkin.checkpoints import repository
from modelkin.checkpoints.repository import Choice, Shards
from modelkin.core.adapters import CONFIG_NAME
from modelkin.errors import InvalidCheckpoint

__all__ = ["CheckpointFiles", "choose"]


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """The files of a checkpoint.

    Attributes:
        choice: what of the revision is read.
        revision: all files of the revision, by path.
    """

    choice: Choice
    revision: dict[str, HubFile]

    @property
    def first(self) -> HubFile:
        """The file to open first: the checkpoint itself, or the index of its shards."""
        return self.revision[self.choice.first]

    @property
    def beside(self) -> list[HubFile]:
        """Small files that say how the weights are to be read."""
        return [self.revision[path] for path in self.choice.beside]

    @property
    def shards(self) -> list[HubFile]:
        """The files of a numbered set without an index."""
        return [self.revision[path] for path in self.choice.shards]

    @property
    def weights(self) -> list[HubFile]:
        """All files that the weights may be read from, as far as names say."""
        if self.choice.kind != "index":
            return self.shards or [self.first]
        parent = PurePosixPath(self.choice.first).parent
        return [self.revision[str(parent / name)] for name in sorted(self.choice.names)]

    def of(self, shards: Shards) -> list[HubFile]:
        """The files of shards."""
        return [self.revision[path] for path in shards.paths]


def choose(files: Sequence[HubFile], where: str) -> CheckpointFiles:
    """Choose the checkpoint of a revision, see :func:`modelkin.checkpoints.repository.choose`.

    Args:
        files: all files of the revision.
        where: the name of the revision in errors.

    Raises:
        InvalidCheckpoint: there is no checkpoint, the choice is ambiguous, or an adapter lacks its
            configuration.
    """
    by_path = {_plain(file.path): file for file in files}
    choice = repository.choose(by_path, where)
    if choice.is_adapter and not any(p.endswith(CONFIG_NAME) for p in choice.beside):
        raise InvalidCheckpoint(
            f"{where} holds {choice.first}, and no {CONFIG_NAME} beside it: publish what PEFT "
            f"saved with it"
        )
    return CheckpointFiles(choice, by_path)


def _plain(path: str) -> str:
    """A path as the rule writes it, without empty parts and dots."""
    return str(PurePosixPath(path)) if "//" in path or "./" in path else path
