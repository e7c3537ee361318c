"""The index of shards: read from a stranger's JSON, and compared with what the shards hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import msgspec

from modelkin.checkpoints.candidates import SUFFIX
from modelkin.checkpoints.header import MAX_HEADER_BYTES, CheckpointLimits, bad_checkpoint
from modelkin.core.file_formats import BEGINNING_BYTES, describe_beginning
from modelkin.core.foreign_json import decode_json, has_control_character
from modelkin.core.quoting import quote

__all__ = ["owners_of", "parse_index", "parse_pipeline", "read_index", "read_pipeline"]

_MAX_PIPELINE_BYTES: Final = 1 << 20
"""The largest list of a pipeline's components: it has a few lines for each."""


class _Index(msgspec.Struct):
    """What is read of an index."""

    weight_map: dict[str, str]


def read_index(index: Path, limits: CheckpointLimits | None = None) -> dict[str, str]:
    """The shard of every tensor that an index names, each a file beside it.

    Raises:
        InvalidCheckpoint: not an index of safetensors shards, or longer than allowed.
    """
    max_bytes = MAX_HEADER_BYTES if limits is None else limits.header
    return parse_index(_read(index, max_bytes), index.name)


def parse_index(text: bytes, where: str) -> dict[str, str]:
    """The same of the text of an index; ``where`` is its name in errors."""
    try:
        weight_map = decode_json(text, _Index).weight_map
    except msgspec.ValidationError:
        raise bad_checkpoint(
            where, "it has no weight_map of texts: it is not an index of shards"
        ) from None
    except ValueError as error:
        raise bad_checkpoint(where, _no_json(text, error)) from None
    if not weight_map:
        raise bad_checkpoint(where, "it has no weight_map: it is not an index of shards")
    for name, file in weight_map.items():
        if Path(file).name != file or not file.endswith(SUFFIX):
            raise bad_checkpoint(
                where, f"it names {quote(file)}, which is not a {SUFFIX} file beside it"
            )
        if has_control_character(name) or has_control_character(file):
            raise bad_checkpoint(
                where,
                f"the name of tensor {quote(name)}, or of its shard {quote(file)}, has a control "
                f"character",
            )
    return weight_map


def read_pipeline(path: Path) -> frozenset[str]:
    """The names of the components that a ``model_index.json`` lists with a library and a class.

    Raises:
        InvalidCheckpoint: it is not JSON of a pipeline.
    """
    return parse_pipeline(_read(path, _MAX_PIPELINE_BYTES), path.name)


def parse_pipeline(text: bytes, where: str) -> frozenset[str]:
    """The same of the text of a ``model_index.json``; ``where`` is its name in errors."""
    try:
        listed = decode_json(text, dict[str, object])
    except ValueError as error:
        raise bad_checkpoint(where, _no_json(text, error)) from None
    return frozenset(name for name, entry in listed.items() if _is_component(entry))


def owners_of(
    weight_map: Mapping[str, str], held: Mapping[str, Collection[str]], whole: bool, index: str
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The shard from which each tensor of a model is read, and remarks for people.

    Libraries read all that the shards hold, and so are they here where they are one whole set.
    Shards of other models, or files that overlay some, hold more than the model: there the index
    says what belongs to it. It always says which of two shards counts.

    Args:
        weight_map: the index; empty without one.
        held: the names of the tensors in each shard.
        whole: whether the shards are one whole numbered set.
        index: the name of the index in errors and remarks.

    Raises:
        InvalidCheckpoint: a tensor lies in two shards, and the index names neither; or no tensor
            is left.
    """
    holders: dict[str, list[str]] = {}
    for shard in sorted(held):
        for name in held[shard]:
            holders.setdefault(name, []).append(shard)
    owners, left_out, unnamed = dict[str, str](), list[str](), list[str]()
    for name, shards in holders.items():
        said = weight_map.get(name)
        if said is None and not whole:
            left_out.append(name)
        elif len(shards) == 1 or said in shards:
            owners[name] = said if said in shards and said is not None else shards[0]
            if said is None and weight_map:
                unnamed.append(name)
        else:
            raise bad_checkpoint(
                index,
                f"tensor {quote(name)} is in {shards[0]} and in {shards[1]}, and no index says "
                f"which counts",
            )
    if not owners:
        raise bad_checkpoint(index, "it names no tensor that its shards hold: it is of others")
    lacking = sorted(weight_map.keys() - holders.keys())
    remarks = (
        (lacking, "names {} tensors that no shard holds, such as {}: they are not in its supports"),
        (left_out, "does not name {} tensors of its shards, such as {}: they are left out"),
        (unnamed, "does not name {} tensors of its shards, such as {}: they count all the same"),
    )
    return owners, tuple(
        f"{index} " + words.format(f"{len(names):,}", quote(min(names)))
        for names, words in remarks
        if names
    )


def _is_component(entry: object) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and all(isinstance(x, str) for x in entry)


def _read(path: Path, max_bytes: int) -> bytes:
    if path.stat().st_size > max_bytes:
        raise bad_checkpoint(
            path.name, f"it has more than {max_bytes} bytes, too many for an index"
        )
    return path.read_bytes()


def _no_json(text: bytes, error: ValueError) -> str:
    known = None if text[:1] in (b"{", b"[") else describe_beginning(text[:BEGINNING_BYTES])
    return f"it is not JSON: {error}" if known is None else known
