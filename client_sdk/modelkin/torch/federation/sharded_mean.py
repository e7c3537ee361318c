"""``ShardedMean``: the weighted mean of the ranks' updates, without a rank that holds all of them.

An aggregator is a rank that receives one shard of every update. Nothing is reduced on the way,
since partial sums would show a rank's values to the next one. An aggregator sums in float64 in
ascending ranks and rounds once, so the mean has the same bits for any number of aggregators.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from modelkin.errors import InvalidParameter
from modelkin.federation.layouts import MOST_EXACT
from modelkin.federation.shards.fixed_point import least_power
from modelkin.federation.shards.plan import MIN_MEMBERS, Plan
from modelkin.federation.shards.roster import Party, Roster, Round
from modelkin.federation.sharing import sealing
from modelkin.torch.federation import shards as _shards
from modelkin.torch.federation.cells import Cell, Cells, ConcealedCells, PlainCells, ShiftedCells
from modelkin.torch.federation.ranks import MAX_MESSAGE, Ranks

__all__ = ["ShardedMean"]

STRETCH_VALUES: int = 2**22
"""The number of values that are averaged at a time, over all shards together: 16 MiB."""

MIN_PIECE_VALUES: int = 2**12


class ShardedMean:
    """The weighted mean of a vector from each rank; every rank gets the same bits.

    All ranks of the group make the object once, with the same arguments, and call it together::

        mean = ShardedMean(num_parameters)  # after torch.distributed.init_process_group
        model += mean(update, weight=len(dataset))

    Args:
        num_parameters: M.
        aggregators: A, the number of ranks that hold a shard; None for all.
        one_in: c; one value in c of each shard is sent, times c.
        masks: ``"one"``: all ranks keep the same values in a round, and the mean is 0 elsewhere.
            ``"own"``: each rank keeps values of its own, relative to a shift that the object keeps.
        conceal: whether aggregators see sums alone. It needs three ranks or more and
            ``pip install 'modelkin[sharing]'``. The error of the mean is at most 2^-31 of the
            largest value for each rank.
        group: a process group of torch.distributed; None for all ranks.
        timeout: seconds after which a rank that does not answer is lost.

    Attributes:
        roster: the plan, the ranks and their shards; its digest is the same on all ranks.

    Raises:
        InvalidParameter: raised on every rank, if an argument of any rank is out of its range, or
            arguments differ; ``torch.distributed`` is not initialised.
        MergeFailed: a rank does not answer.
        MissingExtra: ``conceal`` is set and the package ``cryptography`` is missing.
    """

    def __init__(
        self,
        num_parameters: int,
        aggregators: int | None = None,
        one_in: int = 1,
        masks: str = "one",
        conceal: bool = False,
        group: dist.ProcessGroup | None = None,
        timeout: float = 30.0,
    ) -> None:
        # An invalid timeout is an error on all ranks, too, so they meet with a valid one.
        usable = _number(timeout)
        self._ranks = Ranks(group, usable if 0 < usable < math.inf else 30.0)
        private_key = sealing.new_key()

        def offer() -> dict[str, Any]:
            _check_timeout(timeout)
            shards = self._ranks.size if aggregators is None else aggregators
            plan = self._make_plan(num_parameters, shards, one_in, masks, conceal)
            key = sealing.public_key(private_key) if conceal else _nominal_key(self._ranks.place)
            return {"plan": plan.to_json(), "key": key.hex()}

        agreed = self._agree(offer)
        _check_same_plans(self._ranks, [each["plan"] for each in agreed])
        parties = [
            Party(str(place), bytes.fromhex(each["key"])) for place, each in enumerate(agreed)
        ]
        self.roster = Roster(Plan.from_json(agreed[0]["plan"]), tuple(parties))
        self._cells = self._cells_of(private_key)
        self._round = 0
        self._masked = 0
        """The last round whose masks were drawn."""

    def __call__(self, update: Tensor, *, weight: float = 1) -> Tensor:
        """Return the weighted mean of all ranks' updates.

        Args:
            update: float32 of shape ``(M,)``, on any device; it stays as it is.
            weight: this rank's weight, above 0 and at most 2^53, such as its number of samples.

        Returns:
            float32 of shape ``(M,)`` on the device of ``update``: the same bits on every rank, for
            any number of aggregators.

        Raises:
            InvalidParameter: raised on every rank, if an update or a weight of any rank is wrong,
                the ranks are in different rounds, or a concealed round is to be repeated. Nothing
                was sent, and all ranks may call again.
            MergeFailed: raised on every rank that is left, if one is lost. No shift has moved; go
                on with a new object, of a new group of the ranks that are left.
        """

        def offer() -> dict[str, Any]:
            self._require_unused_masks()
            peak = _peak(update, self.roster.plan)
            return {"round": self._round, "weight": _weight(weight), "peak": peak}

        current = self._next_round(self._agree(offer))
        counted = False
        self._masked = current.number
        try:
            result = self._mean(update, current)
            counted = True
        except BaseException as error:
            self._ranks.fail(str(error))  # so no rank waits for this one
            raise
        finally:
            self._cells.settle(counted=counted)
        self._round = current.number
        return result.to(update.device)

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint of this rank: the round, and the shifts."""
        state: dict[str, Any] = {"round": self._round, "plan": self._plan_digest()}
        if isinstance(self._cells, ShiftedCells):
            state["sent"] = {at: shift.clone() for at, shift in self._cells.sent.items()}
            state["held"] = {at: shift.clone() for at, shift in self._cells.held.items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a :meth:`state_dict` of this rank.

        Concealed sums can only go back to an earlier round in a new object, which has new keys:
        the masks of a round may hide only one update.

        Raises:
            InvalidParameter: the state is of another plan, or of another number of ranks.
        """
        if not isinstance(state, Mapping) or state.get("plan") != self._plan_digest():
            raise InvalidParameter(
                "the state is of other arguments, or of another number of ranks", field="state"
            )
        self._round = state["round"]
        if isinstance(self._cells, ShiftedCells):
            device = self._ranks.device
            for name in ("sent", "held"):
                shifts = {at: shift.to(device).clone() for at, shift in state[name].items()}
                setattr(self._cells, name, shifts)

    def _require_unused_masks(self) -> None:
        """Refuse a concealed round whose masks have hidden an update already.

        Two updates under one mask would show their difference.
        """
        if self.roster.plan.conceal and self._round < self._masked:
            raise InvalidParameter(
                f"the masks of round {self._round + 1} have been used: go on in a new ShardedMean, "
                f"and load the state there",
                field="state",
            )

    def _make_plan(
        self, num_parameters: int, shards: int, one_in: int, masks: str, conceal: bool
    ) -> Plan:
        size = self._ranks.size
        if type(shards) is not int or not 1 <= shards <= size:
            message = f"aggregators must be a whole number from 1 to {size}, not {shards!r}"
            raise InvalidParameter(message, field="aggregators")
        if conceal is True and size < MIN_MEMBERS:
            raise InvalidParameter(
                f"a sum of {size} ranks conceals nothing: {MIN_MEMBERS} or more are needed",
                field="conceal",
            )
        return Plan(
            num_parameters=num_parameters,
            shards=shards,
            conceal=conceal,
            one_in=one_in,
            masks=masks,
            min_members=1,
            piece_values=max(STRETCH_VALUES // shards, MIN_PIECE_VALUES),
        )

    def _cells_of(self, private_key: bytes) -> Cells:
        place, plan = self._ranks.place, self.roster.plan
        if plan.conceal:
            return ConcealedCells(self.roster, place, private_key)
        if plan.shifted:
            return ShiftedCells(self.roster, place, self._ranks.device)
        return PlainCells(self.roster)

    def _agree(self, offer: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
        """Exchange records; return those of all ranks, if no rank has an error.

        Args:
            offered: a function that makes this rank's record, or raises an error.

        Raises:
            InvalidParameter: the first error of another rank. One of this rank is raised as it is.
        """
        wrong: Exception | None = None
        try:
            record = offer()
        except Exception as error:  # any error: the other ranks wait for a record
            wrong = error
            message = str(error)[:MAX_MESSAGE]
            record = {"error": message, "field": getattr(error, "field", None)}
        every = self._ranks.exchange(record)
        if wrong is not None:
            raise wrong
        for place, each in enumerate(every):
            if "error" in each:
                message = f"{self._ranks.name(place)}: {each['error']}"
                raise InvalidParameter(message, field=each["field"])
        return every

    def _next_round(self, records: list[dict[str, Any]]) -> Round:
        rounds = {each["round"] for each in records}
        if len(rounds) > 1:
            raise InvalidParameter(
                f"the ranks are in different rounds, {sorted(rounds)}: load states of one round",
                field="state",
            )
        weights = {place: each["weight"] for place, each in enumerate(records)}
        peak = max(each["peak"] for each in records) if self.roster.plan.conceal else None
        return Round(self._round + 1, weights, peak=peak)

    @torch.inference_mode(False)
    @torch.no_grad()
    def _mean(self, update: Tensor, current: Round) -> Tensor:
        """Return the mean, once all ranks have every result.

        Raises:
            MergeFailed: a rank is lost, or a result is missing.
        """
        values = update.detach().contiguous().to(self._ranks.device)
        result, failed = torch.empty_like(values), None
        for piece in range(self.roster.plan.pieces):
            start, stop = self.roster.plan.stretch(piece)
            found = self._average(values[start:stop], result[start:stop], piece, current)
            failed = failed or found
        for place, each in enumerate(self._ranks.exchange({"failed": failed})):
            if each["failed"]:
                raise self._ranks.fail(f"{self._ranks.name(place)}: {each['failed']}")
        return result

    def _average(self, values: Tensor, out: Tensor, piece: int, current: Round) -> str | None:
        """Average one stretch into ``out``; return a reason if that fails."""
        roster, ranks, cells = self.roster, self._ranks, self._cells
        first_block = roster.plan.stretch(piece)[0] // roster.plan.shards
        parts = _shards.split_stretch(roster.partition, values, first_block)
        outgoing = [values.new_empty(0, dtype=cells.dtype) for _ in range(ranks.size)]
        at = [Cell(shard, piece, current) for shard in range(roster.plan.shards)]
        for cell, part in zip(at, parts, strict=True):
            outgoing[roster.seats[cell.shard]] = cells.make(part, cell)
        mine = [at[shard] for shard in roster.shards_of(ranks.place)]  # one, or nothing
        incoming = [sum(cells.count(cell, place) for cell in mine) for place in range(ranks.size)]
        received = ranks.all_to_all(outgoing, incoming)
        results = [torch.empty(cells.result_count(cell), device=out.device) for cell in at]
        failed = None
        for cell in mine:
            combined = cells.combine(received, cell)
            if combined is None:
                failed = f"the masks of shard {cell.shard} do not cancel"
                combined = torch.zeros_like(results[cell.shard])
            results[cell.shard] = combined
        shared = ranks.share(dict(zip(roster.seats, results, strict=True)))
        spread = [cells.spread(shared[roster.seats[cell.shard]], cell) for cell in at]
        out.copy_(_shards.join_stretch(roster.partition, spread, first_block))
        return failed

    def _plan_digest(self) -> str:
        fields = {**self.roster.plan.to_json(), "ranks": self._ranks.size}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _nominal_key(place: int) -> bytes:
    """A stand-in for a public key where nothing is concealed, so that seats stay the same."""
    return hashlib.sha256(f"rank {place}".encode()).digest()


def _check_same_plans(ranks: Ranks, plans: list[dict[str, Any]]) -> None:
    for place, plan in enumerate(plans):
        for name, value in plan.items():
            if value != plans[0][name]:
                field = "aggregators" if name == "shards" else name
                raise InvalidParameter(
                    f"all ranks need the same {field}: it is {plans[0][name]!r} on "
                    f"{ranks.name(0)}, and {value!r} on {ranks.name(place)}",
                    field=field,
                )


def _check_timeout(timeout: Any) -> None:
    if not 0 < _number(timeout) < math.inf:
        message = f"timeout must be a positive number of seconds, not {timeout!r}"
        raise InvalidParameter(message, field="timeout")


def _number(value: Any) -> float:
    """A real number as a float, and anything else as NaN."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _weight(weight: Any) -> float:
    if 0 < (number := _number(weight)) <= MOST_EXACT:
        return number
    message = f"a rank's weight must be above 0 and at most 2^53, not {weight!r}"
    raise InvalidParameter(message, field="weight")


def _peak(update: Any, plan: Plan) -> float | None:
    """Check an update. If the plan conceals, return a power of two that bounds the sent values.

    All ranks see that bound.

    Raises:
        InvalidParameter: the update is not a finite float32 vector of the plan's size.
    """
    expected = f"an update is a float32 tensor of shape ({plan.num_parameters},)"
    if not isinstance(update, Tensor):
        raise InvalidParameter(f"{expected}, not a {type(update).__name__}", field="update")
    found = f"{update.dtype} of shape {tuple(update.shape)}"
    if update.layout != torch.strided:
        raise InvalidParameter(f"{expected}, not a sparse one, {found}", field="update")
    if update.shape != (plan.num_parameters,) or update.dtype != torch.float32:
        raise InvalidParameter(f"{expected}, not {found}", field="update")
    least, most = (float(value) for value in update.detach().aminmax())
    peak = max(abs(least), abs(most)) * plan.one_in
    if not peak <= torch.finfo(torch.float32).max:
        reason = "has a value that is NaN or infinite"
        if math.isfinite(least) and math.isfinite(most):
            reason = f"has a value that is beyond float32 when multiplied by one_in={plan.one_in}"
        raise InvalidParameter(f"the update {reason}", field="update")
    if plan.conceal and peak >= 2.0**63:
        raise InvalidParameter("a concealed update has values below 2^63", field="update")
    return least_power(peak) if plan.conceal else None
