"""Learngenes of a federation as files, and as versions in a service."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flwr.app import ArrayRecord

from modelkin._validation import check_space_name
from modelkin._whole_files import write_whole
from modelkin.client import Client
from modelkin.core.learngenes.manifest import ALL, LearngeneTensor, digest_of
from modelkin.core.learngenes.references import Reference
from modelkin.core.safetensors_header import header_of
from modelkin.errors import InvalidParameter, ModelkinError
from modelkin.integrations.federation.client_names import ClientNames, check_model_pattern
from modelkin.integrations.flower.learngenes.layers import values_by_name
from modelkin.types.clusterings import Clustering

__all__ = ["LearngeneFiles", "ReferenceOf"]

log = logging.getLogger("modelkin.integrations")

ReferenceOf = Callable[[int | str, Path], Reference]
"""The reference of a cluster's file, once you have put the file there."""

_CLUSTERING_SECONDS: Final = 60.0
"""The longest time that publishing waits for a clustering of the service."""

_DTYPES: Final = {"float16": "F16", "float32": "F32", "float64": "F64"}


@dataclass(frozen=True, slots=True)
class _Saved:
    """The newest file of a cluster."""

    path: Path
    server_round: int
    nodes: Sequence[int]


class LearngeneFiles:
    """The files of a run's learngenes.

    Args:
        folder: where the files go; None for no files.
        client: publishes them in a service; None publishes nothing.
        space: the service's space.
        model: the name of a client's model in the space.
        reference: makes the reference of a file in a hub; None where the service keeps files.

    Raises:
        InvalidParameter: two arguments exclude each other, or one is missing.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        client: Client | None,
        space: str | None,
        model: str,
        reference: ReferenceOf | None,
    ) -> None:
        if (client is None) != (space is None):
            raise InvalidParameter("give client and space, or neither", field="space")
        if client is not None and folder is None:
            raise InvalidParameter(
                "what is published is a file: say where it is saved", field="save"
            )
        self._folder = None if folder is None else Path(folder)
        self._client, self._reference = client, reference
        self._model = check_model_pattern(model)
        self.names = ClientNames()
        """The names that nodes sent."""
        self._space = "" if space is None else check_space_name(space)
        self._saved: dict[int | str, _Saved] = {}

    def save(
        self, cluster: int | str, arrays: ArrayRecord, server_round: int, nodes: Sequence[int]
    ) -> None:
        """Write a cluster's learngene and its manifest, in place of older ones."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        name = "all" if cluster == ALL else f"cluster-{cluster}"
        path = self._folder / f"{name}.safetensors"
        data, tensors = _file_of(arrays)
        manifest = {
            "cluster": cluster,
            "digest": digest_of(data),
            "bytes": len(data),
            "tensors": [
                {"name": each.name, "dtype": each.dtype, "shape": list(each.shape)}
                for each in tensors
            ],
            "members": len(nodes),
            "models": sorted(self.names.model(self._model, node) for node in nodes),
            "rounds": server_round,
        }
        write_whole(path, data)
        write_whole(path.with_suffix(".json"), json.dumps(manifest, indent=2).encode())
        self._saved[cluster] = _Saved(path, server_round, tuple(nodes))

    def publish(self, asked: Mapping[str, Any] | None = None) -> None:
        """Publish the newest file of each cluster; a failure is logged.

        Args:
            asked: the keywords of ``client.clusterings.create`` that make the federation's
                clustering in the service; None for the service's own choice.
        """
        if self._client is None or not self._saved:
            return
        ids = self._service_ids(self._client, {} if asked is None else asked)
        for cluster, saved in self._saved.items():
            if cluster not in ids:
                log.warning(
                    "the learngene of cluster %s is not published: no cluster of space %s has "
                    "most of its members alone. Cluster the space otherwise, choose the cluster "
                    "that its newcomers find, and publish %s by 'modelkin learngene publish "
                    "--cluster ID'",
                    cluster,
                    self._space,
                    saved.path,
                )
                continue
            try:
                self._publish(self._client, cluster, ids[cluster], saved)
            except ModelkinError as error:
                log.warning("the learngene of cluster %s is not published: %s", cluster, error)

    def _publish(
        self, client: Client, cluster: int | str, service_id: int | str, saved: _Saved
    ) -> None:
        reference = None if self._reference is None else self._reference(cluster, saved.path)
        client.learngenes.publish(
            self._space,
            service_id,
            saved.path,
            reference=reference,
            members=len(saved.nodes),
            rounds=saved.server_round,
        )

    def _service_ids(self, client: Client, asked: Mapping[str, Any]) -> dict[int | str, int | str]:
        """The service's cluster that has most of each cluster's members, and ``all``.

        If the newest clustering has other models or other clusters, a new one is made.
        """
        found: dict[int | str, int | str] = {ALL: ALL}
        if self._saved.keys() == {ALL}:
            return found
        try:
            found |= self._match_clusters(client.clusterings.get(self._space))
        except ModelkinError as error:
            log.info("space %s has no clustering yet: %s", self._space, error)
        if self._saved.keys() - found.keys():
            try:
                made = client.clusterings.create(self._space, timeout=_CLUSTERING_SECONDS, **asked)
                found = {ALL: ALL, **self._match_clusters(made)}
            except (ModelkinError, TimeoutError) as error:
                log.warning("space %s cannot be clustered: %s", self._space, error)
        return found

    def _match_clusters(self, clustering: Clustering) -> dict[int | str, int]:
        """Match each cluster with the service's cluster that has most of its members.

        A cluster of the service that two clusters match counts for neither.
        """
        found: dict[int | str, int] = {}
        for cluster, saved in self._saved.items():
            names = [self.names.model(self._model, node) for node in saved.nodes]
            there = Counter(clustering.labels.get(name, -1) for name in names)
            most, count = there.most_common(1)[0] if there else (-1, 0)
            if cluster != ALL and most >= 0 and 2 * count > len(names):
                found[cluster] = most
        shared = Counter(found.values())
        return {cluster: label for cluster, label in found.items() if shared[label] == 1}


def _file_of(arrays: ArrayRecord) -> tuple[bytes, list[LearngeneTensor]]:
    """The bytes of a safetensors file, and its tensors."""
    values = values_by_name(arrays)
    tensors = [
        LearngeneTensor(name, _DTYPES[each.dtype.name], each.shape) for name, each in values.items()
    ]
    entries, header = header_of(tensors)
    parts = [
        values[entry.name].astype(values[entry.name].dtype.newbyteorder("<")).tobytes()
        for entry in entries
    ]
    return b"".join([header, *parts]), tensors
