"""A small transformer of one language, and clients that adapt it to dialects by LoRA of any ranks.

A language is a chain of words: each word has a few likely successors. In a dialect some words have
the successors of others. So perplexity has a floor that is known, and none reaches it with the few
sentences that a client has. All clients train side by side: factors of lower ranks are padded with
zeros, which no gradient moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, gelu, layer_norm, scaled_dot_product_attention

__all__ = [
    "GROUPS",
    "RANKS",
    "SCALE",
    "SHAPES",
    "Clients",
    "Factors",
    "begin",
    "clients_of",
    "factors_of",
    "fisher",
    "losses",
    "tensors_of",
    "train",
]

WORDS, LENGTH, SUCCESSORS = 32, 24, 4
WIDTH, HEADS, LAYERS = 32, 4, 2
GROUPS: Final = 3
RANKS: Final = (2, 4, 8, 16)
"""The ranks of a group's clients, one of each."""
SCALE: Final = 2.0
"""α/r of all clients: means of A and of B, which know no scale, are not the worse for it."""
SENTENCES, TESTS, BATCH = 128, 100, 8
MOVED: Final = 0.6
"""The share of words whose successors a dialect exchanges."""
SHAPES: Final = {
    f"h.{layer}.{name}": shape
    for layer in range(LAYERS)
    for name, shape in {
        "q": (WIDTH, WIDTH),
        "v": (WIDTH, WIDTH),
        "up": (4 * WIDTH, WIDTH),
        "down": (WIDTH, 4 * WIDTH),
    }.items()
}
"""The layers that adapters change, by name: (out, in)."""

Weights: TypeAlias = dict[str, Tensor]
Factors: TypeAlias = dict[str, tuple[Tensor, Tensor]]
"""A and B of each layer, of all clients: ``(clients, r, in)`` and ``(clients, out, r)``."""


@dataclass(frozen=True)
class Clients:
    """A base, and clients of its dialects.

    Attributes:
        base: the weights of the transformer that knows the language.
        groups: the dialect of each client, ``(n,)``.
        ranks: the rank of each client, ``(n,)``.
        sentences: what each client has, ``(n, sentences, words)``.
        tests: sentences of its dialect that none has, likewise.
        floor: the perplexity of the dialect itself, of each client.
    """

    base: Weights
    groups: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.int64]
    sentences: Tensor
    tests: Tensor
    floor: npt.NDArray[np.float64]


def clients_of(seed: int, *, steps: int = 600, tests: int = TESTS) -> Clients:
    """Draw a language and its dialects, train the base on the language, and deal sentences.

    Args:
        seed: of all that is drawn.
        steps: of the base's training.
        tests: the sentences by which a dialect's perplexity is measured.
    """
    rng = np.random.default_rng([seed, 38])
    language = _language(rng)
    base = _trained_base(seed, _sentences(language, 64 * BATCH, rng), steps)
    dialects = [_dialect(language, rng) for _ in range(GROUPS)]
    groups = np.repeat(np.arange(GROUPS), len(RANKS))
    tested = [_sentences(each, tests, rng) for each in dialects]
    floors = np.array([_floor(each) for each in dialects])
    return Clients(
        base,
        groups,
        np.tile(RANKS, GROUPS),
        torch.stack([_sentences(dialects[group], SENTENCES, rng) for group in groups]),
        torch.stack([tested[group] for group in groups]),
        floors[groups],
    )


def begin(clients: Clients, seed: int, *, alike: bool = True) -> Factors:
    """Factors as a training begins: A is drawn, B is zero.

    Args:
        clients: the clients.
        seed: of what is drawn.
        alike: whether all draw the same rows, a lower rank the first of them; else each its own.
    """
    generator = torch.Generator().manual_seed(seed)
    most, count = max(RANKS), len(clients.ranks)
    used = torch.arange(most)[None, :, None] < torch.from_numpy(clients.ranks)[:, None, None]
    found: Factors = {}
    for name, (out, inner) in SHAPES.items():
        drawn = torch.rand(1 if alike else count, most, inner, generator=generator)
        found[name] = ((2 * drawn - 1) / inner**0.5 * used, torch.zeros(count, out, most))
    return found


def train(
    clients: Clients,
    factors: Factors,
    seed: int,
    *,
    steps: int = 30,
    added: Mapping[str, Tensor] | None = None,
) -> Factors:
    """The factors of all clients after some steps of AdamW on their own sentences.

    Args:
        clients: the clients.
        factors: where each begins.
        seed: of the order of the sentences.
        steps: how many.
        added: what is added to the base's layers, ``(clients, out, in)``.
    """
    held = {
        name: tuple(each.clone().requires_grad_() for each in pair)
        for name, pair in factors.items()
    }
    optimizer = torch.optim.AdamW([each for pair in held.values() for each in pair], 5e-3)
    generator = torch.Generator().manual_seed(seed)
    count = len(clients.ranks)
    for _ in range(steps):
        picked = torch.randint(SENTENCES, (count, BATCH), generator=generator)
        batch = clients.sentences[torch.arange(count)[:, None], picked]
        optimizer.zero_grad()
        _loss(clients, batch, held, added).sum().backward()
        optimizer.step()
    return {name: (a.detach(), b.detach()) for name, (a, b) in held.items()}


@torch.no_grad()
def losses(clients: Clients, added: Mapping[str, Tensor]) -> npt.NDArray[np.float64]:
    """The loss of each client's dialect in nats a word, with what is added to its layers."""
    return _loss(clients, clients.tests, {}, added).double().numpy()


def fisher(clients: Clients, sentences: int = 32) -> npt.NDArray[np.float32]:
    """The empirical Fisher of the base's layers before any adapter, ``(clients, parameters)``.

    Args:
        clients: the clients.
        sentences: how many of each client's are read, one by one.
    """
    summed = torch.zeros(len(clients.ranks), sum(out * inner for out, inner in SHAPES.values()))
    for at in range(sentences):
        added = {
            name: torch.zeros(len(clients.ranks), *shape, requires_grad=True)
            for name, shape in SHAPES.items()
        }
        _loss(clients, clients.sentences[:, at : at + 1], {}, added).sum().backward()
        gradients = [each.grad.flatten(1) for each in added.values() if each.grad is not None]
        summed += torch.cat(gradients, 1).square()
    return np.asarray(summed.numpy())


def tensors_of(
    clients: Clients, factors: Factors, number: int
) -> dict[str, npt.NDArray[np.float32]]:
    """A client's own factors by PEFT's names, of its own rank, with the alphas beside them."""
    rank, found = int(clients.ranks[number]), dict[str, npt.NDArray[np.float32]]()
    for name, (a, b) in factors.items():
        found[f"{name}.lora_A.weight"] = a[number, :rank].numpy().copy()
        found[f"{name}.lora_B.weight"] = b[number, :, :rank].numpy().copy()
        found[f"{name}.alpha"] = np.array(SCALE * rank, np.float32)
    return found


def factors_of(held: Sequence[Mapping[str, npt.NDArray[np.float32]]]) -> Factors:
    """The factors of all clients side by side, of tensors as :func:`tensors_of` makes them."""
    most, found = max(RANKS), dict[str, tuple[Tensor, Tensor]]()
    for name, (out, inner) in SHAPES.items():
        a, b = torch.zeros(len(held), most, inner), torch.zeros(len(held), out, most)
        for number, each in enumerate(held):
            left, right = each[f"{name}.lora_A.weight"], each[f"{name}.lora_B.weight"]
            a[number, : len(left)] = torch.from_numpy(left)
            b[number, :, : len(left)] = torch.from_numpy(right)
        found[name] = (a, b)
    return found


# --- the transformer ------------------------------------------------------------------------


def _loss(
    clients: Clients,
    sentences: Tensor,
    factors: Mapping[str, Sequence[Tensor]],
    added: Mapping[str, Tensor] | None,
) -> Tensor:
    """The mean loss of each client's sentences, ``(clients, sentences, words)``."""
    scaled = {name: (a, b * SCALE) for name, (a, b) in factors.items()}
    logits = _logits(clients.base, sentences[..., :-1], scaled, added or {})
    found = cross_entropy(logits.flatten(0, 2), sentences[..., 1:].flatten(), reduction="none")
    return found.reshape(len(sentences), -1).mean(1)


def _logits(
    base: Weights,
    sentences: Tensor,
    factors: Mapping[str, Sequence[Tensor]],
    added: Mapping[str, Tensor],
) -> Tensor:
    """The next words' logits, ``(clients, sentences, words, WORDS)``."""
    count, _, length = sentences.shape

    def linear(name: str, x: Tensor) -> Tensor:
        flat = x.reshape(count, -1, x.shape[-1])
        found = flat @ base[name].T
        if name in added:
            found = found + flat @ added[name].transpose(1, 2)
        if name in factors:
            a, b = factors[name]
            found = found + (flat @ a.transpose(1, 2)) @ b.transpose(1, 2)
        return found.reshape(*x.shape[:-1], -1)

    def normal(x: Tensor) -> Tensor:
        return layer_norm(x, (WIDTH,))

    x = base["words"][sentences] + base["places"][:length]
    for layer in range(LAYERS):
        at = f"h.{layer}."
        inputs = normal(x)
        q, k, v = (
            linear(at + each, inputs).unflatten(-1, (HEADS, -1)).transpose(-2, -3) for each in "qkv"
        )
        heads = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear(at + "o", heads.transpose(-2, -3).flatten(-2))
        x = x + linear(at + "down", gelu(linear(at + "up", normal(x))))
    found: Tensor = normal(x) @ base["words"].T
    return found


def _trained_base(seed: int, sentences: Tensor, steps: int) -> Weights:
    """A transformer that was trained on sentences of the language."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> Tensor:
        values: Tensor = torch.randn(shape, generator=generator) * shape[-1] ** -0.5
        return values.requires_grad_()

    base = {"words": drawn(WORDS, WIDTH), "places": drawn(LENGTH, WIDTH)}
    for layer in range(LAYERS):
        base |= {f"h.{layer}.{name}": drawn(WIDTH, WIDTH) for name in "qkvo"}
        base[f"h.{layer}.up"] = drawn(4 * WIDTH, WIDTH)
        base[f"h.{layer}.down"] = drawn(WIDTH, 4 * WIDTH)
    optimizer = torch.optim.AdamW(base.values(), 3e-3)
    for _ in range(steps):
        batch = sentences[torch.randint(len(sentences), (1, 4 * BATCH), generator=generator)]
        optimizer.zero_grad()
        logits = _logits(base, batch[..., :-1], {}, {})
        cross_entropy(logits.flatten(0, 2), batch[..., 1:].flatten()).backward()
        optimizer.step()
    return {name: each.detach() for name, each in base.items()}


# --- the language ---------------------------------------------------------------------------

Chain: TypeAlias = npt.NDArray[np.float64]
"""The probabilities of the next word, ``(WORDS, WORDS)``."""


def _language(rng: np.random.Generator) -> Chain:
    chain = np.full((WORDS, WORDS), 0.1 / WORDS)
    for word in range(WORDS):
        successors = rng.choice(WORDS, SUCCESSORS, replace=False)
        chain[word, successors] += 0.9 * rng.dirichlet(np.ones(SUCCESSORS))
    return chain


def _dialect(language: Chain, rng: np.random.Generator) -> Chain:
    moved = rng.choice(WORDS, round(MOVED * WORDS), replace=False)
    dialect = language.copy()
    dialect[moved] = language[np.roll(moved, 1)]
    return dialect


def _sentences(chain: Chain, count: int, rng: np.random.Generator) -> Tensor:
    """Sentences of the chain, ``(count, LENGTH)``."""
    sums = chain.cumsum(1)
    words = np.empty((count, LENGTH), np.int64)
    words[:, 0] = rng.integers(WORDS, size=count)
    for at in range(1, LENGTH):
        below = sums[words[:, at - 1]] < rng.random((count, 1))
        words[:, at] = np.minimum(below.sum(1), WORDS - 1)
    return torch.from_numpy(words)


def _floor(chain: Chain) -> float:
    """The perplexity of a chain whose first words are drawn alike, as sentences here are long."""
    at, entropy = np.full(WORDS, 1 / WORDS), -(chain * np.log(chain)).sum(1)
    total = 0.0
    for _ in range(LENGTH - 1):
        total += float(at @ entropy)
        at = at @ chain
    return float(np.exp(total / (LENGTH - 1)))
