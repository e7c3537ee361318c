"""``modelkin catalogue import``: a service that knows bases before anybody has uploaded one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from modelkin import Base, Catalogue, Client
from tests.sdk.cli.conftest import Run
from tests.sdk.core.fingerprints.planted import DERIVED, fingerprint, model
from tests.support.servers.server_process import Server

SEEDS = (54, 55, 56)
"""Of models that no other test keeps in the same service."""


@pytest.mark.slow
def test_a_first_upload_is_told_its_base(run_here: Run, tmp_path: Path, server: Server) -> None:
    """The bases are stored with what is said of them, once, and an anatomy names the right one."""
    catalogue = Catalogue.of(
        (
            Base(f"import/{seed}", license="mit", base_models=("import/z",), file_bytes=7),
            fingerprint(model(seed), None),
        )
        for seed in SEEDS
    )
    catalogue.save(tmp_path / "bases.mkct")
    asked = ("catalogue", "import", "bases.mkct", "--url", server.url)
    done = run_here(*asked)
    assert (0, "") == (done.returncode, done.stderr)
    assert "3 bases of bases.mkct: 3 stored, 0 replaced, 0 as before\n" == done.stdout
    again = json.loads(run_here(*asked, "--json").stdout)
    assert (0, 3, [], []) == (
        *(again["created"], again["unchanged"], again["of_a_hub"], again["failures"]),
    )
    with Client(server.url) as client:
        for name in catalogue:
            stored = client.fingerprints.info(name)
            assert ("client", "mit", ("import/z",), 7) == (
                *(stored.stated_by, stored.license, stored.base_models, stored.file_bytes),
            )
            assert catalogue[name].digest == stored.digest
        child = fingerprint(DERIVED["fused"](DERIVED["8 bits"](model(55))), None)
        assert ["import/55"] == [each.model for each in client.anatomy(child).parents]
