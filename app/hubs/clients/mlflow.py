"""Client of an MLflow model registry: revisions are versions of registered models.

The files of a version are listed and read through the server, which serves most artifact stores
itself. Artifacts in a bucket are requested through the model version. So the service never needs
the credentials of a store. The ``mlflow`` package is not used.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote, urlsplit

import httpx

from app.hubs.clients.answers import (
    escaped,
    is_true,
    items_of,
    moment_of,
    name_of,
    part_of,
    path_of,
    shown,
    text_of,
)
from app.hubs.clients.http import HubHttpClient, require_few
from app.hubs.clients.mlflow_answers import (
    Answer,
    Entry,
    Model,
    Run,
    RunInfo,
    Version,
    attributes_of,
    bases_in,
    decimal_of,
    is_ready,
    newest,
    number_of,
    tag_values,
    tags_of,
    to_model,
)
from app.hubs.clients.protocol import HubFile, HubModel, HubRevision, Received, Sink
from app.hubs.clients.references import mlflow_reference
from app.infra.errors import HubForbidden, HubNotFound, HubProtocolError
from modelkin.core.foreign_json import Raw
from modelkin.core.kinship.lineage import relation_of
from modelkin.errors import ModelkinError

__all__ = ["MLflow", "authorization", "refusal"]

T = TypeVar("T")

_API: Final = "/api/2.0/mlflow"
_MODEL: Final = "/registered-models/get"
_ARTIFACTS: Final = "/api/2.0/mlflow-artifacts/artifacts"
_ALIAS: Final = "/registered-models/alias"
_BASE, _RELATION = "base_model", "base_model_relation"
"""Tags of a version, or of its registered model."""
_LICENSE: Final = "license"
"""Another one."""
_MAX_LENGTH: Final = 8000
"""Characters of them that are read: a list of bases may be long."""
_PAGE_SIZE: Final = 100
_MAX_PAGES: Final = 1000
_MAX_DEPTH, _MAX_FILES = 4, 10_000
_LOGGED = re.compile(r"models:/(m-[0-9a-f]+)/?")
_IN_RUN = re.compile(r"runs:/([^/]{1,200})(?:/(.*))?", re.DOTALL)
"""The address of a version that was registered by the run and the folder that hold it."""


class MLflow:
    """The :class:`app.hubs.clients.protocol.Hub` of an MLflow server."""

    def __init__(self, transfer: HubHttpClient) -> None:
        self._transfer = transfer

    def models(self, filters: Mapping[str, Any]) -> Iterator[HubModel]:  # noqa: ARG002 (no use)
        for item in require_few(self._models(), self._transfer.host):
            model = part_of(item, Model)
            if model is not None and part_of(model.name, str) is not None:
                # A name that is no text stays escaped, and so is none that a model can have.
                yield to_model(text_of(model.name) or escaped(model.name), model)

    def _models(self) -> Iterator[Raw]:
        """The registered models, page by page."""
        token = None
        for _ in range(_MAX_PAGES):
            params = {"max_results": _PAGE_SIZE} | ({"page_token": token} if token else {})
            found = self._ask("/registered-models/search", params)
            yield from items_of(found.registered_models)
            token = text_of(found.next_page_token)
            if token is None:
                return
        raise HubForbidden(f"{self._transfer.host} lists more than {_MAX_PAGES} pages of models")

    def look_up(self, name: str, revision: str | None = None) -> HubRevision:
        model = self._part(self._ask(_MODEL, {"name": name}).registered_model, Model)
        number = number_of(newest(model)) if revision is None else self._number(name, revision)
        if number is None:
            raise HubNotFound(f"{name} has no version that is ready on {self._transfer.host}")
        asked = {"name": name, "version": number}
        version = self._part(self._ask("/model-versions/get", asked).model_version, Version)
        if not is_ready(version):
            raise HubNotFound(
                f"version {number} of {name} is not ready on {self._transfer.host}: "
                f"{text_of(version.status, 100)}"
            )
        place = self._place(name, number, version)
        said, ours = (tag_values(part.tags, _MAX_LENGTH) for part in (version, model))
        return HubRevision(
            name=name_of(model.name, f"the name of {name}") or name,
            revision=number,
            tags=tags_of(model, version),
            base_models=bases_in(said.get(_BASE) or ours.get(_BASE)),
            base_relation=relation_of(said.get(_RELATION) or ours.get(_RELATION)),
            private=self._transfer.authorized,
            attributes=attributes_of(version),
            files=tuple(self._files(place)),
            address=f"{self._transfer.base}/#/models/{quote(name, safe='')}/versions/{number}",
            license=shown(said.get(_LICENSE) or ours.get(_LICENSE), 200),
            published_at=moment_of(version.creation_timestamp),
            changed_at=moment_of(version.creation_timestamp),
        )

    def reference(self, text: str) -> tuple[str, str | None]:
        return mlflow_reference(text, self._transfer.base)

    def download(
        self, revision: HubRevision, file: HubFile, into: Path, received: Received | None = None
    ) -> int:
        return self._transfer.download(self._url(revision, file), file, into, received)

    def beginning(
        self, revision: HubRevision, file: HubFile, size: int
    ) -> tuple[bytes, int | None]:
        return self._transfer.beginning(self._url(revision, file), size)

    def part(
        self, revision: HubRevision, file: HubFile, begin: int, end: int, into: Sink
    ) -> frozenset[str]:
        return self._transfer.part(self._url(revision, file), file, begin, end, into)

    def knows_us(self) -> bool:
        return True

    def _url(self, revision: HubRevision, file: HubFile) -> str:
        """The address of a file on the server."""
        version = {"name": revision.name, "version": revision.revision}
        found = self._part(self._ask("/model-versions/get", version).model_version, Version)
        place = self._place(revision.name, revision.revision, found)
        if place.served is not None:
            return f"{_ARTIFACTS}/{_quote(f'{place.served}/{file.path}')}"
        if place.run_path is not None:
            path = f"{place.run_path}/{file.path}".lstrip("/")
            return f"/get-artifact?{httpx.QueryParams({'run_id': place.run_id, 'path': path})}"
        return f"/model-versions/get-artifact?{httpx.QueryParams({**version, 'path': file.path})}"

    def _ask(self, path: str, params: Mapping[str, Any]) -> Answer:
        return self._transfer.json(_API + path, Answer, params)[0]

    def _part(self, part: Raw, form: type[T]) -> T:
        """A part of an answer that has to be there."""
        found = part_of(part, form)
        if found is None:
            what = form.__name__.lower()
            raise HubProtocolError(f"{self._transfer.host} answered without a {what}")
        return found

    def _number(self, name: str, revision: str) -> str | None:
        """The number of a version, given as the number or as an alias."""
        if revision.isdecimal():
            return revision.lstrip("0") or revision
        asked = {"name": name, "alias": revision}
        found = self._ask(_ALIAS, asked)
        return number_of(self._part(found.model_version, Version))

    def _place(self, name: str, number: str, version: Version) -> _Place:
        asked = {"name": name, "version": number}
        uri = text_of(self._ask("/model-versions/get-download-uri", asked).artifact_uri)
        if uri is None:
            raise HubProtocolError(
                f"{self._transfer.host} gives no address for version {number} of {name}"
            )
        if (in_run := _IN_RUN.fullmatch(uri)) is not None:
            return self._place_in_run(in_run[1], (in_run[2] or "").strip("/"))
        source = text_of(version.source) or ""
        logged = _LOGGED.fullmatch(source)
        return _Place(
            uri=uri,
            served=self.served_path(uri),
            model_id=logged[1] if logged else None,
            run_id=text_of(version.run_id, 200),
        )

    def _place_in_run(self, run_id: str, path: str) -> _Place:
        """The place where the run keeps its artifacts; the server leaves this to its clients."""
        run = self._part(self._ask("/runs/get", {"run_id": run_id}).run, Run)
        root = text_of(self._part(run.info, RunInfo).artifact_uri)
        if root is None:
            raise HubProtocolError(f"{self._transfer.host} gives no address for run {run_id!a}")
        uri = f"{root.rstrip('/')}/{path}".rstrip("/")
        return _Place(uri, self.served_path(uri), model_id=None, run_id=run_id, run_path=path)

    def served_path(self, uri: str) -> str | None:
        """The path of artifacts that this server serves; None for artifacts in another store."""
        try:
            parts = urlsplit(uri)
        except ValueError:
            raise HubProtocolError(
                f"{self._transfer.host} gives an invalid address: {uri!a}"
            ) from None
        if parts.netloc not in {"", self._transfer.host}:
            return None
        if parts.scheme == "mlflow-artifacts":
            return unquote(parts.path).strip("/")
        if parts.scheme in {"http", "https"} and _ARTIFACTS in parts.path:
            return unquote(parts.path.partition(_ARTIFACTS)[2]).strip("/")
        return None

    def _files(self, place: _Place) -> Iterator[HubFile]:
        """All files below a place, folder by folder; paths are relative to the place."""
        folders, seen = [("", 0)], 0
        while folders:
            folder, depth = folders.pop()
            for path, is_folder, size in self._entries(place, folder):
                seen += 1
                if seen > _MAX_FILES:
                    raise HubForbidden(f"{place.uri} holds more than {_MAX_FILES} files")
                if not is_folder:
                    yield HubFile(path, size)
                elif depth < _MAX_DEPTH:
                    folders.append((path, depth + 1))

    def _entries(self, place: _Place, folder: str) -> Iterator[tuple[str, bool, int | None]]:
        """The entries of a folder: path relative to the place, whether it is a folder, size."""
        root, found = self._listing(place, folder)
        for item in items_of(found.files):
            entry = part_of(item, Entry)
            path = None if entry is None else text_of(entry.path)
            if entry is None or path is None:
                continue
            if place.served is not None:
                path = f"{folder}/{path}".lstrip("/")
            elif root:
                path = path.removeprefix(f"{root}/")
            yield path, is_true(entry.is_dir), decimal_of(entry.file_size)

    def _listing(self, place: _Place, folder: str) -> tuple[str, Answer]:
        """The listing of a folder, and the path at which it starts within its run."""
        if place.served is not None:
            path = f"{place.served}/{folder}".rstrip("/")
            found, _, _ = self._transfer.json(_ARTIFACTS, Answer, {"path": path})
            return "", found
        if place.model_id is not None:
            asked = {"artifact_directory_path": folder} if folder else {}
            return "", self._ask(f"/logged-models/{place.model_id}/artifacts/directories", asked)
        if place.run_id is not None:
            run = {"run_id": place.run_id}
            root = text_of(self._ask("/artifacts/list", run).root_uri) or ""
            if root and place.uri.startswith(f"{root}/"):
                inside = place.uri.removeprefix(f"{root}/").strip("/")
                path = f"{inside}/{folder}".rstrip("/")
                return inside, self._ask("/artifacts/list", {**run, "path": path})
        raise HubForbidden(
            f"the files are at {urlsplit(place.uri).scheme}:, which this server neither serves nor "
            f"lists: start it with --serve-artifacts, or register versions of logged models or runs"
        )


@dataclass(frozen=True, slots=True)
class _Place:
    """The location of the files of a version.

    Attributes:
        uri: the URI as the server states it.
        served: the path under which the server serves the files; None if it does not.
        model_id: the id of the files' logged model.
        run_id: the id of the run that made them.
        run_path: the folder within that run, if the version was registered by ``runs:/``.
    """

    uri: str
    served: str | None
    model_id: str | None
    run_id: str | None
    run_path: str | None = None


def authorization(token: str) -> str:
    """The ``Authorization`` header: Basic for ``user:password``, Bearer for any other token."""
    if ":" in token:
        return f"Basic {base64.b64encode(token.encode()).decode()}"
    return f"Bearer {token}"


def refusal(response: httpx.Response, body: bytes) -> ModelkinError | None:
    """The meaning of a status of 400 to 499."""
    host, path = response.url.host, path_of(response.url)
    if response.status_code in {404, 410}:
        asked = response.url.params.get("name")
        what = f"registered model {asked!r}, or not this version of it" if asked else path
        definitive = path.endswith(_MODEL) and b"RESOURCE_DOES_NOT_EXIST" in body
        return HubNotFound(f"{host} knows no {what}", definitive=definitive)
    if response.status_code == 400 and path.endswith((_MODEL, _ALIAS)):  # so of a missing alias
        asked, alias = response.url.params.get("name"), response.url.params.get("alias")
        model = f"registered model {asked!a}"
        return HubNotFound(
            f"{host} knows no {model}" if alias is None else f"{model} of {host} has no {alias!a}"
        )
    if response.status_code in {401, 403}:
        return HubForbidden(
            f"{host} answers {response.status_code}: the source's token does not let us see {path}"
        )
    return None


def _quote(path: str) -> str:
    return "/".join(quote(part, safe="") for part in path.split("/") if part)
