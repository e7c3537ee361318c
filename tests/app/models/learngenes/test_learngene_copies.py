"""Kept files are part of backups, and a verification finds those that are lost or damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.app.backups import Copies
from tests.support.backends import Backend
from tests.support.fixtures import on_one_database
from tests.support.http_space import ok
from tests.support.models.learngene_files import gene
from tests.support.servers.server_process import Server

PATH = "/v1/spaces/s/clusters/all/learngene"
KEEPING = "--max-learngene-bytes=10000"


def published(folder: Path, backend: Backend) -> dict[str, Any]:
    """Publish a file to a service of a folder, which ends; the manifest."""
    folder.mkdir(exist_ok=True)
    server = Server(folder, KEEPING, backend=backend, MODELKIN_ENCRYPTION_KEYS="x" * 32).start()
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        http.post("/v1/spaces", json={"name": "s", "num_parameters": 1000}).raise_for_status()
        headers = {"Content-Type": "application/vnd.safetensors"}
        made = ok(http.put(PATH, content=gene(), headers=headers))
    assert 0 == server.stop()
    return made


def kept(folder: Path) -> Path:
    (file,) = [file for file in (folder / "blobs").rglob("learngenes/**/*") if file.is_file()]
    return file


@pytest.mark.slow
def test_a_restored_service_has_the_files(backend: Backend, tmp_path: Path) -> None:
    """The manifest and the file, byte for byte."""
    made = published(tmp_path / "from", backend)
    Copies(backend, tmp_path / "from").back_up(tmp_path / "to")
    restored = Copies(backend, tmp_path / "restored")
    restored.put_back(tmp_path / "to")
    assert not restored.verify()
    server = Server(tmp_path / "restored", backend=backend).start()
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        assert made == ok(http.get(PATH))
        assert gene() == http.get(f"{PATH}/file").content
    server.kill()


@on_one_database
@pytest.mark.slow
def test_a_damaged_file_is_found(backend: Backend, tmp_path: Path) -> None:
    """With the learngene that it is of, and what to do: a changed, a cut and a lost one."""
    published(tmp_path, backend)
    copies = Copies(backend, tmp_path)
    assert not copies.verify()
    file = kept(tmp_path)
    for content, why in ((gene(1), "is damaged"), (gene()[:-1], "bytes, not"), (None, "missing")):
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
        found = copies.verify()
        assert "space 's'" in found
        assert "learngene of cluster all, version 1" in found
        assert why in found
        assert "publish it again" in found
