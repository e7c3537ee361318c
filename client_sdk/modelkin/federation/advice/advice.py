"""``advise``: what to train, by the measured federation that one's own is most like.

Supports do not show what a model would learn. So each answer rests on federations that were trained
in every way, whose supports are known: the nearest ones by structure decide, and are named. Where
these disagree, as turned images and uneven labels may, the answer is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from modelkin.errors import InvalidParameter
from modelkin.federation.advice.federations import Measured
from modelkin.federation.advice.measured import MEASURED
from modelkin.federation.advice.structure import Structure

__all__ = ["Advice", "Answer", "advise"]

Take: TypeAlias = Literal["yes", "no", "either", "not known"]

_SCALES: Final = (0.15, 0.15, 0.2)
"""What counts as far in kappa, in the silhouette, and in groups a client."""
_FAR: Final = 2.0
"""The distance from which a federation is like none that was measured."""
_NEAR: Final = 1.25
"""How much farther than the nearest one other federations may be, and count as well: two seeds of
one federation are as far apart."""
_DECIDED: Final = 0.005
"""The difference of two accuracies of a study of ten seeds from which one is better."""
_BETTER: Final = 0.015
"""The same of five seeds."""
_RARE: Final = 2.0
"""The cover, over the median, of clients that have what no other has."""
_MOST_RARE: Final = 0.25
"""The largest share of all clients that such clients are."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with its reason.

    Attributes:
        question: what was asked.
        take: the answer.
        why: the reason, in a sentence, with the accuracies that were measured.
    """

    question: str
    take: Take
    why: str


@dataclass(frozen=True, slots=True)
class Advice:
    """Answers for a federation.

    Attributes:
        structure: what its supports show.
        like: the measured federation that it is most like.
        distance: how unlike that is: 0 is the same, and from 2 on it is like none.
        near: the measured federations that are about as near, the nearest first; none where it is
            like none.
        answers: on groups, mixed models, personal heads, weights and robust means, in this order.
    """

    structure: Structure
    like: Measured
    distance: float
    near: tuple[Measured, ...]
    answers: tuple[Answer, ...]

    @property
    def is_like(self) -> bool:
        """Whether the measured federation is near enough to decide."""
        return self.distance < _FAR


def advise(structure: Structure, samples: Sequence[int] | None = None) -> Advice:
    """Answer whether groups, mixed models, personal heads, weights and robust means pay.

    Args:
        structure: of the federation's supports.
        samples: how many samples each client has, in the same order; None where that is not known.

    Raises:
        InvalidParameter: ``samples`` are not one a client.
    """
    if samples is not None and len(samples) != structure.clients:
        raise InvalidParameter(
            f"there are {structure.clients} clients, and {len(samples)} numbers of samples",
            field="samples",
        )
    ranked = sorted(((_distance(structure, each), each) for each in MEASURED), key=lambda it: it[0])
    distance, like = ranked[0]
    limit = min(distance + _NEAR, _FAR)
    near = tuple(each for apart, each in ranked if apart < limit)
    found = Advice(structure, like, distance, near, ())
    answers = (
        _groups(found),
        _mixed(found),
        _heads(found),
        _weights(structure, samples),
        _ROBUST,
    )
    return replace(found, answers=answers)


def _distance(structure: Structure, other: Measured) -> float:
    ours = structure.kappa, structure.silhouette, structure.groups / structure.clients
    theirs = other.kappa, other.silhouette, other.groups
    return math.dist(
        [a / scale for a, scale in zip(ours, _SCALES, strict=True)],
        [b / scale for b, scale in zip(theirs, _SCALES, strict=True)],
    )


def _groups(found: Advice) -> Answer:
    question, like = "a model for each group", found.like
    measured = (
        f"by groups {like.by_groups:.3f}, one model {like.one_model:.3f}, "
        f"each alone {like.alone:.3f}"
    )
    if not found.is_like:
        return _like_none(found, question)
    if found.structure.groups == 1:
        if like.hides_groups:
            why = f"no group stands out, and groups may hide, as there: {measured}"
            return Answer(question, "not known", why)
        hidden = next(each for each in MEASURED if each.hides_groups)
        return Answer(
            question,
            "no",
            f"no group stands out: {measured}. Groups may hide: with {hidden.name}, "
            f"{hidden.by_groups:.3f} where their number is given, {hidden.one_model:.3f} else",
        )
    takes = {each.name: _of_groups(each) for each in found.near}
    if _differ(takes):
        return Answer(question, "not known", _disagree(takes, "a model for each group"))
    why = measured + _agree(found)
    if takes[like.name] == "no":
        better = "one model for all" if like.one_model > like.alone else "each client alone"
        why = f"groups are there, and {better} is better: {why}"
    return Answer(question, takes[like.name], why)


def _of_groups(measured: Measured) -> Take:
    """Whether a model for each group was better where a federation was trained."""
    gain = measured.by_groups - max(measured.one_model, measured.alone)
    if abs(gain) <= _DECIDED:
        return "either"
    return "yes" if gain > 0 else "no"


def _agree(found: Advice) -> str:
    others = len(found.near) - 1
    return f"; as with {others} more that are about as near" if others else ""


def _differ(takes: Mapping[str, Take]) -> bool:
    """Whether a way pays in one federation, and not in another one."""
    return len({take == "yes" for take in takes.values()}) > 1


def _disagree(takes: Mapping[str, Take], what: str) -> str:
    """The reason of an answer that federations which are about as near contradict."""
    better = [name for name, take in takes.items() if take == "yes"]
    others = [name for name, take in takes.items() if take != "yes"]
    return (
        f"about as near are federations where {what} pays ({'; '.join(better)}) and where it does "
        f"not ({'; '.join(others)}): train both ways, and compare"
    )


def _mixed(found: Advice) -> Answer:
    question = "a quarter of the group's model in one for all"
    return _beside(found, question, lambda each: each.mixed)


def _heads(found: Advice) -> Answer:
    return _beside(found, "heads of the clients' own (FedPer)", lambda each: each.personal)


def _beside(found: Advice, question: str, way: Callable[[Measured], float | None]) -> Answer:
    """The answer on a way that was trained beside the plain ones."""
    like = found.like
    accuracy = way(like)
    if not found.is_like:
        return _like_none(found, question)
    if accuracy is None or like.beside is None:
        return Answer(question, "not known", f"not measured on {like.name}")
    takes = {
        each.name: _taken(trained - each.beside)
        for each in found.near
        if (trained := way(each)) is not None and each.beside is not None
    }
    if _differ(takes):
        return Answer(question, "not known", _disagree(takes, "it"))
    why = (
        f"on a small perceptron {accuracy:.3f}, and {like.beside:.3f} by the best of one model, "
        "groups and each alone"
    )
    return Answer(question, takes[like.name], why)


def _like_none(found: Advice, question: str) -> Answer:
    nearest = found.like.name
    why = f"no measured federation is like it: the nearest is {nearest}; train and compare"
    return Answer(question, "not known", why)


def _taken(gain: float) -> Take:
    if abs(gain) <= _BETTER:
        return "either"
    return "yes" if gain > 0 else "no"


def _weights(structure: Structure, samples: Sequence[int] | None) -> Answer:
    question = "weights by cover in one model"
    rare = [at for at, cover in enumerate(structure.covers) if cover >= _RARE]
    most = max(structure.covers)
    if not rare or len(rare) > _MOST_RARE * structure.clients:
        few = "no client has" if not rare else f"as many as {len(rare)} clients have"
        return Answer(
            question,
            "no",
            f"{few} what others lack: the largest cover is {most:.2f} of the median; on even, "
            "skewed and grouped labels nothing was gained",
        )
    measured = (
        "three clients of 20 with labels of their own, and a third of the samples, "
        "had 0.920 by cover and 0.000 by samples"
    )
    if samples is not None and np.mean([samples[at] for at in rare]) > np.median(samples):
        why = f"{_clients(rare)} with a large cover, {most:.2f} of the median, and many samples"
        return Answer(question, "no", f"{why}: a mean by samples hears them")
    return Answer(question, "yes", f"{_clients(rare)} up to {most:.2f} of the median; {measured}")


def _clients(rare: Sequence[int]) -> str:
    return "1 client" if len(rare) == 1 else f"{len(rare)} clients"


_ROBUST: Final = Answer(
    "a robust mean by kin",
    "not known",
    "supports do not show who would attack: on mixed labels, where nobody did, it gained "
    "0.006 ± 0.012 over FedAvg; where 4 of 20 turned signs, 0.243",
)
