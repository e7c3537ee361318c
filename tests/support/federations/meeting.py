"""Parties of a merge that meet in a bucket in memory, in turns, under a clock of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from modelkin import Layout
from modelkin.errors import ConnectionFailed, ModelkinError
from modelkin.federation.buckets import leader, mail, party
from modelkin.federation.buckets.party import BucketParty
from modelkin.federation.buckets.record import Record
from modelkin.federation.buckets.statements import Statements, statement_key
from modelkin.federation.sharing.values import ArrayValues
from modelkin.sharing import BucketMerge
from modelkin.types.merges import Merge, Merged
from tests.support.federations.sharing import Floats, fedavg, updates

__all__ = ["NAMES", "SECRET", "Bucket", "Meeting"]

SECRET = bytes(range(32))
NAMES = ("org/a", "org/b", "org/c", "org/d")
_STILL_TURNS = 4
"""Turns without a new object after which nothing more will happen."""


class Bucket:
    """Objects in memory.

    Attributes:
        objects: by their keys.
        hides: whether a party is not shown an object, by both their names.
        away: whether it does not answer.
        mute: whether it stores objects, and does not say so.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.hides: Callable[[str, str], bool] = lambda _party, _key: False
        self.away = self.mute = False

    def seen_by(self, name: str) -> _Seen:
        """The bucket as a party sees it."""
        return _Seen(self, name)

    def keys(self, part: str) -> list[str]:
        """The keys with a part of a path in them, in order."""
        return sorted(key for key in self.objects if f"/{part}" in key)


class _Seen:
    def __init__(self, bucket: Bucket, name: str) -> None:
        self._bucket, self._name = bucket, name

    def __str__(self) -> str:
        return "memory"

    def get(self, key: str, most: int) -> bytes | None:
        self._require()
        found = self._bucket.objects.get(key)
        return None if found is None or self._bucket.hides(self._name, key) else found[:most]

    def put(self, key: str, data: bytes) -> None:
        self._require()
        self._bucket.objects.setdefault(key, data)
        if self._bucket.mute:
            raise ConnectionFailed("the bucket's answer is lost")

    def _require(self) -> None:
        if self._bucket.away:
            raise ConnectionFailed("the bucket is away")


class Meeting:
    """A merge of four members of 1,000 parameters, weighed by 10, 20, 30 and 40 examples.

    Attributes:
        values: by member.
        running: the parties that have not ended.
        merged: what others have got.
        failures: why yet others have none.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        size: Layout | int = 1000,
        members: Iterable[str] | Mapping[str, float] = NAMES,
        **terms: Any,
    ) -> None:
        self.bucket, self.now, self._key = Bucket(), 0.0, statement_key(SECRET, "july")
        for module in (leader, mail, party):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        names = sorted({*NAMES, *members})
        self.values = dict(zip(names, updates(len(names), 1000), strict=True))
        self.examples = {name: 10 * at for at, name in enumerate(names, 1)}
        given: dict[str, Any] = {"leader": "org/a", "aggregators": 3, "deadline": 60, **terms}
        self.merge = BucketMerge(self.bucket.seen_by("test"), "july", group_secret=SECRET)
        self.merge.create(size, members, **given)
        self.running: dict[str, BucketParty] = {}
        self.merged: dict[str, Merged] = {}
        self.failures: dict[str, ModelkinError] = {}

    def join(self, *names: str, values: Any = None, **given: Any) -> None:
        """Begin parties, with their own values unless others are given; as new processes."""
        for name in names:
            vector = self.values.get(name) if values is None else values
            store = self.bucket.seen_by(name)
            terms: dict[str, Any] = {
                "state": None,
                "examples": self.examples.get(name),
                "may_aggregate": True,
                "group_secret": SECRET,
                "conceal": True,
                "min_members": 3,
                **given,
            }
            record = self.record(name)
            source = None if vector is None else ArrayValues(vector)
            self.running[name] = BucketParty(store, record, "july", name, source, None, **terms)

    def record(self, name: str) -> Record:
        """The merge as a party reads it, with the group's secret."""
        return Record(Statements(self.bucket.seen_by(name), "july", self._key), "july", "memory")

    def say(self, name: str, kind: str, fields: dict[str, Any]) -> None:
        """State something in a party's name, as a program of its own would."""
        record = self.record(name)
        record.follow()
        path = record.name_of(kind, name, in_attempt=kind != "joined")
        record.statements.state(path, fields)

    def turn(self) -> None:
        """Let each party look and take a step."""
        for name, each in list(self.running.items()):
            try:
                merged = each.step(each.look())
            except ConnectionFailed:
                continue
            except ModelkinError as error:
                self.failures[name] = error
            else:
                if merged is None:
                    continue
                self.merged[name] = merged
            del self.running[name]

    def run(self, until: str = "never") -> None:
        """Take turns until nothing new is stated, or the merge is in a state."""
        still = 0
        while self.running and still < _STILL_TURNS and self.show().state != until:
            before = len(self.bucket.objects), len(self.running)
            self.turn()
            still = still + 1 if before == (len(self.bucket.objects), len(self.running)) else 0

    def wait(self, seconds: float = 61.0) -> None:
        """Take turns until nothing is left to do, let time pass, and take turns again."""
        self.run()
        self.now += seconds
        self.run()

    def show(self) -> Merge:
        """The merge as the bucket has it."""
        return self.merge.show()

    def show_seated(self) -> tuple[str, ...]:
        """The names of the aggregators."""
        record = self.record("test")
        record.follow()
        return record.seated

    def left_out(self) -> dict[str, str]:
        """Why parties do not count, by name."""
        return {p.name: p.left_out for p in self.show().parties if p.left_out is not None}

    def require_average(self, *members: str, of: tuple[str, ...] = NAMES) -> None:
        """Require that some parties have ended with the average of exactly these members."""
        wanted = self.average(*members)
        assert {} == self.failures
        for name in of:
            assert members == self.merged[name].members
            assert np.abs(self.average_of(name) - wanted).max() < 4 * 2.0**-30 + 1e-8
        assert 1 == len({self.average_of(name).tobytes() for name in of})

    def average_of(self, name: str) -> Floats:
        """The average that a party has got."""
        values = self.merged[name].values
        assert values is not None
        return values

    def average(self, *members: str) -> npt.NDArray[np.float64]:
        """The mean of some members in float64."""
        weights = [float(self.examples[name]) for name in members]
        return fedavg([self.values[name] for name in members], weights)
