"""Disclosure by supports: labels, members and revisions, to an outsider and to the service.

An outsider has the common weights and samples of each class. A service of blinded supports has no
key, but may know the labels of some clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from demo.data import Integers
from modelkin import Blinding, Support, select_support
from studies.attacks.membership import area, partial_correlation, shares_of
from studies.cells import Figures
from studies.federations import Federation, Floats
from studies.hub import Hub
from studies.measures import Oracle
from studies.settings import Setting, grid
from studies.tables.retrieval import supports_of

__all__ = [
    "KNOWN",
    "NAME",
    "OWN",
    "PRESENT",
    "Outsider",
    "auc",
    "figures",
    "gradients",
    "importances_of_classes",
    "inferred",
    "label_presence",
    "settings",
]

NAME: Final = "disclosure"
KNOWN: Final = (1, 5, 10, 20)
"""Clients whose labels the service knows."""

PRESENT: Final = 0.1
"""A client has a label if this share of its samples does."""
OWN: Final = 50
"""The most samples of each class that an outsider has."""
_SIGNATURES: Final = (64, 256, 1024)
_SHARDS: Final = (4, 16)
_REPLACED: Final = (0.5, 0.9)
_DRAWS: Final = 10
"""Choices of the clients whose labels are known, over which an attack is averaged."""
_CANDIDATES: Final = 20
"""Samples of each client whose membership is asked."""

Supports = Sequence[Support]
Scores = Callable[[Support, Support], float]


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """Both Dirichlet splits."""
    return grid(seeds, data, network)


def figures(setting: Setting, hub: Hub) -> Figures:
    """The area under the ROC curve of each attack, with the recall that is left beside it."""
    federation = Federation.of(setting)
    m = federation.importances.shape[1]
    supports = supports_of(federation, federation.importances, "10%")
    key = Blinding(f"{setting.seed:064x}", m)
    blinded = {name: key.blind(support) for name, support in supports.items()}
    found: Figures = {}
    similarity: Floats = np.empty(0)
    for word, models, under in (("whole", supports, None), ("blinded", blinded, key)):
        with hub.space(f"{setting.name}-{word}", models, m, under) as space:
            similarity = space.matrix()
            recall = Oracle(federation.mixes).recall(space.order(), 8)
            found[word] = {"R@8": recall}
    plain, hidden = list(supports.values()), list(blinded.values())
    rows = importances_of_classes(federation)
    classes = [select_support(row, k=plain[0].k) for row in rows]
    for name, own, theirs, score in _seen(federation, plain, hidden, classes):
        guesses = np.array([[score(a, b) for b in theirs] for a in own])
        found.setdefault(name, {})["label presence"] = label_presence(federation.mixes, guesses)
    found.update(_replaced(federation, plain, classes, hub))
    found.update(dict(_by_the_service(similarity, federation.mixes, setting.seed)))
    outsider = Outsider(federation)
    found["federation"] = {"n": federation.labels.shape[1], "own": outsider.own}
    found["members"] = _membership(federation, plain) | _beside_own(federation, plain, outsider)
    found["revisions"] = _linked(federation, key)
    return found


def importances_of_classes(federation: Federation) -> npt.NDArray[np.float32]:
    """The importance that an outsider expects of clients with one class, ``(classes, M)``."""
    samples, labels = federation.test_samples[0], federation.test_labels[0]
    of_class = [labels == c for c in range(federation.mixes.shape[1])]
    return np.stack([federation.importance_of(samples[own], labels[own]) for own in of_class])


def label_presence(mixes: Floats, guesses: Floats, least: float = PRESENT) -> float:
    """The AUC of "this client has this label", from likenesses of clients and classes.

    Args:
        mixes: the clients' true label distributions, ``(N, classes)``.
        guesses: how like each client is to a client of one class alone, of that shape.
        least: the share of its samples from which a client has a label.
    """
    return auc(mixes >= least, guesses - guesses.mean(axis=0))


def _seen(
    federation: Federation, plain: Supports, hidden: Supports, classes: Supports
) -> Iterator[tuple[str, Supports, Supports, Scores]]:
    """Each representation of the clients, of the outsider's classes, and how they are compared."""
    head = sum(p.numel() for p in list(federation.model.parameters())[-2:])
    body = plain[0].num_parameters - head
    yield "whole", plain, classes, _overlap
    yield "blinded", hidden, classes, _overlap
    yield "without the head", plain, classes, lambda a, b: _shared(a, b, 0, body)
    for count in _SIGNATURES:
        yield f"signature of {count}", plain, classes, _signed(count)
    yield "blinded signature of 256", hidden, classes, _signed(256)
    for shards in _SHARDS:
        rng = np.random.default_rng(federation.setting.seed)
        owner = rng.integers(0, shards, plain[0].num_parameters)
        yield f"one of {shards} shards", plain, classes, _in_shard(owner == 0)


def _overlap(a: Support, b: Support) -> float:
    return float(np.intersect1d(a.indices, b.indices, assume_unique=True).size)


def _shared(a: Support, b: Support, first: int, end: int) -> float:
    both = np.intersect1d(a.indices, b.indices, assume_unique=True)
    return float(((both >= first) & (both < end)).sum())


def _in_shard(inside: npt.NDArray[np.bool_]) -> Scores:
    def score(a: Support, b: Support) -> float:
        both = np.intersect1d(a.indices, b.indices, assume_unique=True)
        return float(inside[both.astype(np.intp)].sum())

    return score


def _signed(count: int) -> Scores:
    known: dict[int, npt.NDArray[np.uint32]] = {}

    def values(support: Support) -> npt.NDArray[np.uint32]:
        if id(support) not in known:
            known[id(support)] = np.asarray(support.signature(num_perm=count).values)
        return known[id(support)]

    return lambda a, b: float((values(a) == values(b)).mean())


def _replaced(
    federation: Federation, plain: Supports, classes: Supports, hub: Hub
) -> Iterator[tuple[str, dict[str, float]]]:
    """Randomised response: a share of the indices is replaced by any others."""
    m = plain[0].num_parameters
    for share in _REPLACED:
        rng = np.random.default_rng([federation.setting.seed, round(10 * share)])
        made = []
        for support in plain:
            kept = rng.choice(support.indices, round((1 - share) * support.k), replace=False)
            others = np.setdiff1d(np.arange(m), support.indices)
            drawn = rng.choice(others, support.k - kept.size, replace=False)
            made.append(Support.from_indices(np.union1d(kept, drawn), m))
        name = f"{share:.0%} replaced"
        space_name = f"{federation.setting.name}-{round(100 * share)}"
        with hub.space(space_name, dict(zip(federation.names, made, strict=True)), m) as space:
            recall = Oracle(federation.mixes).recall(space.order(), 8)
        guesses = np.array([[_overlap(a, b) for b in classes] for a in made])
        presence = label_presence(federation.mixes, guesses)
        yield name, {"R@8": recall, "label presence": presence}


def _by_the_service(
    similarity: Floats, mixes: Floats, seed: int
) -> Iterator[tuple[str, dict[str, float]]]:
    """Labels of the others, from answers about blinded supports and the labels of some."""
    ways = {
        "S": similarity,
        "S in steps of 0.05": np.round(similarity / 0.05) * 0.05,
        "S in steps of 0.1": np.round(similarity / 0.1) * 0.1,
        "names of the 8 nearest": _nearest(similarity, 8),
        "names of the 3 nearest": _nearest(similarity, 3),
    }
    rng = np.random.default_rng([seed, 5])
    orders = [rng.permutation(len(similarity)) for _ in range(_DRAWS)]
    for name, seen in ways.items():
        yield (
            f"the service, from {name}",
            {
                f"{count} known": float(
                    np.mean(
                        [inferred(seen, mixes, order[:count], order[count:]) for order in orders]
                    )
                )
                for count in KNOWN
                if count < len(similarity)
            },
        )


def inferred(seen: Floats, mixes: Floats, known: Integers, unknown: Integers) -> float:
    """The attack's AUC: clients are guessed to have what those near them are known to have."""
    classes = mixes.shape[1]
    base = mixes[known].mean(axis=0) if known.size > 1 else np.full(classes, 1 / classes)
    near = seen[np.ix_(unknown, known)] - seen[:, known].mean(axis=0)
    near = near - (near.mean(axis=1, keepdims=True) if known.size > 1 else 0)
    guesses = near @ (mixes[known] - base)
    guesses = (guesses - guesses.mean(axis=0)) / (guesses.std(axis=0) + 1e-9)
    present = mixes[unknown] >= PRESENT
    varied = present.any(axis=0) & ~present.all(axis=0)
    return auc(present[:, varied], guesses[:, varied])


def _nearest(similarity: Floats, count: int) -> Floats:
    """1 where a client is among the nearest of another, or it among those of the client."""
    off = similarity - 2 * np.eye(len(similarity))
    named = off >= np.sort(off, axis=1)[:, -count, None]
    return np.asarray(named | named.T, np.float64)


def _membership(federation: Federation, plain: Supports) -> dict[str, float]:
    """Whether a sample was a client's: members beside samples of the same classes, and of any."""
    samples, labels = federation.test_samples[0], federation.test_labels[0]
    rng = np.random.default_rng([federation.setting.seed, 6])
    scores: dict[str, list[Floats]] = {}
    for x, y, support in zip(federation.samples, federation.labels, plain, strict=True):
        chosen = torch.as_tensor(rng.choice(len(y), min(_CANDIDATES, len(y)), replace=False))
        same = [int(rng.choice(np.flatnonzero(labels == label))) for label in y[chosen]]
        anyone = rng.choice(len(labels), len(chosen), replace=False)
        mean = gradients(federation.model, x, y).mean(0)
        groups = {
            "members": (x[chosen], y[chosen]),
            "of the same classes": (samples[same], labels[same]),
            "of any class": (samples[anyone], labels[anyone]),
        }
        for name, (inputs, targets) in groups.items():
            each = gradients(federation.model, inputs, targets)
            scores.setdefault(f"gradients {name}", []).append(_along(each, mean))
            scores.setdefault(f"indices {name}", []).append(_inside(each, support))
    return {
        f"{seen}, {name}": float(
            np.mean(
                [
                    auc(np.r_[np.ones(len(a)), np.zeros(len(b))], np.r_[a, b])
                    for a, b in zip(
                        scores[f"{seen} members"], scores[f"{seen} {name}"], strict=True
                    )
                ]
            )
        )
        for seen in ("gradients", "indices")
        for name in ("of the same classes", "of any class")
    }


@dataclass(frozen=True)
class Outsider:
    """One who judges members by samples of its own, and is not asked about these.

    Attributes:
        federation: the clients; half of its test samples of each class are the outsider's own, of
            :data:`OWN` at most.
    """

    federation: Federation

    @cached_property
    def _of_class(self) -> list[tuple[Tensor, Tensor]]:
        """The numbers of its own samples of each class, and of the others."""
        labels = self.federation.test_labels[0]
        found = (
            torch.nonzero(labels == c).flatten() for c in range(self.federation.mixes.shape[1])
        )
        sizes = ((each, min(OWN, len(each) // 2)) for each in found)
        return [(each[:own], each[own:]) for each, own in sizes]

    @property
    def own(self) -> float:
        """Its samples of a class, on average."""
        return float(np.mean([len(own) for own, _ in self._of_class]))

    @cached_property
    def known(self) -> Tensor:
        """The gradients of its own samples, ``(r, M)``."""
        own = torch.cat([own for own, _ in self._of_class])
        samples, labels = self.federation.test_samples[0], self.federation.test_labels[0]
        return gradients(self.federation.model, samples[own], labels[own])

    def asked(self) -> Iterator[Tensor]:
        """The gradients of each client's candidates, ``(2 c, M)``: members, then as many others."""
        rng = np.random.default_rng([self.federation.setting.seed, 10])
        samples = self.federation.test_samples[0]
        for x, y in zip(self.federation.samples, self.federation.labels, strict=True):
            chosen = torch.as_tensor(rng.choice(len(y), min(_CANDIDATES, len(y)), replace=False))
            same = [int(rng.choice(self._of_class[label][1])) for label in y[chosen].tolist()]
            both = torch.cat([x[chosen], samples[same]])
            yield gradients(self.federation.model, both, y[chosen].repeat(2))


def _beside_own(federation: Federation, plain: Supports, outsider: Outsider) -> dict[str, float]:
    """The same of samples of the same classes, by what the outsider's own do not explain."""
    scores: dict[str, list[Floats]] = {"gradients": [], "indices": []}
    clients = zip(federation.samples, federation.labels, plain, outsider.asked(), strict=True)
    known = outsider.known, shares_of(outsider.known)
    for x, y, support, candidates in clients:
        mean = gradients(federation.model, x, y).mean(0)
        pairs = ((candidates, mean), (shares_of(candidates), _mask(support)))
        for (each, seen), own, found in zip(pairs, known, scores.values(), strict=True):
            found.append(partial_correlation(each[None], own, seen[None, None])[0])
    return {
        f"{seen}, of the same classes, beside own samples": area(np.concatenate(found))
        for seen, found in scores.items()
    }


def gradients(model: nn.Module, samples: Tensor, labels: Tensor) -> Tensor:
    """The gradient of each sample, shape ``(n, M)``."""
    weights = {name: values.detach() for name, values in model.named_parameters()}

    def loss(own: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(functional_call(model, own, (x[None],)), y[None])

    found = vmap(grad(loss), in_dims=(None, 0, 0))(weights, samples, labels)
    return torch.cat([values.flatten(1) for values in found.values()], dim=1)


def _along(each: Tensor, mean: Tensor) -> Floats:
    return torch.nn.functional.cosine_similarity(each, mean[None]).double().numpy()


def _inside(each: Tensor, support: Support) -> Floats:
    """How many of a sample's own K most important entries are in a support."""
    own = each.square().topk(support.k, dim=1).indices
    return _mask(support)[own].double().mean(dim=1).numpy()


def _mask(support: Support) -> Tensor:
    """True where a support has an index, ``(M,)``."""
    inside = torch.zeros(support.num_parameters, dtype=torch.bool)
    inside[torch.as_tensor(support.indices.astype(np.int64))] = True
    return inside


def _linked(federation: Federation, key: Blinding) -> dict[str, float]:
    """How often the nearest later revision is the client's own: each on half of its samples."""
    halves = []
    for part in (slice(0, None, 2), slice(1, None, 2)):
        rows = [
            federation.importance_of(x[part], y[part])
            for x, y in zip(federation.samples, federation.labels, strict=True)
        ]
        halves.append([select_support(row, fraction=0.1) for row in rows])
    before, after = halves
    other = Blinding(f"{federation.setting.seed + 1:064x}", key.num_parameters)
    again = {
        "in the clear, or under one key": after,
        "under a new key": [other.blind(support) for support in after],
    }
    first = dict.fromkeys(again, before)
    first["under a new key"] = [key.blind(support) for support in before]
    return {
        f"linked {name}": float(
            np.mean(
                [
                    np.argmax([_overlap(a, b) for b in later]) == number
                    for number, a in enumerate(first[name])
                ]
            )
        )
        for name, later in again.items()
    }


def auc(truth: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """The area under the ROC curve of scores for what is true of each; shapes are alike."""
    return float(roc_auc_score(np.ravel(truth), np.ravel(scores)))
