"""Weights of other formats as safetensors, and from there as any user's: support, push, answers."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from safetensors.numpy import save_file

from modelkin.checkpoints import open_checkpoint
from modelkin.cli.run import main as modelkin
from studies.hub import Hub, HubSpace
from studies.real.readers.cursor import Tensor, Tensors

__all__ = ["Checkpoints", "common", "saved"]

_NUMBERS: Final = count()
"""The numbers of spaces, which need different names."""


@contextmanager
def saved(models: Mapping[str, Tensors]) -> Iterator[Checkpoints]:
    """Models as safetensors, in a folder that is deleted at the end of the block.

    Args:
        models: the tensors of each, by its name.
    """
    with TemporaryDirectory(prefix="modelkin-real-") as folder:
        files = {}
        for number, (name, tensors) in enumerate(models.items()):
            files[name] = Path(folder) / f"{number:03d}.safetensors"
            whole = {key: np.ascontiguousarray(value) for key, value in tensors.items()}
            save_file(whole, files[name])
        yield Checkpoints(models, files)


class Checkpoints:
    """Models of one layout in files.

    Args:
        models: their tensors, by name.
        files: their safetensors.
    """

    def __init__(self, models: Mapping[str, Tensors], files: Mapping[str, Path]) -> None:
        self._models, self._files = models, files

    @property
    def names(self) -> list[str]:
        """The names of the models, in the order of all matrices."""
        return list(self._files)

    @property
    def parameters(self) -> int:
        """M, of the first model."""
        return sum(tensor.size for tensor in self._models[self.names[0]].values())

    def vectors(self, exclude: Sequence[str] = ()) -> Tensor:
        """The weights of each model, ``(N, M)``, for baselines that need values."""
        rows = [
            [tensors[name].ravel() for name in sorted(tensors) if name not in exclude]
            for tensors in self._models.values()
        ]
        return np.stack([np.concatenate(row) for row in rows])

    @contextmanager
    def pushed(self, hub: Hub, fraction: float, exclude: Sequence[str] = ()) -> Iterator[HubSpace]:
        """An index space with the supports of all models, deleted at the end of the block.

        Args:
            hub: the service.
            fraction: K as a share of M.
            exclude: tensors that are left out.
        """
        space = f"real-{next(_NUMBERS)}"
        first = next(iter(self._files.values()))
        layout = open_checkpoint(str(first), tuple(exclude)).layout
        hub.client.ensure_space(space, layout=layout, importance="weight")
        left_out = [word for name in exclude for word in ("--exclude", name)]
        try:
            for name, file in self._files.items():
                support = str(file.with_suffix(".mksp"))
                _run("support", str(file), "--fraction", f"{fraction}", *left_out, "-o", support)
                target = ("--url", hub.client.url, "--space", space, "--model", name)
                _run("push", support, *target)
            yield HubSpace(hub.client, space, self.names)
        finally:
            hub.client.spaces.delete(space)


def common(models: Mapping[str, Tensors]) -> dict[str, Tensors]:
    """The models with the tensors alone that all have, in the same shape."""
    shapes = [{name: t.shape for name, t in tensors.items()}.items() for tensors in models.values()]
    shared = {name for name, _ in set(shapes[0]).intersection(*shapes)}
    return {
        model: {name: tensor for name, tensor in tensors.items() if name in shared}
        for model, tensors in models.items()
    }


def _run(*words: str) -> None:
    """A command of modelkin, as it is typed.

    Raises:
        RuntimeError: it failed; says why.
    """
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        status = modelkin(words)
    if status:
        raise RuntimeError(f"modelkin {' '.join(words)}: {said.getvalue().strip()}")
