"""Backups of ordered spaces: a restored service ranks as the first one did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.app.backups import Copies
from tests.support.backends import Backend
from tests.support.blob_files import blob_files
from tests.support.declared_problems import checked
from tests.support.fixtures import on_one_database
from tests.support.http_space import Space
from tests.support.orders.family import importances, ordered_supports
from tests.support.servers.server_process import Server

pytestmark = on_one_database

M, K = 3000, 120
SUPPORTS = ordered_supports(importances(2, M, 6), K)


def answers(http: httpx.Client, space: str) -> list[dict[str, Any]]:
    """The neighbours of each model by their ranks."""
    shown = Space.existing(http, space, M)
    return [shown.neighbors(model, measure="ordered") for model in SUPPORTS]


@pytest.mark.slow
def test_a_restored_space_ranks_as_before(backend: Backend, tmp_path: Path) -> None:
    """The octaves are in the files that a backup copies, and ``verify`` reads them."""
    folders = tmp_path / "first", tmp_path / "second"
    found = []
    for number, folder in enumerate(folders):
        folder.mkdir(exist_ok=True)
        server = Server(folder, backend=backend).start()
        with checked(httpx.Client(base_url=server.url, trust_env=False)) as http:
            if not number:
                space = Space(http, M, ordered=True)
                space.put_all(SUPPORTS)
            assert space.name in [each["name"] for each in http.get("/v1/spaces").json()["items"]]
            found.append(answers(http, space.name))
        assert 0 == server.stop()
        assert not Copies(backend, folder).verify()
        if not number:
            Copies(backend, folder).back_up(tmp_path / "to")
            Copies(backend, folders[1]).put_back(tmp_path / "to")
    assert found[0] == found[1]
    octaves = np.asarray(SUPPORTS["m001"].octaves).tobytes()
    (file,) = (each for each in blob_files(folders[1]) if each.read_bytes().endswith(octaves))
    file.write_bytes(file.read_bytes()[:-K])
    assert "m001" in Copies(backend, folders[1]).verify()
