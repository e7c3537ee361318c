"""Parties of a hub's merge that speak plain HTTP: what the SDK does, in small steps."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

import modelkin
from modelkin import wire
from modelkin.federation.shards.roster import Roster, Round
from modelkin.federation.sharing import (
    Aggregator,
    Combined,
    Member,
    assemble,
    new_key,
    open_result,
    public_key,
)
from tests.support.http_space import Space, ok

Floats = npt.NDArray[np.float32]


class Party:
    """One party: its key, its token, and what it has to do.

    Args:
        merge: which it is a party of.
        name: of the model, or of a neutral party.
        values: of the model; None for a neutral party.
    """

    def __init__(self, merge: HubMerge, name: str, values: Floats | None = None) -> None:
        self.merge, self.name, self.values = merge, name, values
        self.key = new_key()
        self.token = secrets.token_urlsafe(32)

    @property
    def http(self) -> httpx.Client:
        return self.merge.http

    def join(self, **fields: Any) -> httpx.Response:
        """Join; only the digest of the token is sent."""
        body = {
            "public_key": base64.b64encode(public_key(self.key)).decode(),
            "token_digest": hashlib.sha256(self.token.encode()).hexdigest(),
            **fields,
        }
        if self.values is None:
            body["neutral"] = True
        else:
            body = {"examples": 1, "peak": float(np.abs(self.values).max()), **body}
        return self.http.post(f"{self.merge.path}/members/{self.name}", json=body)

    def put(self, path: str, data: bytes, **headers: str) -> httpx.Response:
        """Put a cell or a result."""
        sent = {"Content-Type": wire.CELL, "Member-Token": self.token, **headers}
        return self.http.put(f"{self.merge.path}/{path}", content=data, headers=sent)

    def get(self, path: str) -> httpx.Response:
        """Get a cell or a result."""
        return self.http.get(f"{self.merge.path}/{path}", headers={"Member-Token": self.token})

    def cells(self) -> Iterable[tuple[str, bytes]]:
        """The cells of the present attempt, with their paths."""
        assert self.values is not None
        roster, current = self.merge.roster(), self.merge.round()
        member = Member(roster, roster.place(self.name), self.key)
        for cell in member.cells(self.values, current):
            where = f"cells/{current.attempt}/{cell.shard}/{cell.piece}/{self.name}"
            yield where, cell.data

    def send(self) -> None:
        """Send all cells of the present attempt."""
        for where, data in self.cells():
            ok(self.put(where, data))

    def combined(self) -> dict[tuple[int, int], Combined]:
        """What it makes of the cells of its shards."""
        roster, current = self.merge.roster(), self.merge.round()
        aggregator = Aggregator(roster, roster.place(self.name), self.key)
        found = {}
        for shard in aggregator.shards:
            for piece in range(roster.plan.pieces):
                cells = {}
                for place in current.taking_part:
                    name = roster.parties[place].id
                    answer = self.get(f"cells/{current.attempt}/{shard}/{piece}/{name}")
                    assert 200 == answer.status_code, answer.text
                    cells[place] = answer.content
                found[shard, piece] = aggregator.combine(shard, piece, cells, current)
        return found

    def aggregate(self) -> None:
        """Combine the cells of its shards, and put the results."""
        roster, current = self.merge.roster(), self.merge.round()
        aggregator = Aggregator(roster, roster.place(self.name), self.key)
        for (shard, piece), combined in self.combined().items():
            assert combined.values is not None, combined
            sealed = aggregator.seal_result(shard, piece, combined.values, current)
            ok(self.put(f"results/{shard}/{piece}", sealed))

    def merged(self) -> Floats:
        """The average, of all results."""
        roster, current = self.merge.roster(), self.merge.round()
        results: dict[int, dict[int, Floats]] = {}
        for shard in range(roster.plan.shards):
            for piece in range(roster.plan.pieces):
                answer = self.get(f"results/{shard}/{piece}")
                assert 200 == answer.status_code, answer.text
                results.setdefault(shard, {})[piece] = open_result(
                    roster,
                    roster.place(self.name),
                    self.key,
                    answer.content,
                    shard=shard,
                    piece=piece,
                    current=current,
                )
        return assemble(roster, current, results)

    def judge(self, **fields: Any) -> httpx.Response:
        """Say that all cells are good, or which are not."""
        body = {"attempt": self.merge.round().attempt, **fields}
        headers = {"Member-Token": self.token}
        return self.http.post(f"{self.merge.path}/verdicts", json=body, headers=headers)


class HubMerge:
    """A merge of a space, and the parties that a test plays.

    Args:
        space: with M parameters.
        vectors: of the members, by model.
        name: of the merge.
        store: whether the models are stored first.
        wanted: fields of the merge; members are those of ``vectors`` by default.
    """

    def __init__(
        self,
        space: Space,
        vectors: Mapping[str, Floats],
        name: str = "m",
        *,
        store: bool = True,
        **wanted: Any,
    ) -> None:
        self.space, self.http = space, space.http
        self.path = f"{space.path('merges')}/{name}"
        for model in vectors if store else ():
            support = modelkin.Support.from_indices(range(0, space.m, 3), space.m)
            space.put(model, support)
        if not {"donors_of", "clustering"} & wanted.keys():
            wanted = {"members": list(vectors), **wanted}
        self.wanted = wanted
        self.created = self.http.put(self.path, json=wanted)
        self.parties = {model: Party(self, model, values) for model, values in vectors.items()}

    def show(self) -> dict[str, Any]:
        """The merge as the service shows it."""
        return ok(self.http.get(self.path))

    @property
    def state(self) -> str:
        return str(self.show()["state"])

    def roster(self) -> Roster:
        """The roster that all parties have."""
        return Roster.from_json(self.show()["roster"])

    def round(self) -> Round:
        """The round of the present attempt, from what the merge shows."""
        shown = self.show()
        roster = Roster.from_json(shown["roster"])
        weights = {
            roster.place(party["name"]): party["weight"]
            for party in shown["parties"]
            if party["weight"] is not None and party["joined"] and party["left_out"] is None
        }
        return Round(1, weights, attempt=shown["attempt"], peak=shown["peak"])

    def join_all(self) -> None:
        """All members join."""
        for party in self.parties.values():
            ok(party.join())

    def send_all(self) -> None:
        """All members that count send their cells."""
        roster, current = self.roster(), self.round()
        for name, party in self.parties.items():
            if roster.place(name) in current.weights:
                party.send()

    def seated(self) -> list[Party]:
        """The parties that aggregate."""
        roster = self.roster()
        return [self.parties[roster.parties[place].id] for place in roster.seats]

    def aggregate_all(self) -> None:
        """All aggregators find all cells good, and put their results."""
        for party in self.seated():
            assert all(each.values is not None for each in party.combined().values())
            ok(party.judge())
        for party in self.seated():
            party.aggregate()
