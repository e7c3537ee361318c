"""Ten processes over one Postgres and a Redis Cluster of three: is a read stale, what does it cost?

``python -m tests.soak.many_processes`` stores made signatures in 200 spaces, by Zipf's law. Random
changes through one process are each read at once through another. Then the same queries go to a
process that has all indexes, to ten by the name of the space, as a proxy that hashes it would send
them, and to the ten in turn.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

import httpx
import numpy as np

from app.models.spaces.records import SpaceRecord
from benchmarks.harness import Spread
from benchmarks.large.sizes import measure_store, print_store
from benchmarks.large.store import LargeStore, large_store, signature_of
from modelkin import Signature
from tests.support.http_space import SIGNATURE
from tests.support.servers.fleet import Fleet, Process, fleet, home

__all__ = ["ONE", "ROUTES", "Changes", "Costs", "idle", "measure"]

ONE: Final = "one process"
ROUTES: Final[dict[str, Callable[[int, str, int], int]]] = {
    "by the space": lambda number, space, processes: home(space, processes),
    "in turn": lambda number, space, processes: number % processes,
}
"""The process that answers a query of a number about a space, of so many processes."""


Known = tuple[Signature, str]
"""What a model is now, and its tag."""


class Changes:
    """Models that are changed through one process and read through another.

    Args:
        store: has the spaces.
        clients: of all processes.
        seed: of what is written, and of who writes and who reads.
    """

    def __init__(self, store: LargeStore, clients: Sequence[httpx.Client], seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.stale: list[str] = []
        self._store, self._clients = store, clients
        self._random = np.random.default_rng(seed)
        self._known: dict[str, dict[str, Known]] = defaultdict(dict)

    def run(self, changes: int) -> None:
        """So many changes, each followed by the reads that would show that it is not there yet."""
        for number in range(changes):
            space = self._store.spaces[self._random.integers(len(self._store.spaces))]
            writer, reader = self._random.choice(len(self._clients), 2, replace=False)
            self._writer, self._reader = self._clients[writer], self._clients[reader]
            chance = self._random.random()
            found = None if chance < 0.3 else self._one_of(space)
            if found is None:
                self._put(space, f"org/new-{number}", None)
            elif chance < 0.55:
                self._put(space, *found)
            elif chance < 0.8:
                self._tag(space, *found)
            else:
                self._delete(space, *found)

    def _one_of(self, space: SpaceRecord) -> tuple[str, Known] | None:
        """A model that never changed, or one that was changed before; None where it is gone."""
        known = self._known[space.name]
        if known and self._random.random() < 0.3:
            return list(known.items())[self._random.integers(len(known))]
        with suppress(ValueError):
            number = int(self._random.integers(1, space.models + 1))
            name, signature = self._store.model(space, number)
            return name, (signature, "")
        return None

    def _put(self, space: SpaceRecord, name: str, before: Known | None) -> None:
        signature = self._signature(space)
        kind = "create" if before is None else "replace"
        self._write(kind, "PUT", space, f"signatures/{name}", **_body(signature))
        self._known[space.name][name] = signature, before[1] if before else ""
        self._expect(self._has(space, name, signature), f"{name} is not found by what it is now")
        if before is not None:
            found = self._has(space, name, before[0])
            self._expect(not found, f"{name} is found by what it was")

    def _tag(self, space: SpaceRecord, name: str, before: Known) -> None:
        signature, old = before
        new = f"t{self.done.total()}"
        self._write("tag", "PATCH", space, f"models/{name}", json={"tags": [new]})
        self._known[space.name][name] = signature, new
        self._expect(self._has(space, name, signature, new), f"{name} is not found by its tag")
        if old:
            found = self._has(space, name, signature, old)
            self._expect(not found, f"{name} is found by its old tag")

    def _delete(self, space: SpaceRecord, name: str, before: Known) -> None:
        self._write("delete", "DELETE", space, f"models/{name}")
        self._known[space.name].pop(name, None)
        self._expect(not self._has(space, name, before[0]), f"{name} is found though it is gone")
        answer = self._reader.get(f"/v1/spaces/{space.name}/models/{name}")
        self._expect(answer.status_code == 404, f"{name} is there though it is gone")

    def _signature(self, space: SpaceRecord) -> Signature:
        num_perm = space.signature.num_perm
        return signature_of(self._random.integers(0, 1 << 32, num_perm, np.uint32))

    def _write(self, kind: str, method: str, space: SpaceRecord, path: str, **request: Any) -> None:
        url = f"/v1/spaces/{space.name}/{path}"
        answer = self._writer.request(method, url, **request)
        assert answer.is_success, answer.text
        self.done[kind] += 1

    def _has(self, space: SpaceRecord, name: str, signature: Signature, *tags: str) -> bool:
        """Whether the reader finds the model by a signature, by a scan and in the buckets alike."""
        found = []
        for method in ("scan", "lsh"):
            asked = {"k": 2, "method": method, "min_similarity": 1.0, "tag": list(tags)}
            answer = ask(self._reader, space.name, signature, asked)
            self.answered[answer["method"] + " degraded" * answer["degraded"]] += 1
            found.append(name in [item["model"] for item in answer["items"]])
        self._expect(found[0] == found[1], f"{name} is found by one of scan and lsh alone")
        return found[0]

    def _expect(self, fresh: bool, otherwise: str) -> None:
        if not fresh:
            self.stale.append(f"after {self.done.total()} changes: {otherwise}")


@dataclass
class Costs:
    """What queries took, by who answered.

    Attributes:
        seconds: median of a query, for each block of queries.
        busy: mean seconds that the process which answered had a processor, likewise.
        wrong: queries that did not find the model that they are the signature of.
    """

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    busy: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    wrong: int = 0


def measure(
    store: LargeStore, made: Fleet, route: str, *, rounds: int, queries: int, seed: int
) -> dict[str, Costs]:
    """Ask the same queries of one process and of several, block by block in turn.

    Each block is asked as it is, and then after a change of the space of each query, which another
    process made. At first each space is asked about once, which does not count.

    Args:
        store: has the models that are asked about.
        made: the processes.
        route: one of ``ROUTES``.
        rounds: blocks of each.
        queries: of a block.
        seed: of the choice of spaces and models.

    Returns:
        The costs of queries as they are, and of those after a change.
    """
    random, many = np.random.default_rng(seed), len(made.parts)
    routes: dict[str, tuple[Callable[[int, str], Process], Process]] = {
        ONE: (lambda number, space: made.whole, made.parts[0]),
        route: (lambda number, space: made.parts[ROUTES[route](number, space, many)], made.whole),
    }
    found = {"": Costs(), " after a change": Costs()}
    _, _, signature = _query(store, random)
    for number, space in enumerate(store.spaces):
        for choose, _ in routes.values():
            ask(choose(number, space.name).http, space.name, signature, {"k": 10})
    for _ in range(rounds):
        asked = [_query(store, random) for _ in range(queries)]
        for kind, costs in found.items():
            for name, (choose, writer) in routes.items():
                taken, busy = [], 0.0
                for number, (space, model, signature) in enumerate(asked):
                    if kind:
                        _write_one(writer, space, random)
                    process = choose(number, space.name)
                    before, began = process.busy, time.perf_counter()
                    answer = ask(process.http, space.name, signature, {"k": 10})
                    taken.append(time.perf_counter() - began)
                    busy += process.busy - before
                    costs.wrong += model not in [item["model"] for item in answer["items"]]
                costs.seconds[name].append(median(taken))
                costs.busy[name].append(busy / queries)
    return found


def idle(made: Fleet, seconds: float) -> float:
    """The share of a processor that a process takes while it is asked nothing."""
    before = sum(each.busy for each in made.parts)
    time.sleep(seconds)
    return (sum(each.busy for each in made.parts) - before) / seconds / len(made.parts)


def ask(
    client: httpx.Client, space: str, signature: Signature, asked: dict[str, Any]
) -> dict[str, Any]:
    """The answer to a query for neighbours."""
    url = f"/v1/spaces/{space}/neighbors"
    answer = client.post(url, params=asked, **_body(signature))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _query(store: LargeStore, random: np.random.Generator) -> tuple[SpaceRecord, str, Signature]:
    """A model that never changed, of any space."""
    while True:
        space = store.spaces[random.integers(len(store.spaces))]
        try:
            name, signature = store.model(space, int(random.integers(1, space.models + 1)))
        except ValueError:
            continue
        return space, name, signature


def _write_one(process: Process, space: SpaceRecord, random: np.random.Generator) -> None:
    values = random.integers(0, 1 << 32, space.signature.num_perm, np.uint32)
    url = f"/v1/spaces/{space.name}/signatures/org/beside-{random.integers(1 << 62)}"
    process.http.put(url, **_body(signature_of(values))).raise_for_status()


def _body(signature: Signature) -> dict[str, Any]:
    return {"content": signature.to_bytes(), "headers": {"Content-Type": SIGNATURE}}


def _print_costs(title: str, costs: Costs) -> None:
    print(f"{title}, {costs.wrong} wrong:")
    for name, blocks in costs.seconds.items():
        busy = costs.busy[name]
        ratios = [
            Spread.of([a / b for a, b in zip(mine[name], mine[ONE], strict=True)])
            for mine in (costs.seconds, costs.busy)
        ]
        beside = " and ".join(f"{r.median:.2f} ({r.least:.2f} to {r.most:.2f})" for r in ratios)
        print(
            f"  {name:12} {median(blocks) * 1e3:6.2f} ms, {median(busy) * 1e3:6.2f} ms of "
            f"processors; of one process's: {beside}"
        )


def _print_memory(made: Fleet) -> None:
    parts = [each.memory / 2**20 for each in made.parts]
    print(
        f"memory: one process {made.whole.memory / 2**20:.0f} MiB, {len(parts)} processes "
        f"{sum(parts):.0f} MiB, {min(parts):.0f} to {max(parts):.0f} each",
        flush=True,
    )


def _measure_all(store: LargeStore, made: Fleet, options: argparse.Namespace) -> int:
    """Print what all queries took; how many were answered wrongly."""
    wrong, given = 0, {"rounds": options.rounds, "queries": options.queries, "seed": options.seed}
    for route in ROUTES:
        for kind, costs in measure(store, made, route, **given).items():
            _print_costs(f"queries{kind}", costs)
            wrong += costs.wrong
    print(f"a process that is asked nothing takes {idle(made, options.idle):.2%} of a processor")
    return wrong


def main() -> int:
    """Print what was done, what was stale, and what queries took; 1 if anything was stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=100_000)
    parser.add_argument("--spaces", type=int, default=200)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--num-perm", type=int, default=128, help="values of a signature")
    parser.add_argument("--changes", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--queries", type=int, default=100, help="of a round, for each")
    parser.add_argument("--idle", type=float, default=60, help="seconds without a query")
    parser.add_argument("--seed", type=int, default=19)
    options = parser.parse_args()
    with large_store(
        options.models, options.spaces, num_perm=options.num_perm, seed=options.seed
    ) as store:
        print_store(measure_store(store))
        with fleet(store, options.processes) as made:
            _print_memory(made)
            clients = [each.http for each in (made.whole, *made.parts)]
            changes = Changes(store, clients, options.seed)
            changes.run(options.changes)
            print(
                f"{options.processes + 1} processes, {changes.done.total()} changes "
                f"{dict(changes.done)}, read by {dict(changes.answered)}: "
                f"{len(changes.stale)} stale"
            )
            print(*changes.stale[:5], sep="\n", end="", flush=True)
            wrong = len(changes.stale)
            wrong += _measure_all(store, made, options)
            _print_memory(made)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
