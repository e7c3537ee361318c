"""Those who hide where a model comes from, and those who forge it: what lines say of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from scipy.linalg import hadamard

from modelkin.core.fingerprints.anatomy import anatomy
from modelkin.core.fingerprints.lines import size_of_set, walk
from modelkin.core.fingerprints.sources import words_of
from studies.cells import Figures
from studies.lines.comparing import Made, fingerprints_of, share_of_lines
from studies.lines.guises import noisy, rounded
from studies.lines.llama import WRITERS, permuted_units
from studies.lines.networks.texts import LLAMA
from studies.lines.rounding import each_matrix
from studies.lines.trained import Trained
from studies.lines.zoo import Tensors, Zoo, loaded, tensors_of
from studies.sections.paragraphs import table

__all__ = ["BASE", "DERIVED", "STRANGER", "TURNED", "WHOLE", "hiding_figures", "section"]

Floats = npt.NDArray[np.float32]

TURNED: Final = (
    "rotated",
    "pairs of coordinates turned by 45°",
    "rotated by signs and Hadamard, as QuaRot does",
)
"""What leaves the function of a network as it is."""
WHOLE: Final = "all matrices, in unused tensors"
"""The forgery by which a file does hold the base."""
_VERDICTS: Final = ("unknown", "related", "reuses", "derived", "part", "copy")
DERIVED: Final = _VERDICTS.index("derived")
"""The number of this verdict; those behind it say more."""
BASE: Final = "the base"
STRANGER: Final = "a stranger"
_COARSE: Final = 32
_BATCHES: Final = 40
_SMALL: Final = "model.layers.1.self_attn.k_proj.weight"
_EMBEDDINGS: Final = "model.embed_tokens.weight"
_HEAD: Final = "lm_head.weight"
_READERS: Final = {
    "input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj"),
}
_HIDING: Final = """\
What was done to the LLaMA-like network so that its base is not found, and its loss on texts of the
kind that the base was trained on. The last column is of one key in 32, some 650: no more than a
hub looks a large model up by.
"""
_FORGING: Final = """\
What a stranger put of the base into its own file, so that it looks derived.
"""


def hiding_figures(zoo: Zoo, longest: int | None = None, batches: int = _BATCHES) -> Figures:
    """What is left of a base that hides, what it costs, and what a stranger that forges is told.

    Weights of the zoo that were trained on other texts have another tokenizer: their losses are
    those of untrained networks, which a gate says.

    Args:
        zoo: has the weights, or gets them.
        longest: as of :class:`Trained`.
        batches: of texts that the loss is of.
    """
    trained = Trained(LLAMA, zoo, longest)
    base, stranger = trained.base(), trained.base(1)
    own = fingerprints_of(base)
    figures: Figures = {}
    for name, tensors in ((BASE, base), (STRANGER, stranger), *_hidden(trained)):
        figures[name] = _answered(tensors, own) | {"loss": _loss(tensors, batches)}
    return figures | {name: _answered(each, own) for name, each in _forged(stranger, base)}


def section(figures: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Both tables."""
    least = figures[BASE]["loss"]
    stranger = figures[STRANGER]["loss"]
    yield f"{_HIDING.strip()} Of the base that is {least:.2f}, and of a stranger {stranger:.2f}."
    yield table(
        ("done to the weights", "loss", "lines found", "what is said", "with one key in 32"),
        [
            (
                name,
                f"{round(row['loss'] - least, 3) + 0.0:+.3f}",
                f"{row['lines']:.3f}",
                _said(row["said"]),
                _said(row["said at 32"]),
            )
            for name, row in figures.items()
            if "loss" in row and name not in (BASE, STRANGER)
        ],
    )
    yield _FORGING
    yield table(
        ("put into a stranger's checkpoint", "what is said", "lines", "parameters"),
        [
            (name, _said(row["said"]), f"{row['usual lines']:.1%}", f"{row['parameters']:.1%}")
            for name, row in figures.items()
            if "loss" not in row
        ],
    )


def _said(verdict: float) -> str:
    return words_of(_VERDICTS[int(verdict)])


def _answered(tensors: Tensors, base: Made) -> dict[str, float]:
    """What an anatomy says of a checkpoint and the base, and the shares that are found."""
    child = fingerprints_of(tensors)
    figures = {"lines": share_of_lines(child.whole, base.whole)}
    for title, scale in (("", None), (f" at {_COARSE}", _COARSE)):
        answer = anatomy(child.seen(scale), {"base": base.seen(scale)})
        figures[f"said{title}"] = _VERDICTS.index(answer.verdict)
        if scale is None:
            [*parents] = answer.parents
            figures["usual lines"] = sum(each.share_of_lines for each in parents)
            figures["parameters"] = sum(each.share_of_parameters for each in parents)
    return figures


def _loss(tensors: Tensors, batches: int) -> float:
    """The mean loss on the same stretches of texts, of the half that bases are trained on."""
    network, draw = loaded(LLAMA.build(), tensors).eval(), np.random.default_rng(5)
    with torch.no_grad():
        losses = [LLAMA.loss(network, LLAMA.batch(draw, False)).item() for _ in range(batches)]
    return float(np.mean(losses))


def _hidden(trained: Trained) -> Iterator[tuple[str, Tensors]]:
    base = trained.base()
    draw = np.random.default_rng(0)
    width = base[_EMBEDDINGS].shape[1]
    signs = draw.choice((-1.0, 1.0), width)
    normal = np.linalg.qr(draw.standard_normal((width, width)))[0]
    pairs = np.kron(np.eye(width // 2), np.array([[1, -1], [1, 1]]) / np.sqrt(2))
    turns = (normal, pairs, signs[:, np.newaxis] * hadamard(width) / np.sqrt(width))
    for name, turn in zip(TURNED, turns, strict=True):
        yield name, _turned(base, turn)
    clipped = noisy(each_matrix(base, partial(_clipped, 0.1)), 0.05, draw).tensors
    yield "greatest 10% of each row and column clipped, 5% noise", clipped
    yield "and then trained 40 steps", trained.kept("hidden", partial(_retrained, trained, clipped))
    permuted = _turned(permuted_units(base, draw).tensors, np.eye(width)[draw.permutation(width)])
    yield "stream and units permuted", permuted
    yield "and clipped at 5%", each_matrix(permuted, partial(_clipped, 0.05))
    yield "and noise of .2 of the deviation instead", noisy(permuted, 0.2, draw).tensors
    for sigmas in (0.3, 0.5):
        yield (
            f"noise of {sigmas:g} of the deviation".replace("0.", "."),
            noisy(base, sigmas, draw).tensors,
        )
    yield "a member of each line's key demoted", each_matrix(base, _demoted)
    for name in ("Q3_K, imitated", "Q2_K, imitated"):
        yield name, rounded(base, name).tensors


def _forged(stranger: Tensors, base: Tensors) -> Iterator[tuple[str, Tensors]]:
    """Strangers that hold something of a base."""
    matrices = {name: values for name, values in base.items() if values.ndim == 2}
    yield f"one small matrix of {len(matrices)}", stranger | {_SMALL: base[_SMALL]}
    yield "that in an unused tensor, scaled", stranger | {"unused": 1e-6 * base[_SMALL]}
    yield "the embeddings", stranger | {_EMBEDDINGS: base[_EMBEDDINGS]}
    head, tokens = stranger[_HEAD], stranger[_EMBEDDINGS]
    for count in (25, 100):
        mixed = np.concatenate([base[_HEAD][:count], head[count:]])
        yield f"{count} rows of a head of {len(head):,}", stranger | {_HEAD: mixed}
    padded = np.concatenate([tokens, base[_EMBEDDINGS][:200]])
    yield "200 rows of padding", stranger | {_EMBEDDINGS: padded}
    yield WHOLE, stranger | {f"unused.{name}": values for name, values in matrices.items()}


def _turned(base: Tensors, rotation: npt.NDArray[np.float64]) -> Tensors:
    """The same function in a rotated stream: gains are folded into what reads it, then it turns."""
    tensors = dict(base)
    for name, gains in base.items():
        for norm, readers in _READERS.items():
            if name.endswith(f"{norm}.weight"):
                layer = name.removesuffix(f"{norm}.weight")
                tensors |= {
                    f"{layer}{e}.weight": base[f"{layer}{e}.weight"] * gains for e in readers
                }
    tensors[_HEAD] = base[_HEAD] * base["model.norm.weight"]
    turn = rotation.astype(np.float32)
    return {
        name: np.ones_like(values)
        if values.ndim == 1
        else np.ascontiguousarray(turn.T @ values if name.endswith(WRITERS) else values @ turn)
        for name, values in tensors.items()
    }


def _clipped(share: float, values: Floats) -> Floats:
    """The greatest magnitudes of each row, then of each column, cut to the next one."""
    for axis in (1, 0):
        most = np.quantile(np.abs(values), 1 - share, axis=axis, keepdims=True)
        values = np.clip(values, -most, most).astype(np.float32)
    return values


def _demoted(values: Floats) -> Floats:
    """Of each row's set, then of each column's, the member that the walk meets first leaves."""
    for _ in range(2):
        scales = np.sqrt(np.square(values).mean(axis=0))
        scaled, lines = np.abs(values) / scales, np.arange(len(values))
        order = np.argsort(-scaled, axis=1)
        members, below = np.split(order, [size_of_set(values.shape[1])], axis=1)
        first = members[lines, walk(values.shape[1])[members].argmin(axis=1)]
        changed = values.copy()
        least = 0.99 * scaled[lines, below[:, 0]] * scales[first]
        changed[lines, first] = np.copysign(least, values[lines, first])
        values = np.ascontiguousarray(changed.T)
    return values


def _retrained(trained: Trained, tensors: Tensors) -> Tensors:
    network = loaded(LLAMA.build(), tensors)
    trained.train(network, steps=40, rate=0.3, seed=23, other=False)
    return tensors_of(network)
