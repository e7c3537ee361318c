"""``Record``: a merge as its objects in a bucket tell it: terms, statements, and a leader's log.

    terms                       who may take part, the plan, and the leader
    {id}/joined/{party}         a party's key, examples and largest magnitude
    {id}/log/{number}           the leader's decisions: the roster, and each change of state
    {id}/{attempt}/cells/...    sealed cells, and sent/{party} once all of a member's are there
    {id}/{attempt}/verdict/...  what an aggregator found, by party
    {id}/{attempt}/results/...  sealed results, and released/{party} once all of a holder's are

Each object is written once, by one party, under a name that all can compute: nothing is listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import zip_longest
from typing import Any

from modelkin.core.layout import Layout, TensorSpec
from modelkin.errors import ConnectionFailed, InvalidParameter, MergeFailed
from modelkin.federation.buckets.statements import Statements
from modelkin.federation.shards.roster import Roster
from modelkin.types.merges import Merge, MergeParty

__all__ = ["FORMAT", "Record"]

FORMAT = 1

_JOINING = {
    "state": "joining",
    "attempt": 0,
    "left_out": {},
    "failure": None,
    "at": None,
    "roster": None,
    "weights": {},
    "peak": None,
}


class Record:
    """What one party knows of one merge.

    Args:
        statements: reads and writes the statements of the merge.
        merge: the merge's name.
        where: the store's, for messages.
    """

    def __init__(self, statements: Statements, merge: str, where: str) -> None:
        self.statements, self._merge, self._where = statements, merge, where
        self._log: list[dict[str, Any]] = []
        self._roster: Roster | None = None

    @property
    def terms(self) -> dict[str, Any]:
        """What the merge was created with.

        Raises:
            ConnectionFailed: there is no such merge yet, or the store does not answer.
            MergeFailed: written with another secret, or of a version that this one does not know.
        """
        terms = self.statements.read("terms", warn=False)
        if terms is None:
            self.statements.require_own("terms")  # no waiting makes another secret fit
            raise ConnectionFailed(
                f"there is no merge {self._merge!r} of this group in {self._where}: there is "
                f"nothing at {self.statements.path('terms')}"
            )
        if terms.get("format") != FORMAT:
            raise MergeFailed(f"merge {self._merge!r} is of another version: upgrade modelkin")
        return terms

    def check_layout(self, layout: Layout) -> None:
        """Check that values are of the merge's tensors, in their order, as far as it names them.

        Raises:
            ConnectionFailed: there is no such merge, or the store does not answer.
            InvalidParameter: they are not; names the first that differs.
            MergeFailed: the terms cannot be read.
        """
        if self.terms["layout"] in {None, layout.digest}:
            return
        message = "the values are of other tensors than the merge, or in another order"
        with self._well_formed():
            wanted = self.statements.opened(self.terms["tensors"])
            theirs = Layout.from_json(wanted).tensors
        pairs = zip_longest(layout.tensors, theirs)
        here, there = next((pair for pair in pairs if pair[0] != pair[1]), (None, None))
        where = f"where the merge has {_printed(there)}, they have {_printed(here)}"
        raise InvalidParameter(f"{message}: {where}", field="layout")

    @property
    def parties(self) -> tuple[str, ...]:
        """The names of all that may take part, in order; a party's number is its place here."""
        return tuple(sorted([*self.terms["members"], *self.terms["neutral"]]))

    @property
    def now(self) -> dict[str, Any]:
        """The leader's last decision."""
        return self._log[-1] if self._log else _JOINING

    @property
    def decisions(self) -> int:
        """How many decisions there are."""
        return len(self._log)

    @property
    def roster(self) -> Roster:
        """The roster, once joining has ended."""
        if self._roster is None:
            self._roster = Roster.from_json(self.now["roster"])
        return self._roster

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the members that count in this attempt."""
        return tuple(name for name in self.now["weights"] if name not in self.now["left_out"])

    @property
    def seated(self) -> tuple[str, ...]:
        """The names of the aggregators."""
        return tuple(self.roster.parties[place].id for place in self.roster.seats)

    def follow(self) -> None:
        """Read the decisions that are new."""
        while (new := self.statements.read(self._log_name())) is not None:
            self._log.append(new)

    def decide(self, decision: dict[str, Any]) -> None:
        """Add a decision, as the leader; the one that stands may be an earlier process's."""
        self._log.append(self.statements.state(self._log_name(), decision))

    def name_of(self, kind: str, party: str, *, in_attempt: bool = True) -> str:
        """The name of a party's statement of a kind, in this attempt or in the whole merge.

        Raises:
            InvalidParameter: the merge is not of this party.
        """
        if party not in self.parties:
            message = f"merge {self._merge!r} is of {', '.join(self.parties)}, and not of {party!r}"
            raise InvalidParameter(message, field="model")
        number = self.parties.index(party)
        return self.place_of(kind, number) if in_attempt else f"{self.terms['id']}/{kind}/{number}"

    def place_of(self, kind: str, *numbers: int, attempt: int | None = None) -> str:
        """The name of an object of an attempt, by default of this one."""
        at = self.now["attempt"] if attempt is None else attempt
        return "/".join(map(str, (self.terms["id"], at, kind, *numbers)))

    def said(self, kind: str, party: str, *, in_attempt: bool = True) -> dict[str, Any] | None:
        """What a party stated; None if nothing yet."""
        return self.statements.read(self.name_of(kind, party, in_attempt=in_attempt))

    def shown(self) -> Merge:
        """The merge as it is now.

        Raises:
            ConnectionFailed: the store does not answer, or there is no such merge.
            MergeFailed: a party of the group has stated what is no statement.
        """
        with self._well_formed():
            self.follow()
            terms, now = self.terms, self.now
            ended = now["state"] in {"done", "failed"}
            return Merge(
                name=self._merge,
                space=self._where,
                state=now["state"],
                attempt=now["attempt"],
                revision=len(self.statements),
                request={name: terms[name] for name in ("weights", "of", "leader", "deadline")},
                digest=None if now["roster"] is None else self.roster.digest.hex(),
                failure=now["failure"],
                created_at=datetime.fromisoformat(terms["created"]),
                due_at=None,
                ended_at=datetime.fromisoformat(now["at"]) if ended else None,
                plan=terms["plan"],
                parties=tuple(map(self._party, self.parties)),
                awaited=tuple(self.awaited()),
                roster=now["roster"],
                peak=now["peak"],
            )

    def awaited(self) -> Iterator[str]:
        """The names of the parties that the present state waits for."""
        state = self.now["state"]
        if state == "joining":
            yield from (n for n in self.parties if self.said("joined", n, in_attempt=False) is None)
        elif state == "sending":
            yield from (name for name in self.members if self.said("sent", name) is None)
        elif state == "combining":
            undecided = [name for name in self.seated if not self._decided(name)]
            silent = (name for name in self.seated if self.said("released", name) is None)
            yield from undecided or silent

    def _decided(self, party: str) -> bool:
        """Whether an aggregator found all cells of this attempt good."""
        verdict = self.said("verdict", party)
        return verdict is not None and not verdict["members"] and verdict["failed"] is None

    def _party(self, name: str) -> MergeParty:
        neutral, now = name in self.terms["neutral"], self.now
        joined, weight = self.terms["members"].get(name), None
        if now["roster"] is None:
            said = self.said("joined", name, in_attempt=False)
            is_in, willing = said is not None, said is None or said["may_aggregate"]
            if not neutral:
                weight = joined if joined is not None or said is None else said["examples"]
        else:
            found = {party.id: party for party in self.roster.parties}.get(name)
            is_in, willing = found is not None, found is None or found.may_aggregate
            weight = now["weights"].get(name)
        decided = now["state"] == "combining" and name in self.seated and self._decided(name)
        return MergeParty(name, is_in, neutral, willing, weight, now["left_out"].get(name), decided)

    @contextmanager
    def _well_formed(self) -> Iterator[None]:
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MergeFailed(
                f"a party of merge {self._merge!r} has stated what this version cannot read: "
                f"{error!r}"
            ) from error

    def _log_name(self) -> str:
        return f"{self.terms['id']}/log/{self.decisions}"


def _printed(tensor: TensorSpec | None) -> str:
    return "none" if tensor is None else f"{tensor.name!r} {list(tensor.shape)}"
