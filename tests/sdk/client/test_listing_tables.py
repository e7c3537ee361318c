"""The tables of listings: what one asks first stands first, on a terminal and in a notebook."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from modelkin._printing import table_of
from modelkin.client import Client

DOCUMENT: Final = json.loads((Path(__file__).parents[3] / "docs" / "openapi.json").read_text())

LISTINGS: Final[dict[str, tuple[str, Callable[[Client], Any], str]]] = {
    "list_spaces": (
        "SpacePage",
        lambda client: client.spaces.list(),
        "name kind models num_parameters importance created_at",
    ),
    "list_models": (
        "ModelPage",
        lambda client: client.models.list("s"),
        "model kind support_size base_model tags updated_at",
    ),
    "list_clusterings": (
        "ClusteringPage",
        lambda client: client.clusterings.list("s"),
        "number algorithm models num_clusters noise created_at",
    ),
    "list_jobs": ("JobPage", lambda client: client.jobs.list(), "id kind state space created_at"),
    "list_sources": ("SourcePage", lambda client: client.sources.list(), "id kind space url"),
    "list_subscriptions": (
        "SubscriptionPage",
        lambda client: client.webhooks.list(),
        "id url events space enabled",
    ),
    "list_merges": (
        "MergePage",
        lambda client: client.merges.list("s"),
        "name state created_at",
    ),
    "list_learngenes": (
        "LearngenePage",
        lambda client: client.learngenes.list("s"),
        "cluster version created_at",
    ),
    "list_reports": ("ReportPage", lambda client: client.reports.list(), "id until made_by"),
    "list_fingerprints": (
        "FingerprintPage",
        lambda client: client.fingerprints.list(),
        "model stated_by base_models parameters tensors updated_at",
    ),
    "list_lineages": (
        "LineageFindingPage",
        lambda client: client.lineages("s"),
        "model verdict",
    ),
}
"""By operation: the schema of its page, the call, and the first columns of what it prints."""


@pytest.mark.parametrize("operation", LISTINGS)
def test_what_one_asks_stands_first(operation: str) -> None:
    """A listing of the document's own example begins with these columns, in both forms."""
    page, listed, columns = LISTINGS[operation]
    [example] = DOCUMENT["components"]["schemas"][page]["examples"]
    answer = httpx.Response(200, json=example | {"next_cursor": None})
    transport = httpx.MockTransport(lambda request: answer)
    with Client("http://kin.test", transport=transport) as client:
        rows = listed(client)
        head = next(line for line in repr(rows).splitlines() if line.startswith(columns.split()[0]))
        assert columns.split() == head.split()[: len(columns.split())]
        cells = "".join(f'<th scope="col">{name}</th>' for name in columns.split())
        assert f"<tr>{cells}" in table_of(rows).html()
        assert repr(rows.read()).splitlines()[1] == head


def test_an_importance_is_told_in_its_own_words() -> None:
    """Beside the kind of the space, which is another thing."""
    space = DOCUMENT["components"]["schemas"]["SpaceSummary"]["examples"][0]
    base = "sha256:" + 64 * "a"
    stated = {"importance": {"kind": "delta", "base": base, "note": None}}
    answer = httpx.Response(200, json={"items": [space | stated], "next_cursor": None})
    transport = httpx.MockTransport(lambda request: answer)
    with Client("http://kin.test", transport=transport) as client:
        printed = table_of(client.spaces.list()).html()
    assert '<td style="text-align:left">delta against sha256:' in printed
