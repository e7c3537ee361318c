"""A disk that loses or changes data: never a wrong support, and a way to repair it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from app.infra.db.database import Database
from modelkin import Support
from tests.support.blob_files import named_keys
from tests.support.declared_problems import checked
from tests.support.fixtures import Start, on_one_database
from tests.support.http_space import SUPPORT
from tests.support.servers.server_process import Server

M = 10_000
DENSE = Support.from_indices(range(0, M, 7), M)
SPARSE = Support.from_indices(range(0, M, 500), M)


def flip(path: Path) -> None:
    """Every bit of the last byte: the last index of a list leaves the space."""
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 0xFF]))


def cut(path: Path) -> None:
    """One byte less."""
    path.write_bytes(path.read_bytes()[:-1])


def put(http: httpx.Client, model: str, support: Support) -> httpx.Response:
    """A PUT of a support."""
    headers = {"Content-Type": SUPPORT}
    return http.put(f"/v1/spaces/s/supports/{model}", content=support.to_bytes(), headers=headers)


def only_blob(server: Server) -> Path:
    """The file of the one support that a row names; it may be missing."""
    with closing(Database(server.database_url, timeout=5)) as database:
        (key,) = named_keys(database)
    return server.blobs / key


@on_one_database
@pytest.mark.slow
@pytest.mark.parametrize("support", [DENSE, SPARSE], ids=["bitmap", "list"])
@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
def test_sending_it_again_mends_a_damaged_file(
    start: Start, support: Support, damage: Callable[[Path], None]
) -> None:
    """A damaged file is a 503 that says what to do; doing that changes nothing else."""
    server = start()
    with checked(httpx.Client(base_url=server.url, trust_env=False)) as http:
        assert 201 == http.post("/v1/spaces", json={"name": "s", "num_parameters": M}).status_code
        stored = put(http, "a", support).json()
        damage(only_blob(server))
        answer = http.get("/v1/spaces/s/supports/a")
        assert (503, True) == (answer.status_code, "send it again" in answer.json()["detail"])
        assert 200 == put(http, "a", support).status_code
        assert support == Support.from_bytes(http.get("/v1/spaces/s/supports/a").content)
        assert stored == http.get("/v1/spaces/s/models/a").json()
        assert only_blob(server).exists()


@pytest.mark.slow
@on_one_database
def test_a_damaged_list_never_ends_the_service(start: Start) -> None:
    """An index that points beyond the space is a 503 for a request that overlaps with it."""
    server = start()
    with checked(httpx.Client(base_url=server.url, trust_env=False)) as http:
        http.post("/v1/spaces", json={"name": "s", "num_parameters": M})
        put(http, "sparse", SPARSE)
        flip(only_blob(server))
        put(http, "dense", DENSE)
        asked = {"a": "dense", "b": "sparse"}
        assert 503 == http.get("/v1/spaces/s/overlap", params=asked).status_code
        assert 200 == http.get("/readyz").status_code


@pytest.mark.slow
@on_one_database
@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
def test_one_damaged_file_spoils_no_answer_about_others(
    start: Start, damage: Callable[[Path], None]
) -> None:
    """Other neighbours are exact, the damaged one is estimated, and the answer says so."""
    server = start()
    with checked(httpx.Client(base_url=server.url, trust_env=False)) as http:
        http.post("/v1/spaces", json={"name": "s", "num_parameters": M})
        put(http, "damaged", DENSE)
        damage(only_blob(server))
        put(http, "asked", DENSE)
        put(http, "whole", SPARSE)
        answer = http.get("/v1/spaces/s/neighbors", params={"model": "asked"}).json()
        near = {item["model"]: item["estimate"] for item in answer["items"]}
        assert {"damaged": "signature", "whole": "exact"} == near
        assert answer["degraded"] is True
