"""Anatomies of models on disk: which of them each tensor of a checkpoint comes from.

``modelkin.anatomy`` needs no service. The method is ``modelkin.core.fingerprints``; files are read
here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Final, TypeAlias, cast

from modelkin._threads import Counting
from modelkin.checkpoints.files import Checkpoint
from modelkin.checkpoints.gguf.choosing import gguf_part_of
from modelkin.checkpoints.lines import fingerprint
from modelkin.checkpoints.opening import open_checkpoint
from modelkin.core.catalogues.catalogue import Catalogue
from modelkin.core.codecs import fingerprint as codec
from modelkin.core.fingerprints.anatomy import Anatomy
from modelkin.core.fingerprints.anatomy import anatomy as anatomy_of
from modelkin.core.fingerprints.fingerprint import Fingerprint, check_scale
from modelkin.core.quoting import quote
from modelkin.errors import InvalidFingerprint, InvalidImportance, InvalidParameter

__all__ = ["Model", "anatomy", "fingerprint_of", "is_fingerprint", "name_of"]

Model: TypeAlias = Fingerprint | Checkpoint | str | PathLike[str]
"""A fingerprint, an opened checkpoint, or the path of a file of one of them."""

_PLAIN: Final = frozenset({"model", "pytorch_model", "diffusion_pytorch_model", "consolidated"})
"""Names of files that most models have: their folders have the names of the models."""
_ENDINGS: Final = (".index.json", ".safetensors", ".gguf", ".mkfp")
"""What a name of a model does without."""


def anatomy(
    child: Model,
    parents: Model | Iterable[Model] | Mapping[str, Model] | Catalogue,
    *,
    scale: int | None = None,
) -> Anatomy:
    """Find which models the tensors of a checkpoint come from, whatever the layouts.

    Renamed, fused, moved, transposed, quantised and dropped tensors are found. Where nothing is,
    that proves nothing: a rotation of all weights hides each line.

    Args:
        child: the checkpoint: a ``Fingerprint``, the path of a checkpoint or of a file of a
            fingerprint, or an opened checkpoint.
        parents: the models that it may come from, likewise; one, several, or several by name. The
            name of a file is that of its model, where none is given. Or a ``Catalogue``, of which
            the bases are found that have lines of the checkpoint.
        scale: of the fingerprints that are made: 1 compares all lines, a power of two one in so
            many. By default as :func:`modelkin.checkpoints.fingerprint`. Two models are compared at
            the coarser of their scales.

    Raises:
        InvalidParameter: two models have one name, or there is none; a model is nothing of the
            above; the scale is no power of two.
        InvalidCheckpoint, InvalidFingerprint, InvalidImportance: a file is damaged, of another
            kind, an adapter, or has values that are NaN or infinite.
        InvalidCatalogue: the catalogue is damaged.
        MissingExtra: it is GGUF, and the package ``gguf`` is not installed.
        OSError: a file cannot be read.
    """
    if isinstance(parents, Catalogue):
        return parents.anatomy(fingerprint_of(child, scale))
    if isinstance(parents, Mapping):
        models = cast(Mapping[str, Model], parents)
    else:
        models = _named(_several(parents))
    if not models:
        raise InvalidParameter("give at least one model to compare with", field="parents")
    return anatomy_of(
        fingerprint_of(child, scale),
        {name: fingerprint_of(model, scale) for name, model in models.items()},
    )


def _named(models: Iterable[Model]) -> dict[str, Model]:
    """Models by their names.

    Raises:
        InvalidParameter: two have one name.
    """
    found = dict[str, Model]()
    for number, model in enumerate(models, 1):
        name = name_of(model) or f"model {number}"
        if name in found:
            raise InvalidParameter(
                f"two models are named {quote(name)}: give each a name of its own, as in "
                f"{{'first': ..., 'second': ...}}",
                field="parents",
            )
        found[name] = model
    return found


def name_of(model: Model) -> str | None:
    """The name of a model's file or folder, without what all have; None for a fingerprint."""
    if isinstance(model, Fingerprint):
        return None
    path = Path(os.path.abspath(model.path if isinstance(model, Checkpoint) else model))
    part, name = gguf_part_of(path.name), path.name
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    name = name if part is None else part.stem
    return path.parent.name if name in _PLAIN and not path.is_dir() else name


def fingerprint_of(
    model: Model, scale: int | None = None, count: Counting | None = None
) -> Fingerprint:
    """The fingerprint of a model, made where it is not given.

    Args:
        model: as for :func:`anatomy`.
        scale: of a fingerprint that is made.
        count: as for :func:`modelkin.checkpoints.fingerprint`.

    Raises: as :func:`anatomy`.
    """
    if scale is not None:
        check_scale(scale)
    if isinstance(model, Fingerprint):
        return model
    if isinstance(model, Checkpoint):
        with told_of(model.path):
            return fingerprint(model, scale=scale, count=count)
    if not isinstance(model, str | PathLike):
        raise InvalidParameter(
            f"a model must be a Fingerprint, an opened checkpoint or a path, not "
            f"{type(model).__name__}",
            field="parents",
        )
    if is_fingerprint(model):
        with told_of(model):
            return Fingerprint.load(model)
    return fingerprint_of(open_checkpoint(Path(model)), scale, count)


@contextmanager
def told_of(path: str | PathLike[str]) -> Iterator[None]:
    """Put the name of a file before errors that name a value in it, since several are read."""
    try:
        yield
    except (InvalidFingerprint, InvalidImportance) as error:
        raise type(error)(f"{os.fspath(path)}: {error}", field=error.field) from None


def is_fingerprint(path: str | PathLike[str]) -> bool:
    """Whether a file has a fingerprint, by its first bytes."""
    if not Path(path).is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(codec.MAGIC)) == codec.MAGIC


def _several(parents: Model | Iterable[Model]) -> Iterable[Model]:
    if isinstance(parents, Fingerprint | Checkpoint | str | PathLike):
        return [parents]
    return parents
