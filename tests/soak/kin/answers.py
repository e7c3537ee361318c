"""What a service answers of a hub, beside the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final
from urllib.parse import quote

import httpx

from tests.soak.kin.members import UNSURE, Member

__all__ = ["LIMIT", "Figures", "figures"]

LIMIT: Final = -13.0
"""The logarithm of P below which the service calls two models kin."""
_MOST: Final = 100
"""The most relatives of an answer."""


@dataclass
class Figures:
    """What was counted.

    Attributes:
        members: all checkpoints.
        fingerprints: those that have one, read by the service from the hub.
        kin: pairs of kin.
        strangers: pairs of strangers.
        found: pairs of kin that are told as such, as a relative of one of them, or by comparing the
            two where the lists of both go on.
        false: pairs of strangers that are.
        compared: pairs that were compared.
        listed: of each model's kin that are told as such, those that are among its relatives, as
            far as there is room for them.
        room: so many there could be.
        false_relatives: strangers among relatives.
        first: models whose first parent has a family in common with them.
        asked: models that have kin.
        false_parents: strangers among parents.
        relations: of models beside their base: of how many a word for what was done is said, less
            than that, or what is not so.
        vague: those of which less is said, for people.
        wrong: those of which what is not so is.
        averages: merges that are said to be averages, and other models that are.
        lineages: verdicts on declared bases, by whether they are right.
        likely: models without a declared base whose likely base has a family in common, and
            others.
    """

    members: int
    fingerprints: int = 0
    kin: int = 0
    strangers: int = 0
    found: int = 0
    false: int = 0
    compared: int = 0
    listed: int = 0
    room: int = 0
    false_relatives: int = 0
    first: int = 0
    asked: int = 0
    false_parents: int = 0
    relations: dict[str, int] = field(default_factory=lambda: {"exact": 0, "vague": 0, "wrong": 0})
    vague: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    averages: dict[str, int] = field(default_factory=lambda: {"merges": 0, "others": 0})
    lineages: dict[str, dict[str, int]] = field(default_factory=dict)
    likely: dict[str, int] = field(default_factory=lambda: {"kin": 0, "none": 0, "strangers": 0})

    @property
    def recall(self) -> float:
        """The share of pairs of kin that are told as such."""
        return self.found / max(1, self.kin)


@dataclass(frozen=True)
class _Relatives:
    """The relatives of a model that the service calls kin, by name, and whether these are all."""

    named: Mapping[str, Mapping[str, Any]]
    is_whole: bool


def figures(http: httpx.Client, members: Sequence[Member]) -> Figures:
    """Ask a service of all models and pairs, and count."""
    seen = Figures(len(members))
    known = {each.name: each for each in members}
    relatives = {each.name: _relatives(http, each) for each in members}
    told = _of_pairs(http, members, relatives, seen)
    for each in members:
        stored = _get(http, each, "")
        seen.fingerprints += stored["stated_by"] == "hub"
        _of_relatives(relatives[each.name], each, known, told, seen)
        _of_anatomy(_get(http, each, "/anatomy"), each, known, seen)
        _of_lineage(_get(http, each, "/lineage"), each, known, seen)
    return seen


def _get(http: httpx.Client, member: Member, what: str, **query: Any) -> Mapping[str, Any]:
    path = f"/v1/fingerprints/{quote(member.name)}{what}"
    answer: Mapping[str, Any] = http.get(path, params=query).raise_for_status().json()
    return answer


def _relatives(http: httpx.Client, member: Member) -> _Relatives:
    answer = _get(http, member, "/relatives", k=_MOST)
    named = {item["model"]: item for item in answer["items"] if item["verdict"] is not None}
    return _Relatives(named, not answer["truncated"])


def _of_pairs(
    http: httpx.Client,
    members: Sequence[Member],
    relatives: Mapping[str, _Relatives],
    seen: Figures,
) -> Mapping[str, set[str]]:
    """The models that each is told to be kin to.

    Those that neither of two lists among its relatives, though either list may go on, are compared.
    """
    told: dict[str, set[str]] = {each.name: set() for each in members}
    for one, other in combinations(members, 2):
        first, second = relatives[one.name], relatives[other.name]
        is_kin, is_told = one.is_kin(other), other.name in first.named or one.name in second.named
        if not is_told and not (first.is_whole or second.is_whole):
            seen.compared += 1
            is_told = _get(http, one, "/tensors", **{"with": other.name})["log10_p"] < LIMIT
        seen.kin += is_kin
        seen.strangers += not is_kin
        seen.found += is_kin and is_told
        seen.false += is_told and not is_kin
        if is_told:
            told[one.name].add(other.name)
            told[other.name].add(one.name)
    return told


def _of_relatives(
    relatives: _Relatives,
    member: Member,
    known: Mapping[str, Member],
    told: Mapping[str, set[str]],
    seen: Figures,
) -> None:
    named, kin = relatives.named, told[member.name]
    seen.listed += len(kin & named.keys())
    seen.room += min(_MOST, len(kin))
    seen.false_relatives += sum(not member.is_kin(known[name]) for name in named)
    if member.base is not None:
        item = named.get(member.base)
        _count_relations(member, [] if item is None else item["relations"], seen)


def _count_relations(member: Member, relations: Sequence[Mapping[str, Any]], seen: Figures) -> None:
    said = {each["relation"] for each in relations} - UNSURE
    wrong = said - member.words - member.vaguer
    kind = "wrong" if wrong else "exact" if said & member.words else "vague"
    seen.relations[kind] += 1
    if kind != "exact":
        sentences = "; ".join(each["sentence"] for each in relations) or "nothing"
        (seen.wrong if wrong else seen.vague).append(f"{member.name}: {sentences}")


def _of_anatomy(
    answer: Mapping[str, Any], member: Member, known: Mapping[str, Member], seen: Figures
) -> None:
    parents = [known[parent["model"]] for parent in answer["parents"]]
    seen.asked += any(member.is_kin(each) for each in known.values() if each is not member)
    seen.first += bool(parents) and member.is_kin(parents[0])
    seen.false_parents += sum(not member.is_kin(each) for each in parents)
    if "average" in {each["relation"] for each in answer["relations"]}:
        seen.averages["merges" if member.merged == "average" else "others"] += 1


def _of_lineage(
    answer: Mapping[str, Any], member: Member, known: Mapping[str, Member], seen: Figures
) -> None:
    if member.is_right is None:
        likely = answer["likely_base"]
        kind = "none" if likely is None else "kin" if member.is_kin(known[likely]) else "strangers"
        seen.likely[kind] += 1
        return
    of_kind = seen.lineages.setdefault("right" if member.is_right else "wrong", {})
    of_kind[answer["verdict"]] = of_kind.get(answer["verdict"], 0) + 1
