"""The service of maps: enqueue a map, draw it as a job, read it.

A map has the id of the job that drew it. The newest map of a space replaces the previous one, in
the transaction in which its job succeeds.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pydantic_core import to_json

from app.infra.db.database import Database, Reader, Writer
from app.infra.errors import MapNotFound, SpaceNotFound
from app.infra.storage.blobs import BlobStore
from app.infra.storage.guarded_maps import intact_maps
from app.jobs.records import JobRecord
from app.jobs.service import CommitHook, JobService, Progress
from app.kinship.clustering.repositories import clusterings
from app.kinship.clustering.snapshot import Snapshot, take_snapshot
from app.kinship.maps import repository
from app.kinship.maps.pipeline import Places, place_models
from app.kinship.maps.records import MapRecord
from app.kinship.maps.request import MapRequest
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.search.constants import SpaceConstants
from app.tenancy.auth.records import Tenant

__all__ = ["JOB_KIND", "MapService"]

JOB_KIND: Final = "map"
"""The kind of the jobs that draw maps."""
_READING: Final = "reading"
_DIGITS: Final = 2
"""Decimals of a place, where a model takes about one unit of area."""
_GZIP_LEVEL: Final = 6


class MapService:
    """The use cases of maps.

    Args:
        database: the database to read from.
        blobs: the store of supports.
        jobs: the service that enqueues the drawing.
        constants: knows the tensors that are left out.
        max_mapped: the most supports that a job may hold mapped at a time.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        jobs: JobService,
        constants: SpaceConstants,
        *,
        max_mapped: int,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._jobs = jobs
        self._constants = constants
        self._max_mapped = max_mapped

    def create(
        self, session: Writer, tenant: Tenant, space: SpaceRecord, request: MapRequest
    ) -> JobRecord:
        """The job that will draw a map; a pending job of the same request is returned.

        Raises:
            InvalidParameter: the space has too few or too many models for it.
        """
        request.check(space, clusterings.count_members(session, space, (), None))
        given = request.to_json()
        same = json.dumps([space.id, space.version, given], sort_keys=True)
        key = hashlib.sha256(same.encode()).hexdigest()
        return self._jobs.enqueue(session, tenant, JOB_KIND, given, space=space, dedup_key=key)

    def newest(self, session: Reader, space: SpaceRecord) -> MapRecord | None:
        """The newest map of the space; None before the first."""
        return repository.find_map(session, space)

    def get(self, session: Reader, space: SpaceRecord) -> MapRecord:
        """The newest map of the space.

        Raises:
            MapNotFound: there is none.
        """
        found = repository.find_map(session, space)
        if found is None:
            raise MapNotFound(
                f"space {space.name!r} has no map yet: request one with "
                f"POST /v1/spaces/{space.name}/maps"
            )
        return found

    def compressed_content(self, session: Reader, found: MapRecord) -> bytes:
        """The models and places of a map: JSON, compressed by gzip.

        It is ``{"models": [...], "x": [...], "y": [...]}``, ordered by name; with the names
        of ``constant_tensors`` where there are any, and ``covered`` where that is not all.
        """
        return repository.content(session, found)

    def changed_since(self, session: Reader, space: SpaceRecord, found: MapRecord) -> int:
        """Return the number of models that were stored or changed since the map was drawn."""
        return repository.count_changed(session, space, found.version)

    def execute(self, job: JobRecord, progress: Progress) -> CommitHook:
        """Draw the map of a job."""
        began = time.monotonic()
        request = MapRequest.from_json(job.parameters)
        progress(0, 0, _READING)
        with self._database.reading() as session:
            space = spaces.find_space_by_id(session, job.space_id or 0)
            if space is None:
                raise SpaceNotFound(f"there is no space {job.space!r} any more")
            request.check(space, clusterings.count_members(session, space, (), None))
            asked = request.of_models()
            constants = self._constants.of(session, space)
            snapshot = take_snapshot(
                session, self._blobs, space, asked, self._max_mapped, constants
            )
        with intact_maps():
            drawn = place_models(snapshot, progress)
        content = _pack(snapshot, drawn)
        seconds = round(time.monotonic() - began, 3)
        record = _record(job, snapshot, drawn, seconds)

        def finish(session: Writer) -> Mapping[str, Any]:
            current = spaces.lock_space(session, snapshot.space)
            repository.replace_map(session, record, content)
            url = f"/v1/spaces/{current.name}/maps/latest"
            return {"map": record.id, "url": url, "models": record.models, "parts": record.parts}

        return finish


def _record(job: JobRecord, snapshot: Snapshot, drawn: Places, seconds: float) -> MapRecord:
    return MapRecord(
        space_id=snapshot.space.id,
        id=job.id,
        parameters=dict(job.parameters),
        version=snapshot.space.version,
        similarity=drawn.similarity,
        models=len(snapshot),
        edges=drawn.edges,
        parts=drawn.parts,
        seconds=seconds,
        created_at=datetime.now(UTC),
    )


def _pack(snapshot: Snapshot, drawn: Places) -> bytes:
    x, y = drawn.xy.astype(float).round(_DIGITS).T.tolist()
    places: dict[str, Any] = {"models": snapshot.names, "x": x, "y": y}
    if snapshot.covered is not None:
        places["covered"] = snapshot.covered
    if snapshot.constants:
        places["constant_tensors"] = snapshot.constants.names
    return gzip.compress(to_json(places), _GZIP_LEVEL, mtime=0)
