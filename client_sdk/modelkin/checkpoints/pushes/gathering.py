"""``gather``: what is to be pushed, by name, from a folder, from paths or from items."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from modelkin._validation import check_model_name, check_space_name, check_tags
from modelkin.checkpoints.anatomies import name_of
from modelkin.checkpoints.pushes.folders import Below, LeftOut, checkpoints_below
from modelkin.checkpoints.pushes.manifests import Entry, read_manifest
from modelkin.core.quoting import quote
from modelkin.errors import InvalidName, InvalidParameter
from modelkin.types.checkpoints.pushed import CheckpointItem, PushedCheckpoint
from modelkin.types.vocabulary import PushState

__all__ = ["Gathered", "Given", "NamedCheckpoint", "gather"]

Given = str | os.PathLike[str] | Iterable[str | os.PathLike[str] | CheckpointItem]
"""A folder, or checkpoints one by one."""

_MAX_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class NamedCheckpoint:
    """A checkpoint with the name of its model.

    Attributes:
        path: the path to open it by.
        model: the name.
        base_model: the base that a person named; None for what its files say.
        tags: the tags that a person named; None for those of its card.
        space: the space that a person named; None for that of all.
        has_card: whether the card of its folder is about it.
        root: the folder that its files have to be in; None for a path that a person named.
    """

    path: Path
    model: str
    base_model: str | None = None
    tags: tuple[str, ...] | None = None
    space: str | None = None
    has_card: bool = True
    root: Path | None = None


@dataclass(frozen=True, slots=True)
class Gathered:
    """The checkpoints to push, and what came of others already."""

    named: list[NamedCheckpoint]
    results: list[PushedCheckpoint]


def gather(given: Given, prefix: str, manifest: str | os.PathLike[str] | None) -> Gathered:
    """Find the checkpoints of a folder, or take those that are given, and name their models.

    Args:
        given: a folder; or a checkpoint, or several.
        prefix: the beginning of all names.
        manifest: the CSV file about the checkpoints of a folder.

    Raises:
        InvalidParameter: the manifest is wrong, or is given without a folder; an item is wrong.
        OSError: the folder or the manifest cannot be read, or a path does not exist.
    """
    if not isinstance(prefix, str):
        raise InvalidParameter(f"prefix must be a text, not {prefix!r}", field="prefix")
    if isinstance(given, str | os.PathLike) and os.path.isdir(given):
        names, results = _of_folder(Path(given), prefix, manifest)
    elif manifest is not None:
        raise InvalidParameter("a manifest is about a folder: give the folder", field="manifest")
    else:
        items = [given] if isinstance(given, str | os.PathLike) else list(given)
        names, results = [_of_item(item, prefix) for item in items], []
    taken = defaultdict[str, list[NamedCheckpoint]](list)
    for each in names:
        try:
            taken[check_model_name(each.model)].append(each)
        except InvalidName as error:
            remedy = "" if each.root is None else ": name it in a manifest"
            results.append(_failed(each.path, "", f"{error}{remedy}"))
    named = list[NamedCheckpoint]()
    for model, same in taken.items():
        if len(same) == 1:
            named.append(replace(same[0], model=model))
        else:
            results += [_failed(each.path, model, _clash(same)) for each in same]
    return Gathered(sorted(named, key=lambda each: each.model), results)


def _of_folder(
    root: Path, prefix: str, manifest: str | os.PathLike[str] | None
) -> tuple[list[NamedCheckpoint], list[PushedCheckpoint]]:
    content = checkpoints_below(root)
    results = [_left_out(each) for each in content.left_out]
    if manifest is None:
        return [_below(each, prefix, root) for each in content.found], results
    entries = read_manifest(Path(manifest))
    named, left = list[NamedCheckpoint](), {_key(each.path, root): each for each in content.found}
    names = Counter(each.name for each in content.found)
    shorter = {each.name: key for key, each in left.items() if names[each.name] == 1}
    reasons = {_key(each.path, root): each.reason for each in content.left_out}
    for entry in entries:
        found = left.pop(entry.path, None) or left.pop(shorter.get(entry.path, ""), None)
        if found is None:
            why = reasons.get(entry.path, "the folder has no checkpoint of this path")
            said = f"line {entry.line} of the manifest: {why}"
            name = prefix + entry.name if entry.name else ""
            results.append(_failed(root / entry.path, name, said))
        else:
            named.append(_below(found, prefix, root, entry))
    for each in left.values():
        said = "it is not in the manifest"
        results.append(PushedCheckpoint("", None, "skipped", said, path=str(each.path)))
    return named, results


def _below(found: Below, prefix: str, root: Path, entry: Entry | None = None) -> NamedCheckpoint:
    name = found.name if entry is None or entry.name is None else entry.name
    base, tags, space = (None,) * 3 if entry is None else (entry.base, entry.tags, entry.space)
    return NamedCheckpoint(
        found.path, prefix + name, base, tags, space, has_card=found.has_card, root=root
    )


def _of_item(given: Any, prefix: str) -> NamedCheckpoint:
    item = CheckpointItem(given) if isinstance(given, str | os.PathLike) else given
    if not isinstance(item, CheckpointItem):
        raise InvalidParameter(
            f"give a folder, or paths and CheckpointItem objects, not {type(given).__name__}",
            field="checkpoints",
        )
    path = Path(item.path)
    if not path.exists():
        raise FileNotFoundError(2, "No such file or folder", str(path))
    base = item.base_model
    return NamedCheckpoint(
        path,
        prefix + (name_of(path) or "") if item.model is None else check_model_name(item.model),
        None if base is None else check_model_name(base, field="base_model"),
        None if item.tags is None else tuple(check_tags(item.tags)),
        None if item.space is None else check_space_name(item.space),
    )


def _clash(same: Sequence[NamedCheckpoint]) -> str:
    shown = ", ".join(quote(_shown(each)) for each in same[:_MAX_SHOWN])
    more = f" and {len(same) - _MAX_SHOWN} more" if len(same) > _MAX_SHOWN else ""
    remedy = "name them in a manifest"
    if same[0].root is None:
        remedy = "give each a name, as in CheckpointItem(path, model)"
    return f"{len(same)} paths give this name, {shown}{more}: {remedy}"


def _shown(each: NamedCheckpoint) -> str:
    return str(each.path) if each.root is None else _key(each.path, each.root)


def _left_out(each: LeftOut) -> PushedCheckpoint:
    state: PushState = "failed" if each.is_error else "skipped"
    return PushedCheckpoint("", None, state, each.reason, path=str(each.path))


def _failed(path: Path, model: str, reason: str) -> PushedCheckpoint:
    return PushedCheckpoint(model, None, "failed", reason, path=str(path))


def _key(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()
