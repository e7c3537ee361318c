"""The privacy report: attacks by an aggregator, beside the same attacks by any client."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from modelkin.errors import InvalidParameter, MissingExtra
from modelkin.torch.gradients import LossFunction
from modelkin.torch.privacy import membership
from modelkin.torch.privacy.flat_network import FlatNetwork
from modelkin.torch.privacy.metrics import auc, auc_error, epsilon_bound, true_positive_rate
from modelkin.torch.privacy.simulation import Round, View, samples_of, simulate, with_global

if TYPE_CHECKING:
    import pandas

__all__ = ["MembershipRow", "PrivacyReport", "SizeRow", "privacy_report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipRow:
    """One attack on membership.

    Attributes:
        shards: A; an aggregator holds one.
        one_in: c; one value in c is sent.
        conceal: whether the aggregator has only the sum over all clients.
        attack: ``"alignment"``, ``"least squares"`` or ``"loss"``, the paper's.
        auc: .5 is chance.
        auc_error: the standard error of ``auc``.
        tpr: the share of members found where 1% of the non-members are accused; .01 is chance.
        epsilon: the lower bound of one run at a confidence of 95%; 0 where nothing is refuted.
        p_value: the probability that coin tosses guess as well.
        global_auc: the AUC of the same attack by any client, on two global models in a row.
        global_tpr: as ``tpr``, for that attack.
    """

    shards: int
    one_in: int
    conceal: bool
    attack: str
    auc: float
    auc_error: float
    tpr: float
    epsilon: float
    p_value: float
    global_auc: float
    global_tpr: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRow:
    """The rule of thumb: inversion fails where ``values`` is well below ``numbers``.

    Attributes:
        shards: A, the number of shards.
        one_in: c; one value in c is sent.
        conceal: whether the aggregator has only the sum over all clients.
        values: the values that an aggregator sees in a round, of one client or of the sum.
        numbers: the numbers in the inputs behind them: members summed, times the batch, times the
            numbers of one input.
    """

    shards: int
    one_in: int
    conceal: bool
    values: int
    numbers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyReport:
    """Figures of attacks, for the caller to judge.

    Attributes:
        clients: n, the clients of the simulated round, and the members of each sum.
        batch: the samples of a client.
        candidates: the number of samples that the membership attacks rank.
        parameters: M, the trainable values.
        membership: a row for each shape of the round and attack.
        sizes: the rule of thumb, a row for each shape of the round.
    """

    clients: int
    batch: int
    candidates: int
    parameters: int
    membership: tuple[MembershipRow, ...]
    sizes: tuple[SizeRow, ...]

    def table(self) -> str:
        """The rows as text, one table for each kind of attack."""
        head = (
            f"{self.clients} clients, batches of {self.batch}, {self.candidates} candidates, "
            f"{self.parameters:,} parameters\n"
        )
        sizes = "values seen and numbers of the inputs behind them"
        return f"{head}\nmembership\n{_lines(self.membership)}\n{sizes}\n{_lines(self.sizes)}"

    def to_json(self) -> str:
        """The report as a JSON object, whose fields are the attributes."""
        return json.dumps(asdict(self), indent=1)

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each row of the report; ``figure`` names its kind.

        Raises:
            MissingExtra: pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise MissingExtra("pandas", "pandas") from error
        members = [{"figure": "membership", **asdict(row)} for row in self.membership]
        sizes = [{"figure": "sizes", **asdict(row)} for row in self.sizes]
        return pandas.DataFrame(members + sizes)


@torch.inference_mode(False)
def privacy_report(
    network: nn.Module,
    loss: LossFunction,
    members: tuple[Tensor, Tensor] | Iterable[Any],
    non_members: tuple[Tensor, Tensor] | Iterable[Any],
    *,
    shards: Sequence[int] = (1, 4, 16),
    one_in: Sequence[int] = (1, 16),
    conceal: Sequence[bool] = (False, True),
    clients: int = 10,
    seed: int = 1,
    batch: int = 24,
    canaries: int = 16,
    learning_rate: float = 0.1,
) -> PrivacyReport:
    """Attack one simulated round of sharded averaging, as the best informed aggregator would.

    Each client takes one step on a batch of its members. The aggregator knows the network, the
    seats, the partition, which values are kept and the shifts, so own masks and shifts change
    nothing here. The aggregator holds the values of one shard: each client's (plain), or their sum
    (concealed). Beside each figure stands the result of the same attack by any client, on two
    global models in a row. The network never changes.

    Members and non-members must be a random split of one collection, as a random split for
    training and testing is: otherwise the scores find the difference of the two collections.

    Args:
        network: the network at the round's start, trained on the members or not trained yet.
        loss: a mean over a batch, called as ``loss(output, target)``.
        members: ``(inputs, targets)``, tensors with n samples first, or a loader of such pairs.
        non_members: samples of the same form that were not used for training.
        shards: each A to attack.
        one_in: each c to attack.
        conceal: whether sums are concealed; each value to attack.
        clients: n, the clients of the round and of each sum.
        seed: 0 or more; equal seeds draw the same coins, shards and kept values.
        batch: the number of members of each client in the round.
        canaries: the number of candidates of each client, at most ``batch``: each is in the batch
            or not by a fair coin.
        learning_rate: the factor of the gradient in the round's step.

    Returns:
        The figures. Memory: ``4 * clients * canaries`` bytes a parameter, three times.

    Raises:
        InvalidParameter: an argument is out of range; there are too few samples; the network mixes
            samples or draws random numbers.
    """
    _check(shards, one_in, conceal, clients, batch, canaries, learning_rate)
    flat = FlatNetwork(network, loss)
    ours, others = (
        samples_of(value, field, flat.weights.device)
        for value, field in ((members, "members"), (non_members, "non_members"))
    )
    views = [View(a, c, hidden) for hidden in conceal for c in one_in for a in shards]
    _check_sizes(views, flat.size)
    round_ = simulate(
        flat,
        ours,
        others,
        clients=clients,
        batch=batch,
        canaries=canaries,
        learning_rate=learning_rate,
        seed=seed,
    )
    return PrivacyReport(
        clients=clients,
        batch=batch,
        candidates=round_.truth.size,
        parameters=flat.size,
        membership=tuple(_membership(round_, views, seed)),
        sizes=tuple(_size(round_, view) for view in views),
    )


def _membership(round_: Round, views: Sequence[View], seed: int) -> Iterable[MembershipRow]:
    truth = round_.truth.ravel()
    found = with_global(views, lambda view: membership.scores(round_, view, seed))
    for view in views:
        for attack in membership.ATTACKS:
            ranked, shown = found[view][attack], found[view.of_global_model][attack]
            value = auc(ranked, truth)
            epsilon, p_value = epsilon_bound(ranked, truth)
            yield MembershipRow(
                shards=view.shards,
                one_in=view.one_in,
                conceal=view.conceal,
                attack=attack,
                auc=value,
                auc_error=auc_error(value, int(truth.sum()), int((~truth).sum())),
                tpr=true_positive_rate(ranked, truth),
                epsilon=epsilon,
                p_value=p_value,
                global_auc=auc(shown, truth),
                global_tpr=true_positive_rate(shown, truth),
            )


def _size(round_: Round, view: View) -> SizeRow:
    summed = round_.clients if view.conceal else 1
    return SizeRow(
        shards=view.shards,
        one_in=view.one_in,
        conceal=view.conceal,
        values=view.values(round_.network.size),
        numbers=summed * round_.batch * round_.firsts.inputs[0].numel(),
    )


def _lines(rows: Sequence[Any]) -> str:
    names = [field.name for field in fields(rows[0])]
    cells = [names] + [[_cell(getattr(row, name)) for name in names] for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    return "".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) + "\n"
        for line in cells
    )


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}"
    return "-" if value is None else str(value)


def _check(
    shards: Any,
    one_in: Any,
    conceal: Any,
    clients: Any,
    batch: Any,
    canaries: Any,
    learning_rate: Any,
) -> None:
    for field, values in (("shards", shards), ("one_in", one_in)):
        if not values or not all(_is_whole(value, 1) for value in values):
            raise InvalidParameter(
                f"{field} must be whole numbers from 1, not {values!r}", field=field
            )
    if not conceal or not all(isinstance(value, bool) for value in conceal):
        raise InvalidParameter(f"conceal must be booleans, not {conceal!r}", field="conceal")
    bounds = {"clients": (clients, 2), "batch": (batch, 1), "canaries": (canaries, 2)}
    for field, (value, least) in bounds.items():
        if not _is_whole(value, least):
            raise InvalidParameter(
                f"{field} must be a whole number of at least {least}, not {value!r}", field=field
            )
    if canaries > batch:
        raise InvalidParameter(
            f"canaries must be at most batch, {batch}, since all of them may be in the batch, "
            f"not {canaries}",
            field="canaries",
        )
    if not (isinstance(learning_rate, (int, float)) and learning_rate > 0):
        raise InvalidParameter(
            f"learning_rate must be positive, not {learning_rate!r}", field="learning_rate"
        )


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _check_sizes(views: Sequence[View], size: int) -> None:
    for view in views:
        if view.values(size) < 1:
            raise InvalidParameter(
                f"{view.shards} shards with one value in {view.one_in} leave nothing of "
                f"{size} parameters",
                field="one_in" if view.one_in > 1 else "shards",
            )
