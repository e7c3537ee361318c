"""Repositories of a Hugging Face hub: what their pages say, and their weights on this disk.

``huggingface_hub`` does the requests: it knows tokens, mirrors, caches and pauses. Weights lie in a
folder while they are read, and are fetched from where they stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

from modelkin._validation import MAX_BASE_MODELS, check_model_name
from modelkin.checkpoints.indexes import read_index, read_pipeline
from modelkin.checkpoints.repository import Choice, choose, components
from modelkin.core.catalogues.base import Base
from modelkin.core.kinship.lineage import relation_of
from modelkin.core.quoting import quote
from modelkin.errors import ConnectionFailed, InvalidCheckpoint, InvalidName, MissingExtra

__all__ = ["HUB", "Found", "Hub"]

HUB: Final = "https://huggingface.co"
_MAX_FACT: Final = 200


@dataclass(frozen=True)
class Found:
    """A checkpoint of a repository.

    Attributes:
        base: what its page says.
        choice: the files that are read.
    """

    base: Base
    choice: Choice


class Hub:
    """A hub, which is asked for one repository after the other.

    Args:
        url: its address; None for that of ``HF_ENDPOINT``, or the public one.

    Raises:
        MissingExtra: the package ``huggingface_hub`` is not installed.
    """

    def __init__(self, url: str | None = None) -> None:
        try:
            from huggingface_hub import HfApi, constants
            from huggingface_hub.utils.tqdm import disable_progress_bars
        except ModuleNotFoundError as error:
            raise MissingExtra("huggingface_hub", "hub") from error
        disable_progress_bars()
        known = constants.ENDPOINT.rstrip("/")
        self.url = (url or known).rstrip("/")
        # The token of this machine is for the hub that its environment names, and for no other.
        self._token = None if self.url == known else False
        self._api = HfApi(endpoint=self.url, token=self._token)

    def look_up(self, name: str, revision: str | None) -> tuple[Base, dict[str, int]]:
        """What the page of a repository says, and its files with their bytes.

        Raises:
            InvalidCheckpoint: there is none, or this machine may not see it.
            ConnectionFailed: the hub does not answer.
        """
        with self._speaking(name):
            info = self._api.model_info(name, revision=revision, files_metadata=True)
        if not info.sha or not info.sha.isalnum():
            raise InvalidCheckpoint(f"{self.url} names no commit of {quote(name)}")
        files = {each.rfilename: each.size or 0 for each in info.siblings or ()}
        strange = next((path for path in files if not _is_inside(path)), None)
        if strange is not None:
            raise InvalidCheckpoint(f"{quote(name)} has a file {quote(strange)}")
        card = info.card_data
        base = Base(
            info.id,
            url=f"{self.url}/{info.id}",
            revision=info.sha,
            license=_text(getattr(card, "license_name", None))
            or _text(getattr(card, "license", None)),
            published_at=info.created_at or info.last_modified,
            base_models=_bases(getattr(card, "base_model", None)),
            base_relation=relation_of(_text(getattr(card, "base_model_relation", None))),
        )
        return base, files

    def checkpoints(self, base: Base, files: Mapping[str, int], folder: Path) -> Iterator[Found]:
        """The checkpoints of a repository: one, or each component of a pipeline.

        Raises:
            InvalidCheckpoint: there is none that is read, or more than one.
            ConnectionFailed: the hub does not answer.
        """
        choice = choose(files, base.name)
        if choice.kind != "pipeline":
            yield Found(base, choice)
            return
        listed = read_pipeline(self._fetch(base, choice.first, folder))
        for name, part in components(choice, listed, files, base.name).items():
            yield Found(replace(base, name=f"{base.name}/{name}"), part)

    def fetch(self, base: Base, choice: Choice, folder: Path) -> Path:
        """Fetch the files of a checkpoint, and return the path to open it by.

        Args:
            base: the repository's.
            choice: the files.
            folder: for this commit alone; gets the files at their paths in the repository.

        Raises:
            InvalidCheckpoint: files are missing.
            ConnectionFailed: the hub does not answer, or stops.
            OSError: the disk is full.
        """
        first = self._fetch(base, choice.first, folder)
        paths: tuple[str, ...] = choice.shards
        if choice.kind == "index":
            paths = choice.follow(set(read_index(first).values()), base.name).paths
        for path in (*paths, *choice.beside):
            if path != choice.first:
                self._fetch(base, path, folder)
        return first.parent if choice.kind == "shards" else first

    def _fetch(self, base: Base, path: str, folder: Path) -> Path:
        from huggingface_hub import hf_hub_download

        name = (base.url or "").removeprefix(f"{self.url}/")
        with self._speaking(name):
            return Path(
                hf_hub_download(
                    name,
                    path,
                    revision=base.revision,
                    local_dir=folder,
                    endpoint=self.url,
                    token=self._token,
                )
            )

    def _speaking(self, name: str) -> _Speaking:
        return _Speaking(self.url, name)


class _Speaking:
    """Puts the errors of a hub in this package's words."""

    def __init__(self, url: str, name: str) -> None:
        self._url, self._name = url, name

    def __enter__(self) -> None:
        """Nothing is to be done before."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        import httpx
        from huggingface_hub import errors

        if error is None:
            return
        said = " ".join(str(error).split())[:300]
        if isinstance(error, errors.LocalEntryNotFoundError | httpx.TransportError):
            raise ConnectionFailed(f"{self._url} does not answer: {said}") from error
        if isinstance(error, errors.HfHubHTTPError | errors.HFValidationError):
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status is not None and (status == 429 or status >= 500):
                raise ConnectionFailed(f"{self._url} answers {status}: {said}") from error
            raise InvalidCheckpoint(f"{quote(self._name)}: {said}") from error


def _is_inside(path: str) -> bool:
    """Whether a path leads into the folder of its repository, on every system."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not {"..", "/"} & set(parts) and not set(path) & {"\\", ":", "\0"}


def _text(value: object) -> str | None:
    """A short text of a card, which may say anything."""
    text = value.strip() if isinstance(value, str) else ""
    return text[:_MAX_FACT] if text.isprintable() and text else None


def _bases(value: object) -> tuple[str, ...]:
    """The declared bases that have names of models."""
    found = dict[str, None]()
    for each in [value] if isinstance(value, str) else value if isinstance(value, list) else []:
        try:
            found[check_model_name(each)] = None
        except InvalidName:
            continue
    return tuple(found)[:MAX_BASE_MODELS]
