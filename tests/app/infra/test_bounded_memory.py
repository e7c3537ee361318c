"""Memory that a process keeps: few arenas, free pages given back, page caches bounded together."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from sqlalchemy import text

from app.infra.db.database import Database

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the heap of glibc")

MIB = 1 << 20

_ARENAS = """
import ctypes, sys, threading
from app.infra.heap import limit_heap
print(limit_heap())
barrier = threading.Barrier(16)
def work():
    kept = [bytearray(1000 + n) for n in range(100)]
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
library = ctypes.CDLL(None)
library.fopen.restype = ctypes.c_void_p
file = library.fopen(sys.argv[1].encode(), b"w")
library.malloc_info(0, ctypes.c_void_p(file))
library.fclose(ctypes.c_void_p(file))
"""
_RESIDENT = """
import resource
def resident():
    pages = open("/proc/self/statm").read().split()[1]
    return int(pages) * resource.getpagesize()
"""
_LARGE_BLOCKS = """
import sys
from app.infra.heap import limit_heap
if sys.argv[1] == "limited":
    assert limit_heap()
del (large := [bytes(30 << 20)])[:]
before = resident()
blocks = [bytearray(b"x") * (2 << 20) for _ in range(25)]
last = bytes(100_000)
del blocks
print(resident() - before)
"""
_FRAGMENTS = """
from app.infra.heap import give_back
blocks = [bytes(10_000) for _ in range(10_000)]
kept = blocks[::50]
del blocks
before = resident()
give_back()
print(before - resident())
"""
_PAGE_CACHES = """
import sys
from contextlib import ExitStack
from app.infra.db import sqlite
from app.infra.db.database import Database
from sqlalchemy import text
limit = f"soft_heap_limit={sqlite._HEAP_LIMIT}"
assert limit in sqlite._PRAGMAS
chosen = f"soft_heap_limit={sys.argv[2]}"
sqlite._PRAGMAS = tuple(chosen if pragma == limit else pragma for pragma in sqlite._PRAGMAS)
database = Database("sqlite:///" + sys.argv[1], timeout=10, connections=24)
with database.writing() as session:
    session.execute(text("CREATE TABLE large (content BLOB)"))
    numbers = "WITH RECURSIVE n(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM n WHERE x < 4000)"
    session.execute(text(f"INSERT INTO large {numbers} SELECT zeroblob(1000) FROM n"))
before = resident()
with ExitStack() as together:
    for _ in range(24):
        session = together.enter_context(database.reading())
        session.execute(text("SELECT count(hex(content)) FROM large")).all()
print(resident() - before)
"""


def run(program: str, *arguments: str, **variables: str) -> list[str]:
    """The lines that a program prints, in a process of its own."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")
    }
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def arenas(file: Path) -> int:
    """How many arenas a report of ``malloc_info`` names."""
    return file.read_text().count("<heap nr=")


@glibc
def test_threads_share_few_arenas(tmp_path: Path) -> None:
    """Without the limit sixteen threads had an arena each."""
    assert run(_ARENAS, str(tmp_path / "info")) == ["True"]
    assert arenas(tmp_path / "info") == 2


@glibc
def test_operators_choose_the_arenas(tmp_path: Path) -> None:
    """What the environment says stays."""
    assert run(_ARENAS, str(tmp_path / "info"), MALLOC_ARENA_MAX="5") == ["False"]
    assert arenas(tmp_path / "info") == 5


@glibc
def test_large_blocks_are_given_back_when_they_are_freed() -> None:
    """By default what is freed once becomes part of the heap, with all blocks of its size."""
    [kept] = run(_RESIDENT + _LARGE_BLOCKS, "default")
    [left] = run(_RESIDENT + _LARGE_BLOCKS, "limited")
    assert int(kept) > 40 * MIB
    assert int(left) < 10 * MIB


@glibc
def test_free_pages_among_used_ones_are_given_back() -> None:
    """Of a hundred megabytes a fiftieth is used, spread over all of them."""
    [less] = run(_RESIDENT + _FRAGMENTS)
    assert int(less) > 40 * MIB


@pytest.mark.slow
def test_page_caches_of_all_connections_are_bounded_together(tmp_path: Path) -> None:
    """Twenty-four connections that have read four megabytes each, and keep two."""
    [unbounded] = run(_RESIDENT + _PAGE_CACHES, str(tmp_path / "a.db"), "0")
    [bounded] = run(_RESIDENT + _PAGE_CACHES, str(tmp_path / "b.db"), str(8 * MIB))
    assert int(unbounded) > 30 * MIB
    assert int(bounded) < 20 * MIB


def test_few_connections_are_used_again_and_again(tmp_path: Path) -> None:
    """Each that is used has a page cache of its own, so those that rest stay as they are."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    with closing(Database(url, timeout=10, connections=12)) as database:
        with ExitStack() as together:
            for _ in range(10):
                together.enter_context(database.reading()).execute(text("SELECT 1"))
        used = set()
        for _ in range(30):
            with database.reading() as session:
                used.add(id(session.connection().connection.driver_connection))
    assert len(used) == 1
