"""The rule for what a repository's weights are, from the names of its files alone.

The hub, the command line and the SDK go by it, so that the same files give the same support. It
follows what transformers and diffusers read by default: the top before folders, ``model`` before
other names, one file before an index, an index before numbered shards, a plain file before its
variants. Without safetensors, a repository's weights are its GGUF files, see :mod:`.gguf.choosing`.
No file is read here: the caller opens an index, and the rule says what follows from it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Final, Literal

from modelkin.checkpoints.candidates import (
    Candidate,
    candidates,
    is_index,
    is_weights,
    is_whole,
    shard_of,
)
from modelkin.checkpoints.gguf.choosing import choose_gguf, parts_of
from modelkin.core.adapters import CONFIG_NAME
from modelkin.core.file_formats import UnreadFormat, describe_unread, unread_rank
from modelkin.core.quoting import quote
from modelkin.errors import InvalidCheckpoint

__all__ = [
    "DEFAULTS",
    "PIPELINE",
    "Choice",
    "Shards",
    "choose",
    "choose_file",
    "components",
    "unread_components",
]

PIPELINE: Final = "model_index.json"
"""The file that lists the components of a diffusers pipeline."""

DEFAULTS: Final = ("model", "diffusion_pytorch_model", "adapter_model", "pytorch_lora_weights")
"""The names that transformers, diffusers and PEFT open without being asked for another."""
_ADAPTER: Final = "adapter_model.safetensors"
_VARIANT: Final = re.compile(
    r"(.+?)[._-](?:(?:fp|bf|f|int|nf|q)[0-9]+\w*|[0-9]bit|(?:non|no)[_-]ema\w*|ema\w*"
    r"|(?:step)?[0-9]{6,8})",
    re.IGNORECASE,
)
"""A variant's name, after that of the plain weights beside it; kohya's numbers of epochs, too."""
_OTHER_FORM: Final = ("consolidated", "original")
"""The names of a file, or a folder, with the same weights in the form of their maker's own code."""
_NUMBER: Final = re.compile(r"(?<![A-Za-z0-9])[0-9]+")
_MAX_NAME_BYTES: Final = 255
"""The longest file name of every file system."""
_BESIDE: Final = (
    CONFIG_NAME,
    "config.json",
    "quantize_config.json",
    "quant_config.json",
    "quantization_config.json",
    "hf_quant_config.json",
)
"""Small files beside the weights that say how these are to be read."""

Kind = Literal["file", "index", "shards", "pipeline"]


@dataclass(frozen=True, slots=True)
class Shards:
    """The files that hold the tensors of an index.

    Attributes:
        paths: the paths of the files, sorted.
        whole: whether they are all of one numbered set, and so the model is all that they hold;
            else it is what the index names.
        replaced: whether they are read in place of those that the index names.
        notes: remarks for people, a sentence each.
    """

    paths: tuple[str, ...]
    whole: bool
    replaced: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """The files of a repository that are read.

    Attributes:
        kind: ``file``: ``first`` is the checkpoint. ``index``: it names the shards, see
            :meth:`follow`. ``shards``: a numbered set without an index. ``pipeline``: it lists
            components, see :func:`components`.
        first: the path of the file to open first.
        shards: the paths of a numbered set without an index.
        beside: the paths of small files in its folder that say how the weights are read.
        notes: remarks for people, a sentence each.
        names: the names of all weights in the folder of ``first``.
    """

    kind: Kind
    first: str
    shards: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    names: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def is_adapter(self) -> bool:
        """Whether it is an adapter under the name that PEFT gives it."""
        return PurePosixPath(self.first).name == _ADAPTER

    def follow(self, named: Collection[str], where: str) -> Shards:
        """The files to read, by the files that the index names.

        An index of files that are not there is an old one where the folder holds a whole numbered
        set under its name; that set is read in its place.

        Raises:
            InvalidCheckpoint: files are missing, and no set is whole.
        """
        path = PurePosixPath(self.first)
        wanted = sorted(set(named))
        missing = [name for name in wanted if name not in self.names]
        if not missing:
            notes = _aside_note(path.name, self.names - {path.name, *wanted})
            return Shards(_paths(path.parent, wanted), is_whole(wanted), notes=notes)
        own = next(c for c in candidates(self.names).values() if c.index == path.name)
        begun = self.names.intersection(wanted)
        sets = own.whole_sets
        if len(sets) != 1 or not begun.issubset(sets[0]):
            raise InvalidCheckpoint(
                f"{where} lacks {len(missing)} of {len(wanted)} shards that {quote(self.first)} "
                f"names: {_join(missing)}: its upload is not complete, or the index is an old one"
            )
        [found] = sets
        note = (
            f"{quote(path.name)} names {len(missing)} files that are not there, such as "
            f"{quote(missing[0])}: the {len(found)} shards beside it are read, which are complete"
        )
        notes = (note, *_aside_note(found[0], self.names - {path.name, *found}))
        return Shards(_paths(path.parent, found), whole=True, replaced=True, notes=notes)


def choose(files: Iterable[str], where: str) -> Choice:
    """Choose the checkpoint that lies nearest to the top of a repository.

    Args:
        files: the paths of all files, with ``/`` between folders.
        where: the name of the repository in errors.

    Raises:
        UnreadFormat: there is no file of weights that is read.
        InvalidCheckpoint: the checkpoint is not complete, or the choice is ambiguous.
    """
    files = list(files)
    folders = _folders(files, where)
    if not folders:
        return _gguf_choice(files, where)
    nearest = min(len(folder.parts) for folder in folders)
    pipeline = _pipeline(files, folders)
    if pipeline is not None and len(pipeline.parts) <= nearest:
        return _pipeline_choice(pipeline, folders.get(pipeline, ()))
    top = sorted(folder for folder in folders if len(folder.parts) == nearest)
    if len(top) > 1:
        top = [folder for folder in top if folder.name not in _OTHER_FORM] or top
    if len(top) > 1:
        raise InvalidCheckpoint(
            f"{where} holds several checkpoints, in {_join([f'{folder}/' for folder in top])}: "
            f"give one of these folders, or keep one"
        )
    return _in_folder(top[0], folders[top[0]], files, where)


def choose_file(name: str, files: Iterable[str]) -> Choice:
    """The choice of a file that a person gives by its name.

    Args:
        name: the name of the file.
        files: the names of all files of its folder.

    Raises:
        InvalidCheckpoint: it is one of several shards, and not the first of a split GGUF file.
    """
    files = set(files)
    if parts := parts_of(name, files):
        return Choice("shards", name, shards=parts)
    names = frozenset(filter(is_weights, files)) | {name}
    beside = tuple(n for n in _BESIDE if n in files)
    shard = shard_of(name)
    if shard is not None and shard.total > 1:
        index = candidates(names)[shard.checkpoint].index
        remedy = "" if index is None else f", or {index}"
        raise InvalidCheckpoint(
            f"{name}: it is one of {shard.total} shards: give their folder{remedy}"
        )
    kind: Kind = "index" if is_index(name) else "file"
    return Choice(kind, name, beside=beside, names=names)


def components(
    choice: Choice, listed: Collection[str], files: Iterable[str], where: str
) -> dict[str, Choice]:
    """The components of a pipeline that have weights, by their names.

    Args:
        choice: the pipeline.
        listed: the names that its ``model_index.json`` lists.
        files: the paths of all files of the repository.

    Raises:
        InvalidCheckpoint: none has weights, or the choice within one is ambiguous.
    """
    files = list(files)
    parent = PurePosixPath(choice.first).parent
    folders = _folders(files, where)
    found = {
        name: _in_folder(parent / name, folders[parent / name], files, f"{where}/{name}")
        for name in sorted(listed)
        if parent / name in folders
    }
    if not found:
        raise InvalidCheckpoint(
            f"{where} is a pipeline, and none of the components that {quote(choice.first)} lists "
            f"has a safetensors file{_unread(files)}"
        )
    return found


def unread_components(
    choice: Choice, listed: Collection[str], files: Iterable[str]
) -> dict[str, str]:
    """The components of a pipeline whose weights are of a format that is not read, with the reason.

    Args:
        choice: the pipeline; ``listed`` and ``files`` as of :func:`components`.
    """
    parent = PurePosixPath(choice.first).parent
    wanted = {str(parent / name): name for name in listed}
    inside: dict[str, list[str]] = {}
    for file in files:
        name = wanted.get(file.rpartition("/")[0])
        if name is not None:
            inside.setdefault(name, []).append(file)
    found = {}
    for name, held in sorted(inside.items()):
        told = describe_unread(_likeliest(held))
        if told is not None and not any(is_weights(file.rpartition("/")[2]) for file in held):
            found[name] = told
    return found


def _gguf_choice(files: Sequence[str], where: str) -> Choice:
    """The choice of a repository without safetensors."""
    found = choose_gguf(files, where)
    if found is None:
        raise UnreadFormat(f"{where} holds no safetensors or GGUF file{_unread(files)}")
    kind: Kind = "shards" if len(found.paths) > 1 else "file"
    shards = found.paths if kind == "shards" else ()
    return Choice(kind, found.paths[0], shards=shards, notes=found.notes)


def _folders(files: Sequence[str], where: str) -> dict[PurePosixPath, list[str]]:
    """The names of weights by their folders."""
    named: dict[str, list[str]] = {}
    for file in files:
        parent, _, name = file.rpartition("/")
        if not is_weights(name):
            continue
        if len(name.encode()) > _MAX_NAME_BYTES:
            raise InvalidCheckpoint(
                f"{where} holds {name[:50]!a}..., whose name has more than {_MAX_NAME_BYTES} "
                f"bytes: no file can have it here"
            )
        named.setdefault(parent, []).append(name)
    folders: dict[PurePosixPath, list[str]] = {}
    for parent, names in named.items():
        folders.setdefault(PurePosixPath(parent), []).extend(names)
    return folders


def _pipeline(files: Sequence[str], folders: Collection[PurePosixPath]) -> PurePosixPath | None:
    """The folder nearest to the top with a pipeline whose components have weights."""
    parents = {folder.parent for folder in folders if folder.parts}
    found = [PurePosixPath(file).parent for file in files if file.rpartition("/")[2] == PIPELINE]
    pipelines = sorted(set(found) & parents, key=lambda folder: (len(folder.parts), folder))
    return pipelines[0] if pipelines else None


def _pipeline_choice(folder: PurePosixPath, beside: Iterable[str]) -> Choice:
    aside = sorted(beside)
    note = (
        f"it is a pipeline, whose components are read: {_join(aside)} beside them "
        f"{'is' if len(aside) == 1 else 'are'} left aside"
    )
    return Choice("pipeline", str(folder / PIPELINE), notes=(note,) if aside else ())


def _in_folder(
    folder: PurePosixPath, names: Sequence[str], files: Sequence[str], where: str
) -> Choice:
    """The choice within one folder."""
    found = candidates(names)
    name = _checkpoint(found, where)
    chosen = found[name]
    held = set(files)
    beside = tuple(path for path in _paths(folder, _BESIDE) if path in held)
    choice = Choice("file", "", beside=beside, names=frozenset(names))
    if chosen.file is not None:
        notes = _aside_note(chosen.file, set(names) - {chosen.file})
        return replace(choice, first=str(folder / chosen.file), notes=notes)
    if chosen.index is not None:
        return replace(choice, kind="index", first=str(folder / chosen.index))
    if len(sets := chosen.whole_sets) == 1:
        shards = _paths(folder, sets[0])
        notes = _aside_note(sets[0][0], set(names).difference(sets[0]))
        choice = replace(choice, first=shards[0], notes=notes)
        return choice if len(shards) == 1 else replace(choice, kind="shards", shards=shards)
    if len(sets) > 1:
        raise InvalidCheckpoint(
            f"{where} holds {len(sets)} whole sets of shards, of {_join([s[0] for s in sets])}, "
            f"and no {name}.safetensors.index.json says which counts: keep one of them"
        )
    raise InvalidCheckpoint(
        f"{where} holds shards, {_join(chosen.names)}, which are no whole set, and no "
        f"{name}.safetensors.index.json to go by: its upload is not complete"
    )


def _aside_note(read: str, aside: Collection[str]) -> tuple[str, ...]:
    """The note on other weights in the folder of those that are read; none without any."""
    if not aside:
        return ()
    return (f"{quote(read)} is read, and {_join(sorted(aside))} beside it left aside",)


def _checkpoint(found: Mapping[str, Candidate], where: str) -> str:
    """The name of the checkpoint that is read among those of a folder."""
    for default in DEFAULTS:
        if default in found:
            return default
    plain = [name for name in found if not _is_aside(name, found)] or list(found)
    indexed = [name for name in plain if found[name].index is not None]
    for names in (indexed, plain):
        if len(names) == 1:
            return names[0]
        if names:
            break
    files = [n for name in indexed or plain for n in found[name].names[:1]]
    if len({_NUMBER.sub("", name) for name in files}) == 1:
        raise InvalidCheckpoint(
            f"{where} holds {_join(files)}, whose names differ in their numbers alone: if they are "
            f"parts of one model, save it whole or with its index; if each is a model, give one"
        )
    raise InvalidCheckpoint(
        f"{where} holds several checkpoints, {_join(files)}, and none is named "
        f"{DEFAULTS[0]}.safetensors: give one of them, or name it so"
    )


def _is_aside(name: str, found: Collection[str]) -> bool:
    """Whether a checkpoint is a variant of another one, or the same in another form."""
    if name in _OTHER_FORM:
        return len(found) > 1
    variant = _VARIANT.fullmatch(name)
    return variant is not None and variant[1] in found


def _unread(files: Sequence[str]) -> str:
    """Words about a file of a format that is not read, and what would do."""
    told = describe_unread(_likeliest(files))
    if told is not None:
        return f", and {told}"
    loud = [file for file in files if file.lower().endswith((".safetensors", ".gguf"))]
    if loud:
        return f": endings are read in small letters, so rename or give {quote(loud[0])}"
    return ": save the weights as model.safetensors"


def _likeliest(files: Iterable[str]) -> str:
    """The file that is named for all: of the likeliest format, the first by name."""
    return min(((unread_rank(file), file) for file in files), default=(0, ""))[1]


def _paths(folder: PurePosixPath, names: Iterable[str]) -> tuple[str, ...]:
    before = f"{folder}/" if folder.parts else ""
    return tuple(before + name for name in names)


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(quote(name) for name in names[:3]) + more
