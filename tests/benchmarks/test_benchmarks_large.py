"""What many models take: the sums of docs/scale.md, and a small form of what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import make_url

from benchmarks.large import paper
from benchmarks.large.paper import Assumptions, money, stores
from benchmarks.large.sizes import measure_store, print_store
from benchmarks.large.store import LargeStore, fill_database, sizes
from tests.soak.many_processes import ONE, ROUTES, Changes, idle, measure
from tests.support.backends import PostgresBackend
from tests.support.servers.fleet import fleet, home
from tests.support.servers.postgres import Postgres
from tests.support.servers.redis_server import RedisProcess

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
COUNTS = [150, 80, 40]


def test_the_page_has_the_sums_of_its_assumptions(capsys: pytest.CaptureFixture[str]) -> None:
    """Both tables are what the command prints, and each assumption stands on the page."""
    assert 0 == paper.main([])
    for table in capsys.readouterr().out.strip().split("\n\n"):
        assert table in PAGE.read_text()
    for line in ("--price-put 0.005", "--price-get 0.0004", "--price-gb 0.023"):
        assert line in PAGE.read_text()


def test_other_assumptions_give_other_sums(capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes and dollars are products of what is given, and an option sets each."""
    given = Assumptions(models=1e6, revisions=1, signature_bytes=1000, price_gb=0.1, parameters=8e6)
    assert ["Postgres, `signatures`", "1,000", "1.0 GB", ""] == stores(given)[1]
    assert ["stored, GB", "1,000", "$100"] == money(given)[0]
    assert 0 == paper.main(["--models", "1e6", "--parameters", "8e6", "--price-gb", "0.1"])
    assert "| stored, GB | 2,000 | $200 |" in capsys.readouterr().out


def test_revisions_take_rows_and_objects() -> None:
    """None of a model that never changed; beyond those that are kept, rows alone."""
    sums = {
        revisions: {what: each for what, each, *_ in stores(Assumptions(revisions=revisions))}
        for revisions in (1, 2, 6, 8)
    }
    rows = [each["Postgres, `revisions`"] for each in sums.values()]
    assert ["0", "1,978", "3,570", "4,366"] == rows
    together = 698 + 1193 + 487
    assert [f"{together:,}", f"{together + 1978:,}"] == [
        sums[revisions]["Postgres, together"] for revisions in (1, 2)
    ]
    objects = [each["objects"] for each in sums.values()]
    assert [f"{1_375_000 * kept:,}" for kept in (1, 2, 6, 6)] == objects


def test_sizes_follow_the_law_of_Zipf() -> None:
    """They add up, fall, and the second is half of the first."""
    found = sizes(1_000_000, 200)
    assert 1_000_000 == sum(found)
    assert sorted(found, reverse=True) == found
    assert 0.49 < found[1] / found[0] < 0.51
    assert min(sizes(300, 250)) == 1


def test_a_lost_process_moves_no_space_of_another() -> None:
    """A space whose process is there stays with it, and each process has about its part."""
    names = [f"space-{number}" for number in range(1000)]
    before, after = ([home(name, processes) for name in names] for processes in (5, 4))
    assert all(old in {new, 4} for old, new in zip(before, after, strict=True))
    assert all(150 < before.count(process) < 250 for process in range(5))


@pytest.fixture(scope="module")
def store(
    postgres: Postgres, cluster: list[RedisProcess], tmp_path_factory: pytest.TempPathFactory
) -> LargeStore:
    """A few hundred models, on the servers that all tests share."""
    for node in cluster:
        with node.client() as client:
            client.flushall()
    folder = tmp_path_factory.mktemp("large")
    database = make_url(PostgresBackend(postgres).migrated_url(folder)).database
    assert database is not None
    return fill_database(postgres, database, cluster, folder, COUNTS, num_perm=128, seed=1)


def test_stores_are_measured(store: LargeStore, capsys: pytest.CaptureFixture[str]) -> None:
    """All models are in all stores; rows have at least the bytes of their values."""
    assert COUNTS == [space.models for space in store.spaces]
    found = measure_store(store)
    rows = {each.table: each.rows for each in found.postgres}
    assert 128 * 4 < rows["signatures"] < 4096
    assert 32 * 20 < sum(found.nodes) / store.models
    assert found.memory is None or 128 <= found.memory
    print_store(found)
    assert "270 signatures, 55.6% of them in the largest space" in capsys.readouterr().out


def test_processes_are_never_stale(store: LargeStore) -> None:
    """Changes through each of three are read through the others; all find the same models."""
    with fleet(store, 2) as made:
        changes = Changes(store, [each.http for each in (made.whole, *made.parts)], seed=1)
        changes.run(30)
        assert [] == changes.stale
        assert {"create", "replace", "tag", "delete"} == set(changes.done)
        for route in ROUTES:
            asked = measure(store, made, route, rounds=1, queries=3, seed=1)
            assert 2 == len(asked)
            for costs in asked.values():
                assert 0 == costs.wrong
                assert {ONE, route} == set(costs.busy) == set(costs.seconds)
                assert all(0 < block < 10 for blocks in costs.busy.values() for block in blocks)
        assert 0 < idle(made, 0.1) < 1
