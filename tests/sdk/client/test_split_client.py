"""Supports in parts at several real services: exact answers, and what happens without one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import numpy as np
import pytest

import modelkin
from modelkin import Blinding, Client, SplitClient, Support
from modelkin.errors import ConnectionFailed, InvalidParameter, SpaceMismatch
from tests.support.servers.server_process import Server

pytestmark = pytest.mark.slow

KEY = "c0ffee00" * 8
M = 5_000
NEAR = np.arange(0, 3_000, 3)


def support(drop: int, seed: int = 0) -> Support:
    """A thousand indices, of which so many are others than in the rest."""
    rng = np.random.default_rng(seed)
    others = rng.choice(np.arange(3_000, M), drop, replace=False)
    return Support.from_indices(np.sort(np.r_[NEAR[drop:], others]), M)


MODELS = {f"ward-{n}": support(n * 150, n) for n in range(4)}


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Three services that share nothing."""
    servers = [Server(tmp_path_factory.mktemp("service")).start() for _ in range(3)]
    yield [server.url for server in servers]
    assert [0, 0, 0] == [server.stop() for server in servers]


@pytest.fixture
def space() -> str:
    return f"wards-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def split(urls: list[str], space: str) -> Iterator[SplitClient]:
    """A client of the three, and the wards' supports."""
    with SplitClient([Client(url, retries=0) for url in urls], KEY) as client:
        client.ensure_space(space, num_parameters=M)
        for name, own in MODELS.items():
            client.put_support(space, name, own, tags=["ward"])
        yield client


def test_a_split_space_is_not_ordered(split: SplitClient, space: str) -> None:
    """Ranks are those of a whole support, and a part would show how important it is."""
    with pytest.raises(InvalidParameter, match="a part has no ranks of its own"):
        split.ensure_space(f"{space}-ordered", num_parameters=M, ordered=True)
    ordered = modelkin.select_support(np.random.default_rng(1).random(M), k=300, ordered=True)
    with pytest.raises(InvalidParameter, match="unordered"):
        split.put_support(space, "ordered", ordered)


@pytest.fixture
def beside_one_that_is_down(urls: list[str]) -> Iterator[SplitClient]:
    """The same with a third service that does not answer."""
    clients = [Client(url, retries=0) for url in (*urls[:2], "http://127.0.0.1:9")]
    with SplitClient(clients, KEY) as client:
        yield client


def test_answers_are_those_of_whole_supports(split: SplitClient, space: str) -> None:
    """Similarities, neighbours, overlaps and signatures equal those that the SDK computes."""
    matrix = split.similarity(space)
    names = list(matrix.models)
    expected = [[modelkin.similarity(MODELS[a], MODELS[b]) for b in names] for a in names]
    assert expected == matrix.values.tolist()
    found = split.neighbors(space, "ward-0", k=2)
    assert ["ward-1", "ward-2"] == [each.model for each in found]
    assert expected[0][1] == found[0].similarity
    shared = np.intersect1d(MODELS["ward-0"].indices, MODELS["ward-1"].indices).size
    overlap = split.overlap(space, "ward-0", "ward-1")
    assert (shared, expected[0][1], None) == (
        overlap.shared_indices,
        overlap.similarity,
        overlap.note,
    )
    assert shared == found[0].shared_indices
    assert MODELS["ward-3"].signature() == split.signature(space, "ward-3")


def test_no_service_has_a_whole_support(split: SplitClient, urls: list[str], space: str) -> None:
    """Each has about a third of the indices, and all have all."""
    held = []
    for url in urls:
        with Client(url) as client:
            held.append(client.supports.get(space, "ward-0").indices)
            assert ("ward",) == client.models.get(space, "ward-0").tags
    assert all(250 < part.size < 420 for part in held)
    assert np.array_equal(np.sort(np.concatenate(held)), MODELS["ward-0"].indices)


def test_a_service_that_is_down_is_named(
    split: SplitClient, beside_one_that_is_down: SplitClient, space: str
) -> None:
    """There is no answer without it, unless a lower bound is asked for, which says so."""
    down = beside_one_that_is_down
    with pytest.raises(ConnectionFailed, match="service 3 of 3 does not answer"):
        down.neighbors(space, "ward-0")
    exact = split.overlap(space, "ward-0", "ward-1").similarity
    bound = down.overlap(space, "ward-0", "ward-1", lower_bound=True)
    assert bound.note == "a lower bound: service 3 of 3 did not answer"
    assert 0.5 * exact < bound.similarity < exact
    assert down.neighbors(space, "ward-0", lower_bound=True).degraded
    with pytest.raises(ConnectionFailed, match="service 3 of 3"):
        down.put_support(space, "ward-9", MODELS["ward-1"])


def test_a_model_without_a_part_is_put_again(
    split: SplitClient, urls: list[str], space: str
) -> None:
    """It is left out of rankings, named where it is asked for, and whole after another put."""
    with Client(urls[1]) as client:
        client.models.delete(space, "ward-1")
    found = split.neighbors(space, "ward-0")
    assert "ward-1" not in [each.model for each in found]
    assert "models of which a part is missing were left out: 1" == found.note
    with pytest.raises(SpaceMismatch, match="service 2 of 3 lacks its part: put it again"):
        split.overlap(space, "ward-0", "ward-1")
    split.put_support(space, "ward-1", MODELS["ward-1"])
    assert split.overlap(space, "ward-0", "ward-1").similarity == modelkin.similarity(
        MODELS["ward-0"], MODELS["ward-1"]
    )
    split.delete(space, "ward-1")
    split.delete(space, "ward-1")
    with pytest.raises(SpaceMismatch, match="no service has a part of 'ward-1'"):
        split.signature(space, "ward-1")


def test_parts_of_different_supports_are_not_added(
    split: SplitClient, urls: list[str], space: str
) -> None:
    """A put that reached some services alone is seen, whatever the sizes of the parts are."""
    with Client(urls[0]) as client:
        mark = client.models.get(space, "ward-2").attributes["modelkin.split"]
        client.models.update(
            space, "ward-2", attributes={"modelkin.split": {**mark, "content": "another"}}
        )
    with pytest.raises(SpaceMismatch, match="are not of one support, they differ"):
        split.overlap(space, "ward-0", "ward-2")


def test_services_in_another_order_or_another_key_are_refused(
    split: SplitClient, urls: list[str], space: str
) -> None:
    """Their parts would not add up; a space that one service has otherwise is refused, too."""
    turned = SplitClient([Client(url) for url in reversed(urls)], KEY)
    with turned, pytest.raises(SpaceMismatch, match="in the order of the first use"):
        turned.similarity(space)
    stranger = SplitClient([Client(url) for url in urls], Blinding.new_key())
    with stranger, pytest.raises(SpaceMismatch, match="split under another key"):
        stranger.similarity(space)
    with Client(urls[0]) as client:
        client.spaces.delete(space)
        client.ensure_space(space, num_parameters=M + 1)
    with pytest.raises(SpaceMismatch, match="the services have different spaces"):
        split.put_support(space, "ward-0", MODELS["ward-0"])


def test_wrong_arguments_are_refused(split: SplitClient, space: str) -> None:
    """One service alone, k of nothing, and a support of too few indices."""
    with Client("http://127.0.0.1:9") as alone, pytest.raises(InvalidParameter, match="2 to 64"):
        SplitClient([alone], KEY)
    with pytest.raises(InvalidParameter, match="k must be 1 or more"):
        split.neighbors(space, "ward-0", k=0)
    with pytest.raises(InvalidParameter, match="leaves one of 3 parts empty"):
        split.put_support(space, "tiny", Support.from_indices([1, 2], M))
