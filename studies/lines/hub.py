"""A hub of two families in many guises: who is kin to whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from modelkin.core.fingerprints.anatomy import anatomy
from modelkin.core.fingerprints.fingerprint import Fingerprint
from studies.cells import Figures
from studies.lines.comparing import fingerprints_of, log10_p
from studies.lines.llama import guises
from studies.lines.merges import merges
from studies.lines.trained import Trained
from studies.lines.upcycled import upcycled
from studies.lines.zoo import Tensors

__all__ = ["LIMITS", "Member", "checkpoints", "hub_figures", "members"]

LIMITS: Final = (-4, -6, -9, -13, -16)
"""Logarithms of P below which two models are said to be kin."""


@dataclass(frozen=True)
class Member:
    """A checkpoint of the hub.

    Attributes:
        name: what it is.
        families: those that it has lines of.
        fingerprint: by default settings.
    """

    name: str
    families: frozenset[str]
    fingerprint: Fingerprint


def members(trained: Trained) -> Iterator[Member]:
    """All checkpoints: two families that were trained apart on the same data."""
    for name, families, tensors in checkpoints(trained):
        yield Member(name, frozenset(families), fingerprints_of(tensors).usual)


def checkpoints(trained: Trained) -> Iterator[tuple[str, str, Tensors]]:
    """A name, a letter for each family, and the weights."""
    base, stranger = trained.base(), trained.base(1)
    first, second = (trained.fine_tuned(seed).tensors for seed in (11, 12))
    children = {each.name: each.tensors for each in trained.children()}
    yield "base", "A", base
    yield "initial weights", "A", trained.initial()
    yield "same initial weights", "A", trained.same_weights().tensors
    yield "second fine-tune", "A", second
    yield "stranger", "B", stranger
    for name, tensors in children.items():
        yield name, "A", tensors
    for each in upcycled(trained):
        yield each.name, "A", each.tensors
    dressed = {"base": base, "fine-tune": first, "LoRA": children["LoRA"]}
    dressed |= {"heavy": children["heavy"], "stranger": stranger}
    for seed, (name, tensors) in enumerate(dressed.items()):
        for guise in guises(tensors, seed):
            yield f"{name}, {guise.name}", "B" if name == "stranger" else "A", guise.tensors
    for name, tensors, _ in merges(base, first, second):
        yield f"merge, {name}", "A", tensors
    yield "layers of two fine-tunes", "A", _layers_of(first, second)
    yield "layers of two strangers", "AB", _layers_of(base, stranger)


def _layers_of(first: Tensors, second: Tensors) -> Tensors:
    of_second = ("layers.2.", "layers.3.")
    return {k: second[k] if any(n in k for n in of_second) else v for k, v in first.items()}


def hub_figures(trained: Trained) -> Figures:
    """Every pair: kin that are found and strangers that are taken for kin, by the limit of P."""
    hub = list(members(trained))
    kin, strangers, unlike = list[float](), list[float](), list[float]()
    layouts = [_layout(each.fingerprint) for each in hub]
    for at, one in enumerate(hub):
        for beyond, other in enumerate(hub[at + 1 :], at + 1):
            p = log10_p(one.fingerprint, other.fingerprint)
            is_kin = bool(one.families & other.families)
            (kin if is_kin else strangers).append(p)
            if is_kin and layouts[at] != layouts[beyond]:
                unlike.append(p)
    figures: Figures = {
        f"P below 1e{limit}": {
            "false": sum(p < limit for p in strangers),
            "recall": sum(p < limit for p in kin) / len(kin),
            "of two layouts": sum(p < limit for p in unlike) / len(unlike),
        }
        for limit in LIMITS
    }
    figures["pairs"] = {
        "checkpoints": len(hub),
        "kin": len(kin),
        "strangers": len(strangers),
        "kin of two layouts": len(unlike),
        "strangers' least log10 P": min(strangers),
    }
    return figures | {"answers": _answers(hub)}


def _layout(fingerprint: Fingerprint) -> frozenset[tuple[tuple[str, ...], tuple[int, ...]]]:
    return frozenset((each.names, each.shape) for each in fingerprint.tensors)


def _answers(hub: list[Member]) -> dict[str, float]:
    """The anatomy of each checkpoint among all others."""
    families = {each.name: each.families for each in hub}
    first, parents, false_parents, claims, wrong = 0, 0, 0, 0, 0
    for each in hub:
        others = {other.name: other.fingerprint for other in hub if other is not each}
        answer = anatomy(each.fingerprint, others)
        named = [families[parent.model] for parent in answer.parents]
        first += bool(named) and bool(named[0] & each.families)
        parents += len(named)
        false_parents += sum(not (family & each.families) for family in named)
        sources = [source for tensor in answer.tensors for source in tensor.sources]
        claims += len(sources)
        wrong += sum(not (families[source.model] & each.families) for source in sources)
    return {
        "first parent right": first,
        "parents": parents,
        "false parents": false_parents,
        "tensors' sources": claims,
        "of another family": wrong,
    }
