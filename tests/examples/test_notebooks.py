"""The notebooks of ``examples/`` run from top to bottom, and print what they show."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modelkin.client._transport.embedded import EmbeddedService
from tests.support.servers.in_place_of_embedded import InPlaceOfEmbedded
from tests.support.servers.server_process import Server

pytestmark = [pytest.mark.slow, pytest.mark.slow]

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.ipynb"))


def printed(cell: dict[str, Any]) -> str:
    """What a cell printed when the notebook was stored."""
    outputs = (each for each in cell["outputs"] if each["output_type"] == "stream")
    return "".join("".join(each["text"]) for each in outputs)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service of all notebooks, which are in spaces of different names."""
    running = Server(tmp_path_factory.mktemp("service")).start()
    yield running
    assert 0 == running.stop()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, service: Server
) -> None:
    """Each cell of code, in one namespace; ``:memory:`` is the service that is there."""
    monkeypatch.setattr(EmbeddedService, "of", lambda *_: InPlaceOfEmbedded(service))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile("".join(cell["source"]), path.name, "exec"), namespace)
        assert printed(cell) == said.getvalue()
    if "plt" in namespace:
        namespace["plt"].close("all")


def test_there_are_notebooks() -> None:
    """One for each way into modelkin; an empty folder would pass the test above."""
    names = {path.stem for path in NOTEBOOKS}
    assert {"hub_audit", "federation_clusters", "choosing_k", "own_minhash", "plots"} <= names
