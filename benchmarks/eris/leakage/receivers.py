"""What one receiver of each method has of one client in a round: values, and where they are.

A receiver is honest and curious: it keeps to the method and keeps all that reaches it, with what is
public: factors, masks, quantization, and the shifts that it can follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from benchmarks.eris.baselines import DPSRM, QDPSGD, SDMDSGD, Ako, Local, Mixing, Shatter
from benchmarks.eris.convergence import ALL, Way
from benchmarks.eris.rounds import Rounds, plain_roster
from modelkin.federation.shards.partition import Partition
from modelkin.federation.shards.plan import Plan
from modelkin.federation.shards.roster import Round

__all__ = [
    "SUM", "Averaged", "Exchange", "OfAko", "OfDPSRM", "OfQDPSGD", "OfSDMDSGD", "OfShatter", "Seen",
]  # fmt: skip

Sent = tuple[Tensor, Tensor]
"""Coordinates, and the values of an update there."""

SUM = "sums of all"
"""The view of who has sums over all clients: concealed shards, or two global models in a row."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A part of an update as a receiver has it.

    Attributes:
        view: the receiver, and what it holds the values against where there are several ways.
        sender: the client; None for the mean of all.
        at: coordinates, each once, shape ``(values,)``.
        values: of the update, shape ``(values,)``.
        since: whether they hold all steps since these coordinates were last seen, not one alone.
        less: the share of the last round's gradients that is taken away in them.
    """

    view: str
    sender: int | None
    at: Tensor
    values: Tensor
    since: bool = False
    less: float = 0.0


class Exchange(Protocol):
    """A method: it makes the models of the next round, and knows what its receivers got.

    Attributes:
        seen: the views of the last round.
        public: whether receivers know the models of the clients they look at.
    """

    seen: list[Seen]
    public: bool

    def __call__(self, before: Tensor, updates: Tensor, number: int) -> Tensor:
        """The models after a round.

        Args:
            before: at its start, shape ``(n, M)``.
            updates: what one local step changed, shape ``(n, M)``.
            number: of the round, from 0.
        """


def _same(updates: Tensor) -> Tensor:
    return updates


class Averaged:
    """One global model, moved by the mean of all updates.

    Args:
        size: M.
        clients: n.
        shards: numbers of shards to look at; all values of a client are one shard.
        change: of updates before they are sent: noise, or what is withheld.
        way: what is sent of them; thinned ones are sent in the first number of shards.
        rate: by which their mean is multiplied.
        sums: whether to look at the mean too, which the next global model shows to all.
        seed: of partitions.
    """

    public = True

    def __init__(
        self,
        size: int,
        clients: int,
        shards: tuple[int, ...] = (1,),
        *,
        change: Local = _same,
        way: Way = ALL,
        rate: float = 1.0,
        sums: bool = True,
        seed: int = 0,
    ) -> None:
        self._change, self._way, self._rate = change, way, rate
        self._sums, self._clients = sums, clients
        self.seen: list[Seen] = []
        if way.one_in == 1:
            partitions = [Partition(size, count, seed) for count in shards]
        else:
            plan = Plan(
                num_parameters=size, shards=shards[0], conceal=False, one_in=way.one_in,
                masks=way.masks,
            )  # fmt: skip
            roster = plain_roster(clients, plan)
            partitions, self._rounds = [roster.partition], Rounds(roster, shift=way.shift)
        self._shard_of = {each.shards: _shard_of(each) for each in partitions}

    def __call__(self, before: Tensor, updates: Tensor, number: int) -> Tensor:
        changed = self._change(updates)
        if self._way.one_in == 1:
            mean, sent = changed.mean(0), _not_withheld(changed, updates)
        else:
            mean, sent = self._thinned(changed, number)
        self.seen = [seen for place, pair in enumerate(sent) for seen in self._of(place, *pair)]
        if self._sums:
            at = torch.cat([at for at, _ in sent]).unique()
            self.seen.append(Seen(SUM, None, at, mean[at]))
        return before + self._rate * mean

    def _thinned(self, updates: Tensor, number: int) -> tuple[Tensor, list[Sent]]:
        """Of shifted updates the receiver adds the shift, which it has followed."""
        current = Round(number + 1, dict.fromkeys(range(self._clients), 1.0))
        shifts = self._rounds.member_shifts.copy()
        mean = torch.from_numpy(self._rounds.mean(updates.numpy(), current))
        sent = []
        for place, (at, values) in self._rounds.sent.items():
            whole = values / np.float32(self._way.one_in)
            if self._way.masks == "own":
                whole += shifts[place, at]
            sent.append((torch.from_numpy(at), torch.from_numpy(whole)))
        return mean, sent

    def _of(self, place: int, at: Tensor, values: Tensor) -> Iterator[Seen]:
        for count, shard_of in self._shard_of.items():
            mine = shard_of[at] == place % count
            yield Seen(f"A = {count}", place, at[mine], values[mine])


def _shard_of(partition: Partition) -> Tensor:
    shard_of = torch.zeros(partition.num_parameters, dtype=torch.int64)
    for shard in range(partition.shards):
        shard_of[torch.from_numpy(partition.indices(shard))] = shard
    return shard_of


def _not_withheld(changed: Tensor, updates: Tensor) -> list[Sent]:
    withheld = (changed == 0) & (updates != 0)
    places = [torch.nonzero(~gone).ravel() for gone in withheld]
    return [(at, row[at]) for at, row in zip(places, changed, strict=True)]


class _Apart:
    """Clients with models of their own; client k + 1 looks at what client k sends."""

    public = False

    def __init__(self, mixing: Mixing, seed: int, change: Local = _same) -> None:
        self._mixing, self._change, self._rng = mixing, change, np.random.default_rng(seed)
        self.seen: list[Seen] = []

    def __call__(self, before: Tensor, updates: Tensor, number: int) -> Tensor:
        trained = before + self._change(updates)
        mixed = self._mixing(trained.numpy(), before.numpy(), number, self._rng)
        self.seen = list(self._look(before, trained))
        return torch.from_numpy(np.asarray(mixed, np.float32))

    def _look(self, before: Tensor, trained: Tensor) -> Iterator[Seen]:
        raise NotImplementedError


class OfAko(_Apart):
    """One part of a client's update, with all that has added up in it."""

    def __init__(self, seed: int) -> None:
        self._ako = Ako()
        super().__init__(self._ako, seed)

    def _look(self, before: Tensor, trained: Tensor) -> Iterator[Seen]:
        del before, trained
        for sender, (at, values) in self._ako.sent.items():
            yield Seen("peer", sender, torch.from_numpy(at), torch.from_numpy(values), since=True)


class OfShatter(_Apart):
    """Chunks of a client's model, held against the receiver's own model and against the last ones.

    The receiver is taken to know whose a chunk is, which virtual nodes hide from it.
    """

    def __init__(self, seed: int) -> None:
        self._shatter = Shatter()
        self._last: Tensor | None = None
        super().__init__(self._shatter, seed)

    def _look(self, before: Tensor, trained: Tensor) -> Iterator[Seen]:
        if self._last is None:
            self._last = before.clone()  # all start alike
        for sender in range(len(before)):
            receiver = (sender + 1) % len(before)
            chunks = [at for at, near in self._shatter.near if sender in near[receiver]]
            if not chunks:
                continue
            at = torch.from_numpy(np.concatenate(chunks))
            chunk = trained[sender, at]
            yield Seen("peer, own model", sender, at, chunk - before[receiver, at])
            change = chunk - self._last[sender, at]
            yield Seen("peer, last chunk", sender, at, change, since=True)
            self._last[sender, at] = chunk


class OfQDPSGD(_Apart):
    """A client's rounded model, held against the receiver's own and against what it drew to.

    The model of a round comes from the last one, drawn to the mean of all that were sent, and the
    step. All of these but the step are known to who gets the rounded models of all.
    """

    def __init__(self, seed: int, change: Local = _same) -> None:
        self._qdpsgd = QDPSGD()
        self._drawn: Tensor | None = None
        super().__init__(self._qdpsgd, seed, change)

    def _look(self, before: Tensor, trained: Tensor) -> Iterator[Seen]:
        del trained
        sent, share = torch.from_numpy(self._qdpsgd.sent), self._qdpsgd.drawn
        everything = torch.arange(sent.shape[1])
        for sender, model in enumerate(sent):
            receiver = (sender + 1) % len(sent)
            yield Seen("peer, own model", sender, everything, model - before[receiver])
            if self._drawn is not None:
                step = model - self._drawn[sender]
                yield Seen("peer, last models", sender, everything, step)
        self._drawn = (1 - share) * sent + share * sent.mean(0)


class OfSDMDSGD(_Apart):
    """The coordinates of a client's step that it sent.

    All models are known, because they are what was sent. So is what a model was drawn to, and the
    rest is the step.
    """

    public = True

    def __init__(self, seed: int, change: Local, rate: float) -> None:
        self._rate, self._sdm = rate, SDMDSGD(rate)
        super().__init__(self._sdm, seed, change)

    def _look(self, before: Tensor, trained: Tensor) -> Iterator[Seen]:
        del trained
        middle, drawn = before.mean(0), self._sdm.drawn
        for sender, (at, values) in self._sdm.sent.items():
            places = torch.from_numpy(at)
            towards = (middle - before[sender])[places]
            step = (torch.from_numpy(values) / drawn - towards) / self._rate
            yield Seen("peer", sender, places, step)


class OfDPSRM:
    """One global model; everyone has the noisy mean, and what is new in it since the last round."""

    public = True

    def __init__(self, rate: float, rule: DPSRM) -> None:
        self._rate, self._rule = rate, rule
        self.seen: list[Seen] = []

    def __call__(self, before: Tensor, updates: Tensor, number: int) -> Tensor:
        del number
        mean = torch.from_numpy(self._rule(updates.numpy()))
        new, everything = torch.from_numpy(self._rule.new), torch.arange(len(mean))
        self.seen = [
            Seen(SUM, None, everything, mean),
            Seen(f"{SUM}, what is new", None, everything, new, less=self._rule.kept),
        ]
        return before + self._rate * mean
