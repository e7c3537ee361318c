"""A simulated round: the clients' batches and updates, the canaries, and the view of an aggregator.

Each canary is a slot with a fair coin. Heads: the candidate is a member, and a client's batch has
it. Tails: it is a non-member, and no batch has it. If members and non-members are a random split of
one collection, the coin is all that a score can find out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modelkin.errors import InvalidParameter
from modelkin.federation.shards.draws import Label, stream
from modelkin.federation.shards.partition import Partition
from modelkin.federation.shards.thinning import Thinning
from modelkin.torch.batches import description
from modelkin.torch.privacy.flat_network import FlatNetwork

__all__ = ["Round", "Samples", "View", "samples_of", "simulate", "with_global"]

T = TypeVar("T")

_ROUND, _ALL_MEMBERS = 0, 0
"""The round and the drawer in the labels of kept values: one draw for all members."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Inputs of shape ``(n, ...)`` and their targets."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, rows: Any) -> Samples:
        """The samples at the given rows."""
        at = torch.as_tensor(rows, device=self.inputs.device)
        return Samples(self.inputs[at], self.targets[at])


@dataclass(frozen=True, slots=True)
class View:
    """The values that an aggregator sees: one in ``one_in`` of a shard; sums alone if concealed."""

    shards: int
    one_in: int
    conceal: bool

    def positions(self, size: int, shard: int, seed: int) -> Tensor:
        """The coordinates of a shard's values; the aggregator draws them as all parties do."""
        indices = Partition(size, self.shards, seed).indices(shard)
        draw = stream(seed, Label.KEPT, _ROUND, _ALL_MEMBERS, shard)
        return torch.from_numpy(indices[Thinning(len(indices), self.one_in, draw).positions])

    def values(self, size: int) -> int:
        """The least number of values that an aggregator receives from a client in a round."""
        return size // self.shards // self.one_in

    @property
    def of_global_model(self) -> View:
        """The view of two global models in a row: the mean over all clients, of all sent values."""
        return View(1, self.one_in, conceal=True)


@dataclass(frozen=True, slots=True)
class Round:
    """A round of n clients, as the aggregators and the auditor know it.

    Attributes:
        network: as it stood when the round began.
        updates: minus the learning rate times the gradient of each batch, of shape ``(n, M)``.
        gradients: the gradient of each candidate, of shape ``(n, canaries, M)``.
        candidates: the candidates, n times the canaries, client by client.
        truth: whether each candidate was in the batch, of shape ``(n, canaries)``.
        firsts: one member of each client, for inversion.
        batch: the number of samples of a client.
    """

    network: FlatNetwork
    updates: Tensor
    gradients: Tensor
    candidates: Samples
    truth: npt.NDArray[np.bool_]
    firsts: Samples
    batch: int

    @property
    def clients(self) -> int:
        """The number of clients, n."""
        return len(self.updates)


def with_global(
    views: Sequence[View], attack: Callable[[View], dict[str, T]]
) -> dict[View, dict[str, T]]:
    """Attack each view and that of the global model; no view is attacked twice."""
    return {view: attack(view) for view in {*views, *(view.of_global_model for view in views)}}


def samples_of(value: Any, field: str, device: torch.device) -> Samples:
    """Samples from a pair of tensors or from a loader of such pairs, on the device.

    Raises:
        InvalidParameter: the value holds no pairs of tensors with the same number of samples, or
            no sample.
    """
    pairs = [value] if _is_pair(value) else list(value)
    for position, pair in enumerate(pairs):
        if not _is_pair(pair) or len(pair[0]) != len(pair[1]):
            raise InvalidParameter(
                f"{field} must be (inputs, targets), two tensors with the samples first, or a "
                f"loader of such pairs; item {position} is {description(pair)}",
                field=field,
            )
    if not sum(len(inputs) for inputs, _ in pairs):
        raise InvalidParameter(f"{field} has no sample", field=field)
    inputs, targets = (torch.cat([pair[part] for pair in pairs]) for part in (0, 1))
    return Samples(inputs.detach().to(device), targets.detach().to(device))


def _is_pair(value: Any) -> bool:
    is_pair = isinstance(value, (tuple, list)) and len(value) == 2
    return is_pair and all(isinstance(part, Tensor) and part.dim() > 0 for part in value)


def simulate(
    network: FlatNetwork,
    members: Samples,
    non_members: Samples,
    *,
    clients: int,
    batch: int,
    canaries: int,
    learning_rate: float,
    seed: int,
) -> Round:
    """Simulate one round: each client takes one step on a batch of its own.

    Raises:
        InvalidParameter: there are too few members or non-members.
    """
    random = np.random.default_rng(seed)
    truth = random.random((clients, canaries)) < 0.5
    absent = int((~truth).sum())
    _check_enough(members, clients * batch, "members", f"{clients} clients with {batch} each")
    _check_enough(non_members, absent, "non_members", f"the {absent} canaries whose coin says out")
    batches = random.permutation(len(members))[: clients * batch].reshape(clients, batch)
    others = iter(random.permutation(len(non_members)))
    network.probe(members.inputs[:8], members.targets[:8])
    updates, inputs, targets = [], [], []
    for rows, coins in zip(batches, truth, strict=True):
        mine = members.take(rows)
        updates.append(-learning_rate * network.gradient(mine.inputs, mine.targets))
        for slot, inside in enumerate(coins):
            sample, row = (mine, slot) if inside else (non_members, next(others))
            inputs.append(sample.inputs[row])
            targets.append(sample.targets[row])
    candidates = Samples(torch.stack(inputs), torch.stack(targets))
    gradients = [
        network.sample_gradients(candidates.inputs[at], candidates.targets[at])
        for at in torch.arange(len(candidates)).split(canaries)
    ]
    return Round(
        network,
        torch.stack(updates),
        torch.stack(gradients),
        candidates,
        truth,
        members.take(batches[:, -1]),
        batch,
    )


def _check_enough(samples: Samples, least: int, field: str, reason: str) -> None:
    if len(samples) < least:
        raise InvalidParameter(
            f"{field} has {len(samples)} samples, and {reason} need {least}: give more, or fewer "
            f"clients",
            field=field,
        )
