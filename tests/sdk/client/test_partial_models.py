"""Models that lack a part of their space: every answer says over which share it is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from modelkin import Client, Layout, Support, select_support
from tests.support.servers.server_process import Server

SPACE = "partial-models"
BODY = {f"layers.{i}.weight": (40, 50) for i in range(9)}
WHOLE = Layout.of([*BODY.items(), ("head.weight", (40, 50))])
HEADLESS = Layout.of(BODY.items())
CUT = Layout.of([*BODY.items(), ("head.weight", (10, 50))])
BASES = {
    family: np.random.default_rng(family).normal(size=WHOLE.num_parameters) for family in (1, 2)
}


def made(family: int, seed: int, layout: Layout = WHOLE) -> Support:
    """A fine-tune that has the first tensors of the space, and rows of the last."""
    drift = 0.3 * np.random.default_rng(seed).normal(size=WHOLE.num_parameters)
    return of(BASES[family] + drift, layout)


def of(weights: npt.NDArray[np.float64], layout: Layout = WHOLE) -> Support:
    """The support of the first weights, as many as a layout has, in the space."""
    own = np.abs(weights[: layout.num_parameters]).astype("f4")
    return select_support(own, fraction=0.05, kind="weight", layout=layout, order=WHOLE)


@pytest.fixture(scope="module")
def client(sqlite_server: Server) -> Iterator[Client]:
    """Two families, of which the first has a model without a head and one with fewer classes."""
    with Client(sqlite_server.url) as client:
        client.ensure_space(SPACE, layout=WHOLE, importance="weight")
        for family in BASES:
            for child in range(4):
                client.put_support(SPACE, f"f{family}/{child}", made(family, 10 * family + child))
        client.put_support(SPACE, "f1/headless", made(1, 50, HEADLESS), base_model="f1/0")
        client.put_support(SPACE, "f1/cut", made(1, 51, CUT), base_model="f1/headless")
        yield client


def test_pairs_say_their_share(client: Client) -> None:
    """Donors, edges and lineages have it of each pair, and none where both have all."""
    donors = {item.model: item for item in client.donors(SPACE, "f1/headless", k=9)}
    assert {"f1/0": 0.9, "f1/cut": 0.9} == {
        name: pytest.approx(donors[name].covered) for name in ("f1/0", "f1/cut")
    }
    edges = {
        (edge.a, edge.b): edge.covered for edge in client.spaces.graph(SPACE, threshold=0.3).edges
    }
    assert 0.9 == pytest.approx(edges["f1/0", "f1/headless"])
    assert 0.925 == pytest.approx(edges["f1/0", "f1/cut"])
    assert edges["f1/0", "f1/1"] is None
    found = client.lineage(SPACE, "f1/cut")
    assert [0.9, 0.9] == pytest.approx([link.covered for link in found.chain])
    assert [0.9] == pytest.approx([base.covered for base in found.declared_bases])
    assert "compared over the 90.0% of the space's parameters that both have" in found.summary
    audited = {item.model: item.covered for item in client.lineages(SPACE)}
    assert 0.9 == pytest.approx(audited["f1/headless"])


def test_answers_about_many_say_the_least_share(client: Client) -> None:
    """Matrices, graphs, clusterings, maps and placements do."""
    names = ["f1/0", "f1/headless", "f1/cut"]
    words = "2 models cover a part of the space: S and chance of a pair are over what both cover, "
    for note in (client.similarity(SPACE, names).note, client.spaces.graph(SPACE).note):
        assert f"{words}90.0% of the parameters or more" == note
    assert client.similarity(SPACE, ["f1/0", "f1/1"]).note is None
    clustering = client.clusterings.create(SPACE, algorithm="agglomerative")
    assert 0.9 == pytest.approx(clustering.chosen["covered"])
    assert clustering.labels["f1/headless"] == clustering.labels["f1/0"]
    assert 0.9 == pytest.approx(client.clusterings.assign(SPACE, made(1, 52, HEADLESS)).covered)
    assert 0.9 == pytest.approx(client.maps.create(SPACE).covered)


def test_a_revision_drifts_over_what_both_have(client: Client) -> None:
    """A model that loses its head, and nothing else, has not drifted."""
    whole = made(1, 60)
    body = Support(whole.indices[whole.indices < 18_000], 20_000, gaps=[(18_000, 20_000)])
    client.put_support(SPACE, "f1/drifting", whole)
    client.put_support(SPACE, "f1/drifting", body.with_origin(made(1, 60).origin))
    newest = client.revisions.list(SPACE, "f1/drifting").items[0]
    assert 1.0 == newest.similarity_previous


def test_a_part_is_not_of_another_size(client: Client) -> None:
    """Its K is smaller by itself, and does not bound S: the summary asks for no other K."""
    whole = made(1, 61)
    part = Support(whole.indices[whole.indices < 12_000], 20_000, gaps=[(12_000, 20_000)])
    client.put_support(SPACE, "f1/part", part, base_model="f1/0")
    assert 1.25 * part.k < whole.k
    found = client.lineage(SPACE, "f1/part")
    assert "compared over the 60.0% of the space's parameters" in found.summary
    assert "send both at one size" not in found.summary


def test_a_tensor_that_some_lack_is_that_of_the_others(client: Client) -> None:
    """Its mean similarity is over the pairs that both have it, as that of any other tensor."""
    space = f"{SPACE}-tensors"
    client.ensure_space(space, layout=WHOLE, importance="weight")
    for child in range(6):
        layout = HEADLESS if child % 2 else WHOLE
        client.put_support(space, str(child), made(1, child, layout))
    *_, body, head = client.spaces.tensors(space).items
    assert body.similarity == pytest.approx(head.similarity, abs=0.1)


def test_a_rival_without_what_was_tuned_is_not_nearer(client: Client) -> None:
    """A copy of the base without its head cannot contradict a child that has another head."""
    space, draw = f"{SPACE}-rivals", np.random.default_rng(8)
    base = draw.normal(size=WHOLE.num_parameters)
    child = base + 0.4 * draw.normal(size=base.size)
    child[18_000:] += 1.5 * draw.normal(size=2_000)
    copy = base + 0.03 * draw.normal(size=base.size)
    client.ensure_space(space, layout=WHOLE, importance="weight")
    for number in range(5):
        client.put_support(space, f"other/{number}", of(draw.normal(size=base.size)))
    client.put_support(space, "base", of(base))
    client.put_support(space, "child", of(child), base_model="base")
    client.put_support(space, "copy", of(copy, HEADLESS))
    found = client.lineage(space, "child")
    assert ("consistent", ["copy", "base"]) == (found.verdict, [k.model for k in found.kin[:2]])
    between = base + 0.6 * (child - base)
    client.put_support(space, "between", of(between, HEADLESS))
    found = client.lineage(space, "child")
    assert ("mismatch", "between") == (found.verdict, found.rival and found.rival.model)
    assert "Over the parameters that all three have, S is " in found.summary
