"""Servers that find neighbours by signature: pgvector's graph over bits.

Real servers, on a socket in a folder of their own; a query is one round trip, as for their users.
"""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from typing import Any

import numpy as np
import psycopg

from benchmarks.retrieval.peers import BITS, SEARCHED, Ids, K, Peer, Values
from tests.support.servers.postgres import postgres_server

__all__ = ["Pgvector"]

_NEAREST = f"SELECT id FROM models ORDER BY signature <~> %s LIMIT {K}"


class Pgvector(Peer):
    """HNSW on ``bit``, which orders by how many bits differ."""

    def __init__(self, values: Values) -> None:
        super().__init__(values)
        self.name = "pgvector HNSW on bits"
        self._bit: Any = import_module("pgvector").Bit
        self._open = ExitStack()
        server = self._open.enter_context(postgres_server())
        self._connection = self._open.enter_context(
            psycopg.connect(
                host=str(server.data), user="postgres", dbname="postgres", autocommit=True
            )
        )
        self._run("CREATE EXTENSION vector")
        import_module("pgvector.psycopg").register_vector(self._connection)
        # One thread, and a graph that is built in memory, as recommended.
        self._run("SET max_parallel_maintenance_workers = 0")
        self._run("SET maintenance_work_mem = '2GB'")
        self._run(f"SET hnsw.ef_search = {SEARCHED}")
        self._run(f"CREATE TABLE models (id int PRIMARY KEY, signature bit({BITS}))")

    def fill(self) -> None:
        with self._connection.cursor().copy("COPY models FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", "bit"])
            for number, row in enumerate(self._values):
                copy.write_row([number, self.question(row)])
        self._run("CREATE INDEX graph ON models USING hnsw (signature bit_hamming_ops)")
        size = self._run("SELECT pg_relation_size('graph')")
        self.bytes_taken = int(size[0][0])

    def question(self, values: Values) -> Any:
        return self._bit(np.unpackbits(values.astype(np.uint8)).astype(bool))

    def ask(self, question: Any) -> Ids:
        found = self._connection.execute(_NEAREST, (question,)).fetchall()
        return np.array([row[0] for row in found], np.int64)

    def close(self) -> None:
        self._open.close()

    def _run(self, statement: str) -> list[Any]:
        cursor = self._connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []
