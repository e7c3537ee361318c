"""Learngenes of a federation as files, and as versions in a service."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flwr.app import ArrayRecord

from modelkin._validation import check_space_name
from modelkin.client import Client
from modelkin.core.learngenes.manifest import ALL, LearngeneTensor, digest_of
from modelkin.core.learngenes.references import Reference
from modelkin.core.safetensors_header import header_of
from modelkin.errors import InvalidParameter, ModelkinError
from modelkin.integrations.flower._learngene_layers import values_by_name

__all__ = ["LearngeneFiles", "ReferenceOf"]

log = logging.getLogger("modelkin.integrations")

ReferenceOf = Callable[[int | str, Path], Reference]
"""The reference of a cluster's file, once you have put the file there."""

_DTYPES: Final = {"float16": "F16", "float32": "F32", "float64": "F64"}


@dataclass(frozen=True, slots=True)
class _Saved:
    """The newest file of a cluster."""

    path: Path
    server_round: int
    nodes: Sequence[int]


class LearngeneFiles:
    """Where the learngenes of a run go.

    Args:
        folder: for files; None for none.
        client: of a service to publish in; None for none.
        space: its space.
        model: the name of a client's model there.
        reference: of a file in a hub; None where the service keeps files.

    Raises:
        InvalidParameter: two of them exclude each other, or one is missing.
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
        if "{node}" not in model:
            raise InvalidParameter(f"model {model!r} has no {{node}} in it", field="model")
        self._folder = None if folder is None else Path(folder)
        self._client, self._model, self._reference = client, model, reference
        self._space = "" if space is None else check_space_name(space)
        self._saved: dict[int | str, _Saved] = {}

    def save(
        self, cluster: int | str, arrays: ArrayRecord, server_round: int, nodes: Sequence[int]
    ) -> None:
        """Write a cluster's learngene and its manifest; an older one is replaced."""
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
            "rounds": server_round,
        }
        _write(path, data)
        _write(path.with_suffix(".json"), json.dumps(manifest, indent=2).encode())
        self._saved[cluster] = _Saved(path, server_round, tuple(nodes))

    def publish(self) -> None:
        """Publish the newest file of each cluster; a failure is logged."""
        if self._client is None or not self._saved:
            return
        ids = self._service_ids(self._client)
        for cluster, saved in self._saved.items():
            if cluster not in ids:
                log.warning(
                    "the learngene of cluster %s is not published: no cluster of space %s has "
                    "most of its members",
                    cluster,
                    self._space,
                )
                continue
            try:
                self._client.learngenes.publish(
                    self._space,
                    ids[cluster],
                    saved.path,
                    reference=(
                        None if self._reference is None else self._reference(cluster, saved.path)
                    ),
                    members=len(saved.nodes),
                    rounds=saved.server_round,
                )
            except ModelkinError as error:
                log.warning("the learngene of cluster %s is not published: %s", cluster, error)

    def _service_ids(self, client: Client) -> dict[int | str, int | str]:
        """The service's cluster that has most of each cluster's members, and ``all``."""
        found: dict[int | str, int | str] = {ALL: ALL}
        try:
            labels = client.clusterings.get(self._space).labels
        except ModelkinError as error:
            log.warning("space %s has no clustering to publish for: %s", self._space, error)
            return found
        for cluster, saved in self._saved.items():
            names = [self._model.replace("{node}", str(node)) for node in saved.nodes]
            there = Counter(labels.get(name, -1) for name in names)
            most = there.most_common(1)
            if cluster != ALL and most and most[0][0] >= 0 and 2 * most[0][1] > len(names):
                found[cluster] = most[0][0]
        return found


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


def _write(path: Path, data: bytes) -> None:
    """Write a file under another name, then rename it, so that it is never partial."""
    partial = path.with_name(f".{path.name}.part")
    partial.write_bytes(data)
    os.replace(partial, path)
