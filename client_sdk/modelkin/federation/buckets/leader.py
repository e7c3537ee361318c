"""``Leader``: the part of the hub's service that a party of a merge in a bucket takes.

It writes down who takes part, and ends each state by its own clock. A leader that begins again
gives the present state its whole time again; what was decided stands.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from modelkin.errors import InvalidParameter
from modelkin.federation.buckets.joining import party_of, why_not
from modelkin.federation.buckets.record import Record
from modelkin.federation.merging.attempts import failure_without, named
from modelkin.federation.shards.fixed_point import least_power
from modelkin.federation.shards.plan import Plan
from modelkin.federation.shards.public_keys import key_point
from modelkin.federation.shards.roster import Party, Roster

__all__ = ["Leader"]


class Leader:
    """Moves one merge from state to state; each decision is written once.

    Args:
        record: the merge, as this party knows it.
    """

    def __init__(self, record: Record) -> None:
        self._record = record
        self._decisions, self._since = -1, 0.0

    def lead(self) -> None:
        """Take the decision that is due, if any.

        Raises:
            ConnectionFailed: the store does not answer.
        """
        record = self._record
        if record.decisions != self._decisions:
            self._decisions, self._since = record.decisions, time.monotonic()
        late = time.monotonic() - self._since > record.terms["deadline"]
        state, awaited = record.now["state"], list(record.awaited())
        if state == "joining" and (late or not awaited):
            self._close_joining()
        elif state == "sending" and not awaited:
            self._decide(state="combining")
        elif state == "sending" and late:
            self._leave_out(dict.fromkeys(awaited, "it did not send all cells in time"))
        elif state == "combining":
            self._end_combining(awaited, late=late)

    def _close_joining(self) -> None:
        """Fix the roster of those that have joined as they may; fail if they are too few."""
        record, terms = self._record, self._record.terms
        plan, taken = Plan.from_json(terms["plan"]), dict[int, str]()
        parties, weights, peaks = list[Party](), dict[str, float](), [0.0]
        left_out = dict[str, str]()
        for name in record.parties:
            said = record.said("joined", name, in_attempt=False)
            why = self._why_away(name) if said is None else why_not(terms, name, said)
            if said is not None and why is None:
                first = taken.setdefault(key_point(bytes.fromhex(said["public_key"])), name)
                why = f"its public key gives the secrets of {first!r}" if first != name else None
            if why is not None:
                left_out[name] = why
                continue
            assert said is not None  # else there is a reason
            parties.append(party_of(name, said))
            if name in terms["members"]:
                weights[name] = terms["members"][name] or said["examples"]
                peaks.append(said["peak"])
        if len(weights) < plan.min_members:
            failure = f"{len(weights)} members joined, and min_members is {plan.min_members}"
            self._fail(f"{failure}: {named(left_out)}", left_out=left_out)
            return
        try:
            roster = Roster(plan, tuple(parties)).to_json()
        except InvalidParameter as error:
            self._fail(f"{error}: {named(left_out)}", left_out=left_out)
            return
        peak = least_power(max(peaks)) if plan.conceal else None
        self._decide(state="sending", roster=roster, weights=weights, peak=peak, left_out=left_out)

    def _why_away(self, name: str) -> str:
        path = self._record.name_of("joined", name, in_attempt=False)
        if path in self._record.statements.foreign:
            return "what lies at its place was written without the group's secret"
        return "it did not join in time"

    def _leave_out(self, reasons: Mapping[str, str]) -> None:
        """Begin the second attempt without some members; a second time the merge fails."""
        now = self._record.now
        failure = failure_without(
            reasons,
            attempt=now["attempt"],
            left=len(set(self._record.members) - set(reasons)),
            min_members=self._record.roster.plan.min_members,
        )
        left_out = {**now["left_out"], **reasons}
        if failure is not None:
            self._fail(failure, left_out=left_out)
            return
        self._decide(state="sending", attempt=now["attempt"] + 1, left_out=left_out)

    def _end_combining(self, awaited: list[str], *, late: bool) -> None:
        verdicts = {name: self._record.said("verdict", name) for name in self._record.seated}
        refused, failures = dict[str, str](), dict[str, str]()
        for name, verdict in verdicts.items():
            if verdict is not None:
                among = {
                    m: why for m, why in verdict["members"].items() if m in self._record.members
                }
                refused.update(among)
                if verdict["failed"] is not None:
                    failures[name] = verdict["failed"]
        if refused:
            self._leave_out(refused)
        elif failures:
            self._fail(named(failures))
        elif not awaited:
            self._decide(state="done")
        elif late:
            what = "verdict" if None in verdicts.values() else "result"
            self._fail(f"no {what} in time from {', '.join(awaited)}")

    def _fail(self, failure: str, **changes: Any) -> None:
        self._decide(state="failed", failure=failure, **changes)

    def _decide(self, **changes: Any) -> None:
        at = datetime.now(UTC).isoformat()
        self._record.decide({**self._record.now, "at": at, **changes})
