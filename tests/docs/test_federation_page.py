"""Pages of federations: their code runs, figures are the evidence's, the table has all options."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import logging
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Context, RecordDict

from modelkin.client._transport.embedded import EmbeddedService
from modelkin.integrations.flower import ClusteredStrategy
from tests.docs.pages import blocks, marked_blocks, run_python
from tests.sdk.integrations.flower.federation import LocalGrid
from tests.support.servers.in_place_of_embedded import InPlaceOfEmbedded
from tests.support.servers.server_process import Server

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "federation.md").read_text()
FLOWER = (DOCS / "flower.md").read_text()
GUIDE = FLOWER.partition("## In 45 lines")[2].partition("\n## ")[0]
FURTHER = [(DOCS / f"flower-{name}.md").read_text() for name in ("means", "shards", "learngenes")]
"""Each goes on from the guide alone."""
SPLITS = {
    "how images are turned": "rotations",
    "permuted": "permuted labels",
    "swapped": "swapped labels",
    "in four groups": "labels",
    "Dir(0.1)": "Dir(0.1)",
    "Dir(0.3)": "Dir(0.3)",
    "beside 40% of any label": "noisy labels",
}
"""Words of a row, and the section of the evidence that it is from."""
FREE = "IOS, K = 10%, number of clusters free"
BOTH_WAYS = (
    "one model for all",
    "a model for each cluster",
    "each client alone",
    "both, 0.25 of the cluster's",
    "both, 0.75 of the cluster's",
    "both, the better one chosen",
    "FedPer",
    "FedPer within clusters",
)
WAYS = ("one global model", "each client alone", "IOS, K = 10%, average linkage")


@pytest.fixture
def names(
    sqlite_server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> dict[str, Any]:
    """What each page's Python leaves, after it printed what the page says, within 0.04."""
    monkeypatch.setenv("MODELKIN_URL", sqlite_server.url)
    monkeypatch.setattr(EmbeddedService, "of", lambda *_: InPlaceOfEmbedded(sqlite_server))
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    caplog.set_level(logging.ERROR, "flwr")
    found: dict[str, Any] = {}
    for page in (PAGE, FLOWER, *(GUIDE + page for page in FURTHER)):
        found |= carried_out(page)
    return found


def carried_out(page: str) -> dict[str, Any]:
    """The names that a page's Python leaves, after it printed what the page says."""
    found: dict[str, Any] = {}
    code = blocks(page)
    printed = [run_python(text, "a page", found) for kind, text in code if kind == "python"]
    promised = [text for kind, text in code if kind == "text"]
    for said, text in zip(filter(None, printed), promised, strict=True):
        assert_alike(said, text)
    return found


def assert_alike(said: str, promised: str) -> None:
    """Two texts have the same words, and numbers of two or three digits within 0.04."""
    words, expected = said.split(), promised.split()
    assert len(words) == len(expected), said
    for word, other in zip(words, expected, strict=True):
        numbers = [re.fullmatch(r"(0\.\d\d\d?),?", each) for each in (word, other)]
        one, two = (float(number[1]) if number else None for number in numbers)
        near = one is not None and two is not None and abs(one - two) <= 0.04
        assert near or word == other, said


def federate(server: Any, app: Any, sites: Iterable[int] = range(12)) -> list[str]:
    """What a ServerApp of the page prints with its ClientApps: twelve sites, of three groups."""
    contexts = {
        node: Context(1, node, {"partition-id": site}, RecordDict(), {})
        for node, site in enumerate(sites, 1)
    }
    grid = LocalGrid(dict.fromkeys(contexts, app), contexts)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        server(grid, Context(1, 1, {}, RecordDict(), {}))
    return printed.getvalue().splitlines()


def test_the_pages(
    names: dict[str, Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tutorial without Flower, then its apps: supports, a newcomer, shards and learngenes."""
    client = names["client"]
    said = federate(names["observed"], names["app"])
    first = marked_blocks(FLOWER.partition("## Newcomers by a service")[2])[0]
    groups = first.splitlines()[1:]
    assert [[str(i), *groups] for i in (1, 2, 3)] == [said[at : at + 4] for at in (0, 4, 8)]
    # With per_cluster the supports of the first round are kept.
    models = client.models.list("federation", tags=["round-1"])
    assert [f"flower/site-{i:02}" for i in range(12)] == [model.model for model in models]
    clusters = json.loads(Path("clusters.json").read_text())
    assert [f"flower/site-{i:02}" for i in (0, 3, 6, 9)] == clusters["0"]
    started = names["start_of_newcomer"](*names["samples"](12)).state_dict()
    kept = torch.load("cluster-0.pt")
    assert all(torch.equal(kept[name], value) for name, value in started.items())
    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", lambda _: None)
        said = federate(names["buffered_server"], names["app"])
    chosen, buffered, sharded, learned = (
        text for page in FURTHER for text in marked_blocks(page) if text[0] in "[(123"
    )
    # Here all answers are there at once; on an engine each step has those that came first.
    assert [each.split()[:2] for each in said[:3]] == [["1", "0"], ["2", "1"], ["3", "2"]]
    assert ["1", "2", "3", "4"] == [each[0] for each in buffered.splitlines()]
    assert said[3] == buffered.splitlines()[3]
    said = federate(names["sharded_server"], names["sharded_app"])
    assert sharded.splitlines() == said
    # Before the second round no client can ask.
    said = federate(names["mixing_server"], names["mixing_app"])
    assert [str([0.5] * 12)] == said
    said = federate(names["mixing_server"], names["choosing_app"])
    assert chosen.splitlines() == said
    said = federate(names["learngene_server"], names["learner"])
    assert [line for i in (1, 2) for line in (str(i), *groups)] == said[:8]
    assert_alike("\n".join(said[8:]), learned)
    stems = sorted(each.stem for each in Path("genes").glob("*.safetensors"))
    assert ["all", "cluster-0", "cluster-1", "cluster-2"] == stems
    client.close()
    logged = [each for each in caplog.records if each.name.startswith("modelkin")]
    assert [] == [each.getMessage() for each in logged if each.levelno >= logging.WARNING]


def test_the_guide_in_short(caplog: pytest.LogCaptureFixture) -> None:
    """At most 45 lines, which find the sites' groups and the newcomer's, as the page says."""
    caplog.set_level(logging.ERROR, "flwr")
    torch.set_num_threads(1)
    code = [text for kind, text in blocks(GUIDE) if kind == "python"]
    run, promised = marked_blocks(GUIDE)  # the simulation, and what it prints
    lines = [line for text in (*code, run) for line in text.splitlines() if line.strip()]
    assert 0 < len(lines) <= 45
    names: dict[str, Any] = {}
    assert "" == "".join(run_python(text, "flower.md", names) for text in code)
    said = federate(names["server"], names["app"], range(12))
    assert_alike("\n".join(said), promised)


def rows_of(page: str, head: str) -> list[list[str]]:
    """The cells of the table whose head begins so, without marks of strong words."""
    _, _, rest = page.partition(f"| {head}")
    lines = rest.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_of_when_clusters_pay_is_the_evidences() -> None:
    """Each row has the accuracy, and the agreement with the groups, that the study measured."""
    evidence = (DOCS / "evidence" / "clusters.md").read_text()
    rows = rows_of(PAGE, "clients differ by")
    assert len(SPLITS) == len(rows)
    for row, (words, split) in zip(rows, SPLITS.items(), strict=True):
        assert words in row[0]
        section = evidence.partition(f"### {split}, ")[2].partition("###")[0]
        measured = {each[0]: each for each in rows_of(section, "models | accuracy | ARI")}
        assert row[1:4] == [measured[way][1].split()[0] for way in WAYS]
        agreement = measured[WAYS[2]][2].split() or ["no groups"]
        assert agreement[0] == row[4]
        if "n_clusters" in row[5]:  # and what the number costs where it is not given
            assert f"({measured[FREE][1].split()[0]})" in PAGE.replace("accuracy ", "")


def test_the_table_of_both_models_is_the_benchmarks() -> None:
    """Each cell is the mean and the interval that were measured."""
    measured = (DOCS / "benchmarks" / "federation.md").read_text()
    tables = [rows_of(measured, f"way | {first}") for first in ("images turned", "few labels")]
    ways = [{row[0]: row[1:] for row in table} for table in tables]
    rows = rows_of(PAGE, "way | images turned")
    assert len(BOTH_WAYS) == len(rows)
    for (_, *shown), way in zip(rows, BOTH_WAYS, strict=True):
        assert shown == [*ways[0][way], *ways[1][way][:2]]


def test_the_table_of_options_has_them_all_with_their_defaults() -> None:
    """In the order of the signature."""
    parameters = inspect.signature(ClusteredStrategy).parameters.values()
    options = [(each.name, repr(each.default).replace("'", '"')) for each in parameters][1:]
    found: list[tuple[str, str]] = []
    for name, default, _ in rows_of(FLOWER, "option | default"):
        found += zip(re.findall(r"`(\w+)`", name), re.findall(r"`([^`]+)`", default), strict=True)
    assert options == found
