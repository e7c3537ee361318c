"""``python -m app stop-lists`` with buckets in Redis, and processes that die in the middle."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest

from app.bootstrap import open_services
from app.catalog.puts import Put
from app.catalog.writer import ModelWriter
from app.cli.stop_lists import run
from app.container import Container
from app.infra.db.database import Database
from app.maintenance.stop_lists import StopListService
from app.settings import Settings
from tests.support.declared_problems import checked
from tests.support.federations.planted import (
    BANDING,
    M,
    Stores,
    federation,
    kin_of,
    left,
    stores,
    unrelated_client,
)
from tests.support.http_space import Space, ranking, true_neighbors
from tests.support.servers.redis_server import RedisProcess, redis_server
from tests.support.servers.server_process import ROOT, Server, command, environment
from tests.support.servers.waiting import wait_for

CLIENTS = federation(12, unrelated=12)
BASE = CLIENTS["base"]
KIN = {name: support for name, support in CLIENTS.items() if name.startswith("kin")}


@pytest.fixture
def redis() -> Iterator[RedisProcess]:
    """A Redis for the tests of this module."""
    with redis_server() as process:
        yield process


@pytest.fixture
def with_redis(redis: RedisProcess, tmp_path: Path) -> Iterator[Server]:
    """A service with its buckets in Redis and its database in SQLite.

    The other tests cover Postgres.
    """
    server = Server(tmp_path, f"--redis-url={redis.url}").start()
    yield server
    assert 0 == server.stop()


def settings_of(server: Server) -> dict[str, str]:
    """The settings of a service, as environment variables."""
    return {
        "MODELKIN_DATABASE_URL": server.database_url,
        "MODELKIN_BLOB_URL": f"file://{server.blobs}",
    }


@dataclass(frozen=True)
class Command:
    """``stop-lists`` on the stores of a service, in this process."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def run(self, server: Server, *flags: str) -> tuple[int, str, str]:
        """Its exit code, and what it printed to stdout and stderr."""
        for name, value in settings_of(server).items():
            self.monkeypatch.setenv(name, value)
        code = run(list(flags))
        printed = self.capsys.readouterr()
        return code, printed.out, printed.err


@pytest.fixture
def stop_lists(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command."""
    return Command(monkeypatch, capsys)


def federated(http: httpx.Client) -> Space:
    """A space with all clients."""
    space = Space(http, M, banding={"bands": BANDING.bands, "rows": BANDING.rows})
    space.put_all(CLIENTS)
    return space


def wait_for_kin(space: Space, fewer_than: int, more_than: int = 0) -> None:
    """Wait until buckets answer with so many candidates; until then answers are right as well."""

    def answered() -> bool:
        answer = space.neighbors("base", method="lsh", min_similarity=0.6)
        assert true_neighbors(BASE, KIN) == ranking(answer)
        return answer["method"] == "lsh" and more_than < int(answer["candidates"]) < fewer_than

    wait_for(answered)


def test_the_command_makes_and_drops(
    with_redis: Server, redis: RedisProcess, stop_lists: Command
) -> None:
    """A running service uses a list that the command made, and stops using a dropped one.

    The command reports spaces that have nothing to count, and goes on.
    """
    server = with_redis
    with checked(httpx.Client(base_url=server.url, timeout=60, trust_env=False)) as http:
        space, empty = federated(http), Space(http)
        wait_for_kin(space, fewer_than=99, more_than=14)
        code, printed, complaints = stop_lists.run(server)
        assert (0, "") == (code, complaints)
        size = space.show()["stop_list"]["size"]
        first, second = printed.splitlines()
        assert first.startswith(f"{space.name}: stop-list 1, {size} indices in 50% or more of 17 ")
        assert "? at S = 0.3, " in first
        assert second.startswith(f"{empty.name}: space '{empty.name}' holds no support")
        wait_for_kin(space, fewer_than=10)
        with redis.client() as client:
            assert {b"1"} == {client.hget(key, "banding") for key in client.keys("*:state")}
        dropped = stop_lists.run(server, "--drop", "--space", space.name)
        assert (0, f"{space.name}: stop-list 1 dropped\n", "") == dropped
        wait_for_kin(space, fewer_than=99, more_than=14)
        again = stop_lists.run(server, "--drop", "--space", space.name)
        assert (0, f"{space.name}: no stop-list\n", "") == again


def test_the_command_reports_errors(server: Server, space: Space, stop_lists: Command) -> None:
    """An unknown space, one without supports and a share beyond 1 are one line and exit code 1."""
    for flags, line in (
        (["--space", "nowhere"], "there is no space 'nowhere'"),
        (["--space", space.name], f"space '{space.name}' holds no support"),
        (["--space", space.name, "--share", "1.5"], "share must be above 0, up to 1, not 1.5"),
    ):
        code, printed, complaints = stop_lists.run(server, *flags)
        assert (1, "") == (code, printed)
        assert complaints.startswith(f"modelkin: {line}")
        assert 1 == complaints.count("\n")


def test_the_service_has_the_command(tmp_path: Path) -> None:
    """``python -m app stop-lists`` runs it, as a process of its own."""
    done = subprocess.run(
        command("stop-lists", "--space", "nowhere"),
        cwd=ROOT,
        env=environment(MODELKIN_DATABASE_URL=f"sqlite:///{tmp_path}/m.db"),
        capture_output=True,
        text=True,
    )
    assert (1, "modelkin: there is no space 'nowhere'\n") == (done.returncode, done.stderr)


def test_dropping_by_a_share_makes_no_sense(capsys: pytest.CaptureFixture[str]) -> None:
    """Flags that contradict each other are refused with exit code 2."""
    with pytest.raises(SystemExit) as ended:
        run(["--drop", "--share", "0.3"])
    assert 2 == ended.value.code
    assert "not allowed with" in capsys.readouterr().err


MAKER = """
import sys, time
from app.stores import open_reader
from app.maintenance.stop_lists import StopListService
from app.settings import Settings
from app.infra.db.database import Database
from app.spaces.repository import all_spaces

def stop(done, total, stage):
    if stage == "measuring recall":
        print("half-way", flush=True)
        time.sleep(600)

settings = Settings()
database = Database(settings.database_url, timeout=5)
with database.reading() as session:
    [space] = all_spaces(session, sys.argv[1])
lists = StopListService(database, open_reader(settings, database))
lists.make(space, share=0.7, progress=stop)
"""


def test_a_killed_command_leaves_the_old_list(http: httpx.Client, server: Server) -> None:
    """After SIGKILL in the middle the first list stays in force, also for a new service.

    The next list is whole, and its rollout deletes what the killed one left.
    """
    space = federated(http)
    with stores(server) as opened:
        opened.lists.make(opened.space(space.name))
        first = opened.space(space.name), opened.banded(space.name)
        maker = subprocess.Popen(
            [sys.executable, "-c", MAKER, space.name],
            cwd=ROOT,
            env=environment(**settings_of(server)),
            stdout=subprocess.PIPE,
        )
        assert maker.stdout is not None
        assert b"half-way\n" == maker.stdout.readline()
        maker.kill()
        maker.wait()
        maker.stdout.close()
        assert {1, 2} == opened.versions(space.name)
        assert first == (opened.space(space.name), opened.banded(space.name))
    wait_for_kin(space, fewer_than=10)
    with started(server) as services:
        opened = Stores(services[Database], services[StopListService])
        assert 1 == opened.space(space.name).banding_version
        made = services[StopListService].make(opened.space(space.name), share=0.45)
        assert made is not None
        assert ({3}, 3) == (opened.versions(space.name), made.version)
    wait_for_kin(space, fewer_than=10)


@contextmanager
def started(server: Server) -> Iterator[Container]:
    """The services of another process on the same stores."""
    settings = Settings(database_url=server.database_url, blob_url=f"file://{server.blobs}")
    with open_services(settings) as opened:
        yield opened


@pytest.fixture
def services(server: Server) -> Iterator[Container]:
    """The services of another process, for one test."""
    with started(server) as opened:
        yield opened


def test_a_support_prepared_for_another_list_gets_the_new_one(
    http: httpx.Client, services: Container
) -> None:
    """A prepared support is stored under the list that is active when it is stored.

    It may have been prepared before a list was made, replaced or dropped.
    """
    space = federated(http)
    opened = Stores(services[Database], services[StopListService])
    record = opened.space(space.name)
    support = kin_of(np.random.default_rng(1), BASE)
    for number, share in enumerate((0.5, 0.7, None)):
        with services[Database].reading() as session:
            known = opened.space(space.name)
            prepared = services[ModelWriter].prepare(session, known, f"late{number}", support)
        if share is None:
            services[StopListService].drop(record)
        else:
            services[StopListService].make(record, share=share)
        with services[Database].writing() as session:
            services[ModelWriter].put(session, known, Put(f"late{number}", prepared))
        rest = left(support, opened.stop_list(space.name))
        values = None if rest is None else rest.signature().values.astype("<u4").tobytes()
        expected = None if share is None else values
        assert expected == opened.banded(space.name)[f"late{number}"]


def test_a_replaced_model_is_banded_again(http: httpx.Client, server: Server) -> None:
    """A new support replaces the band values; a support in place of a signature adds some."""
    space = federated(http)
    with stores(server) as opened:
        opened.lists.make(opened.space(space.name))
        stop_list = opened.stop_list(space.name)
        space.put_signature("signed", BASE.signature())
        assert opened.banded(space.name)["signed"] is None
        for seed, name in enumerate(("signed", "far00")):
            support = unrelated_client(np.random.default_rng(seed))
            space.put(name, support)
            rest = left(support, stop_list)
            assert rest is not None
            expected = rest.signature().values.astype("<u4").tobytes()
            assert expected == opened.banded(space.name)[name]
