"""What a flooded service answers, beside one that has the same hub without the flood."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import httpx
import numpy as np

from modelkin import Fingerprint
from modelkin.wire import FINGERPRINT
from tests.soak.fingerprints.flood.members import BASE, OTHER, Member

__all__ = ["Seen", "ask"]

_BYSTANDERS: Final = "bystanders"
_FAMILY: Final = "the base's family"
_NEWCOMERS: Final = "newcomers of it"
_MOST: Final = 100
_TRIES: Final = 5
_FORGED: Final = "forged/"

Answer = Mapping[str, Any]


@dataclass
class Seen:
    """What was counted of the answers of a flooded service.

    Attributes:
        asked: how many models were asked about, by whose they are.
        wrong: what is other than without the flood, and may not be, for people.
        refused: questions that there was no time or memory for, and that were asked again.
        truncated: of the family and its newcomers, the answers that say so.
        kept: of the relatives without the flood, those of the family that are listed still.
        listed: so many there were.
        forged: the forged ones among relatives.
        seconds: those of each question of a kind: without the flood, and with it.
    """

    asked: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    wrong: list[str] = field(default_factory=list)
    refused: int = 0
    truncated: int = 0
    kept: int = 0
    listed: int = 0
    forged: int = 0
    seconds: dict[str, tuple[list[float], list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: ([], []))
    )

    def medians(self, whose: str) -> tuple[float, float]:
        """The medians of the milliseconds without the flood and with it."""
        quiet, flooded = self.seconds[whose]
        return 1e3 * float(np.median(quiet)), 1e3 * float(np.median(flooded))

    def ratio(self, whose: str) -> float:
        """How many times as long an answer takes, by medians."""
        quiet, flooded = self.medians(whose)
        return flooded / quiet


def ask(
    quiet: httpx.Client,
    flooded: httpx.Client,
    known: Sequence[Member],
    sent: Mapping[str, Fingerprint],
    rounds: int,
    *,
    lists: bool = True,
) -> Seen:
    """Ask both services the same in turn, some times.

    Args:
        known: the stored models.
        sent: fingerprints of newcomers, by name.
        rounds: how often each is asked; the answers of the first are looked at.
        lists: whether all relatives of the base's family are listed.
    """
    seen = Seen()
    for number in range(rounds):
        services = [quiet, flooded]
        for member in known:
            whose = _FAMILY if member.is_of_base else _BYSTANDERS
            path = f"/v1/fingerprints/{quote(member.name)}"
            parents = _both(seen, whose, services, f"{path}/anatomy")
            near = _both(seen, whose, services, f"{path}/relatives")
            if not number and member.is_of_base:
                _look_at_kin(seen, member.name, parents)
                if lists:
                    _count_relatives(seen, *(_all_relatives(http, path) for http in services))
            elif not number:
                _look_at_bystander(seen, member.name, parents, near)
        for name, each in sent.items():
            parents = _both(seen, _NEWCOMERS, services, "/v1/anatomy", each)
            if not number:
                _look_at_kin(seen, f"what is {name}", parents)
    return seen


def _both(
    seen: Seen,
    whose: str,
    services: Sequence[httpx.Client],
    path: str,
    body: Fingerprint | None = None,
) -> tuple[Answer, Answer]:
    """Ask both, and note how long they take."""
    answers = list[Answer]()
    for http, seconds in zip(services, seen.seconds[whose], strict=True):
        for _ in range(_TRIES):
            began = time.perf_counter()
            if body is None:
                answer = http.get(path)
            else:
                kind = {"Content-Type": FINGERPRINT}
                answer = http.post(path, content=body.to_bytes(), headers=kind)
            seconds.append(time.perf_counter() - began)
            if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                break
            seen.refused += 1
        answers.append(answer.raise_for_status().json())
    seen.asked[whose] += 1
    return answers[0], answers[1]


def _all_relatives(http: httpx.Client, path: str) -> list[str]:
    answer = http.get(f"{path}/relatives", params={"k": _MOST}).raise_for_status().json()
    return [each["model"] for each in answer["items"]]


def _look_at_bystander(
    seen: Seen, name: str, parents: tuple[Answer, Answer], near: tuple[Answer, Answer]
) -> None:
    """A bystander's answers are the same as without the flood."""
    for key, both in (("parents", parents), ("items", near)):
        quiet, flooded = ([(each["model"], each["verdict"]) for each in a[key]] for a in both)
        if (quiet, both[0]["truncated"]) != (flooded, both[1]["truncated"]):
            seen.wrong.append(f"{name}: {flooded[:3]} in place of {quiet[:3]}")


def _look_at_kin(seen: Seen, name: str, both: tuple[Answer, Answer]) -> None:
    """The first parent is the same, if the service read it; both bases are named, and the answer
    says that it is truncated.
    """
    quiet, flooded = ([each["model"] for each in answer["parents"]] for answer in both)
    if quiet[0] != flooded[0] and both[0]["parents"][0]["stated_by"] == "hub":
        seen.wrong.append(f"{name}: {flooded[0]} comes first, not {quiet[0]}")
    for base in (BASE, OTHER):
        if base in quiet and base not in flooded:
            seen.wrong.append(f"{name}: {base} is not named")
    if not both[1]["truncated"]:
        seen.wrong.append(f"{name}: the answer does not say that it is truncated")
    seen.truncated += both[1]["truncated"]


def _count_relatives(seen: Seen, quiet: Sequence[str], flooded: Sequence[str]) -> None:
    seen.listed += len(quiet)
    seen.kept += len({*quiet} & {*flooded})
    seen.forged += sum(name.startswith(_FORGED) for name in flooded)
