"""``BucketMerge``: an average of parties that reach nothing but a bucket or a shared folder."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from modelkin._validation import check_model_name, check_space_name
from modelkin.core.layout import Layout
from modelkin.errors import ConnectionFailed, InvalidParameter
from modelkin.federation.buckets.party import BucketParty
from modelkin.federation.buckets.record import FORMAT, Record
from modelkin.federation.buckets.statements import Statements, statement_key
from modelkin.federation.buckets.stores import Store
from modelkin.federation.layouts import MOST_EXACT
from modelkin.federation.merging.polling import Polling
from modelkin.federation.shards.plan import MIN_MEMBERS, Plan, default_shards
from modelkin.federation.sharing.values import ValueSink, source_of
from modelkin.types.merges import Merge, Merged

__all__ = ["BucketMerge"]

_PIECE_VALUES: Final = 1 << 20


class BucketMerge:
    """A merge whose parties meet in a store alone, and one of them leads.

        merge = BucketMerge(BucketStore("s3://bucket/merges"), "july", group_secret=secret)
        merge.create(M, ["org/a", "org/b", "org/c"], leader="org/a")     # once
        merged = merge.join("org/a", vector, examples=600, state="a.merge")     # each party

    Args:
        store: what all parties can get from and put into.
        name: the merge's name in the store.
        group_secret: 16 random bytes or more that all parties have, and nobody else. Who lacks
            them can delete objects, and neither add one that counts nor open one.

    Raises:
        InvalidName: the name cannot be one.
        InvalidParameter: no group secret, or a short one.
    """

    def __init__(self, store: Store, name: str, *, group_secret: bytes) -> None:
        self._store, self._name = store, check_space_name(name, field="merge")
        self._key, self._secret = statement_key(group_secret, name), group_secret

    def create(
        self,
        layout: Layout | int,
        members: Iterable[str] | Mapping[str, float],
        *,
        leader: str,
        neutral: Iterable[str] = (),
        weights: Literal["examples", "equal"] | None = None,
        aggregators: int | None = None,
        of: Literal["weights", "delta"] = "weights",
        conceal: bool = True,
        one_in: int = 1,
        min_members: int = MIN_MEMBERS,
        deadline: float = 3600.0,
    ) -> Merge:
        """Write down the terms. The same terms again change nothing.

        Args:
            layout: the tensors that all members have, or just M, how many parameters.
            members: the names of those with values; or their weights by name.
            leader: the party that decides who takes part, and ends each state; it has to run.
            neutral: the names of those that aggregate alone.
            weights: by the examples that members state, or equal; ``"examples"`` by default. None
                where members have weights.
            aggregators: A, parties that average a shard each. By default 4, or fewer where one
                absent member would leave too few to hold them.
            of: ``"weights"``, or ``"delta"`` for differences to a base that all members have.
            conceal: whether aggregators see only sums.
            one_in: c; one difference in c is sent.
            min_members: fewer members are not averaged.
            deadline: seconds that joining, sending and combining may take each, by the leader's
                clock.

        Raises:
            InvalidParameter: an argument is out of its range, or another merge has the name.
            ConnectionFailed: the store does not answer.
        """
        given, kind = _weights_of(members, weights)
        tensors = None if isinstance(layout, int) else layout.digest
        num_parameters = layout if isinstance(layout, int) else layout.num_parameters
        shards = aggregators
        if shards is None:
            shards = default_shards(len(given), min_members, num_parameters)
        plan = Plan(
            num_parameters=num_parameters,
            shards=shards,
            conceal=conceal,
            one_in=one_in,
            min_members=min_members,
            piece_values=_PIECE_VALUES,
        )
        terms = {
            "format": FORMAT,
            "leader": leader,
            "members": given,
            "neutral": sorted(neutral),
            "weights": kind,
            "of": of,
            "layout": tensors,
            "deadline": deadline,
            "plan": plan.to_json(),
        }
        _check(terms)
        return self._write(terms, None if isinstance(layout, int) else layout)

    def _write(self, terms: Mapping[str, Any], layout: Layout | None) -> Merge:
        """Write down terms, unless the same stand there.

        The tensors go with them so that a refusal can name one; their digest is what counts.

        Raises:
            InvalidParameter: others do.
            ConnectionFailed: the store does not answer.
        """
        made = {"id": secrets.token_hex(8), "created": datetime.now(UTC).isoformat(), **terms}
        record = self._record()
        if layout is not None:
            made["tensors"] = record.statements.sealed(layout.to_json())
        stands = record.statements.state("terms", made)
        if terms != {name: stands.get(name) for name in terms}:
            message = f"another merge of this group is called {self._name!r}: choose another name"
            raise InvalidParameter(message, field="merge")
        return record.shown()

    def show(self) -> Merge:
        """Read the merge: its state, and the parties that it waits for.

        Raises:
            ConnectionFailed: there is no such merge, or the store does not answer.
            MergeFailed: it was created with another secret.
        """
        return self._record().shown()

    def join(
        self,
        model: str,
        values: Any = None,
        *,
        layout: Layout | None = None,
        output: ValueSink | None = None,
        examples: int | None = None,
        may_aggregate: bool = True,
        conceal: bool = True,
        min_members: int = MIN_MEMBERS,
        state: str | Path | None = None,
        timeout: float | None = None,
        on_progress: Callable[[Merge], object] | None = None,
    ) -> Merged:
        """Take part to the end: join, send sealed cells, aggregate if seated, lead if named.

        Args:
            model: the party's name.
            values: a vector or tensor of M numbers, or a source that reads one in stretches, such
                as ``modelkin.checkpoints.CheckpointValues``. None for a neutral party.
            layout: the tensors that the values are of, where the merge was created with some.
            output: the sink of the average, such as ``modelkin.checkpoints.CheckpointSink``; None
                for memory.
            examples: the number of examples that the model was trained on: its weight, where
                weights are by examples.
            may_aggregate: whether this party may hold a shard.
            conceal: whether to refuse a merge whose aggregators see this member's shards, in place
                of sums.
            min_members: the least number of members that this party accepts.
            state: a file, readable only by its owner, with which a new process goes on where this
                one ended; it is deleted at the end.
            timeout: seconds at most; None for as long as the merge takes.
            on_progress: a function that is called with the merge whenever it has changed.

        Raises:
            MergeFailed: the merge ended without a result, or its leader has, or it was created
                with another secret; says why.
            ConnectionFailed: there has been no such merge, or the store has not answered, for long.
            InvalidParameter: this is no party of the merge, its values are not of the merge's
                parameters, not finite, or have changed meanwhile; or the merge shows more than this
                party accepts.
            TimeoutError: the merge has not ended in time, and goes on without this party.
        """
        party = BucketParty(
            self._store,
            self._record(),
            self._name,
            model,
            None if values is None else source_of(values),
            output,
            layout=layout,
            state=None if state is None else Path(state),
            examples=examples,
            may_aggregate=may_aggregate,
            group_secret=self._secret,
            conceal=conceal,
            min_members=min_members,
        )
        end = None if timeout is None else time.monotonic() + timeout
        try:
            return self._take_part(party, end, on_progress)
        except BaseException:
            party.discard()
            raise

    def _record(self) -> Record:
        return Record(Statements(self._store, self._name, self._key), self._name, str(self._store))

    def _take_part(
        self,
        party: BucketParty,
        end: float | None,
        on_progress: Callable[[Merge], object] | None,
    ) -> Merged:
        polling, seen = Polling(), 0
        while True:
            try:
                shown = party.look()
                if on_progress is not None and shown.revision != seen:
                    seen = shown.revision
                    on_progress(shown)
                merged = party.step(shown)
                if merged is not None:
                    return merged
                pause = polling.after(shown)
            except ConnectionFailed as error:  # each step may be repeated
                pause = polling.after_failure(error)
            if end is not None and time.monotonic() > end:
                raise TimeoutError(f"merge {self._name!r} has not ended; it goes on")
            time.sleep(pause)


def _weights_of(
    members: Iterable[str] | Mapping[str, float], weights: str | None
) -> tuple[dict[str, float | None], str]:
    """The members with their weights, None for those that state examples; and what weights are.

    Raises:
        InvalidParameter: no such weights, or some beside those that the members have.
    """
    if weights not in {None, "examples", "equal"}:
        message = f"weights is {weights!r}, not 'examples' or 'equal'"
        raise InvalidParameter(message, field="weights")
    if not isinstance(members, Mapping):
        alike: float | None = 1.0 if weights == "equal" else None
        return dict.fromkeys(members, alike), weights or "examples"
    if weights is not None:
        message = f"the members have weights: weights={weights!r} beside these is one too many"
        raise InvalidParameter(message, field="weights")
    return dict[str, float | None](members), "given"


def _check(terms: Mapping[str, Any]) -> None:
    """Check what a plan does not.

    Raises:
        InvalidName: a name cannot be one.
        InvalidParameter: the first field that is wrong.
    """
    members, names = terms["members"], [*terms["members"], *terms["neutral"]]
    for at, name in enumerate(names):
        check_model_name(name, field=f"members[{at}]")
    if len(members) < terms["plan"]["min_members"]:
        message = f"{len(members)} members, and min_members is {terms['plan']['min_members']}"
        raise InvalidParameter(message, field="members")
    if len(set(names)) != len(names):
        raise InvalidParameter("a party is a member or neutral, and once", field="neutral")
    if terms["leader"] not in names:
        raise InvalidParameter("the leader is one of the parties", field="leader")
    if terms["weights"] != "examples" and not all(
        _is_within(w, MOST_EXACT) for w in members.values()
    ):
        raise InvalidParameter("a weight is above 0 and at most 2^53", field="members")
    if terms["of"] not in {"weights", "delta"}:
        raise InvalidParameter("of is 'weights' or 'delta'", field="of")
    if terms["plan"]["one_in"] > 1 and terms["of"] == "weights":
        message = 'one_in > 1 leaves values out, which only of="delta" can do without'
        raise InvalidParameter(message, field="one_in")
    if not _is_within(terms["deadline"], 30 * 86400):
        raise InvalidParameter("a deadline is above 0 s, and 30 days at most", field="deadline")


def _is_within(value: Any, most: int) -> bool:
    """Whether a value is a number above 0, and this at most."""
    return isinstance(value, int | float) and value is not True and bool(0 < value <= most)
