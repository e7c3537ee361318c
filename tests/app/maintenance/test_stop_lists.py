"""Stop-lists of a running service: made, replaced and dropped, and the answers with them."""

from __future__ import annotations

from dataclasses import replace

import httpx
import numpy as np
import pytest
from sqlalchemy import select

import modelkin
from app.errors import SupportMissing
from app.infra.db.tables.index import BandedSignatureRow, StopListRow
from modelkin import BulkItem, Support
from modelkin.core.similarity.overlap import jaccard
from modelkin.core.sketching.banding import collision_probability, recall_at
from modelkin.errors import InvalidParameter
from tests.support.blob_files import blob_files
from tests.support.federations.planted import (
    BANDING,
    BASE,
    CLIENTS,
    KIN,
    M,
    Stores,
    assert_banded,
    common,
    filled,
    kin_of,
    left,
    lsh,
    settled,
)
from tests.support.http_space import (
    Space,
    ok,
    random_support,
    ranking,
    true_neighbors,
    true_similarity,
)
from tests.support.servers.server_process import Server

COMMON = common(CLIENTS)


def test_a_space_shows_its_stop_list(listed: Space, open_stores: Stores) -> None:
    """The list is that of a counter over all indices, and the space shows its figures."""
    assert COMMON == open_stores.stop_list(listed.name)
    shown = listed.show()["stop_list"]
    assert "T" in shown.pop("computed_at")
    expected = {"version": 1, "size": len(COMMON), "share": 0.5, "models": len(CLIENTS)}
    assert expected == shown


def test_a_space_without_a_stop_list_shows_none(space: Space) -> None:
    """``stop_list`` is null, and the recall is the collision curve."""
    shown = space.show()
    assert shown["stop_list"] is None
    assert recall_at(0.5, modelkin.Banding(64, 4)) == shown["banding"]["recall"]["0.5"]


def test_kin_are_found_among_far_fewer(clients: Space, open_stores: Stores) -> None:
    """Without the list nearly every model shares a bucket with a client.

    With it hardly any unrelated model does, and all kin do.
    """
    before = lsh(clients)
    open_stores.lists.make(open_stores.space(clients.name))
    after = lsh(clients)
    assert ["lsh", "lsh"] == [before["method"], after["method"]]
    assert true_neighbors(BASE, KIN) == ranking(before) == ranking(after)
    assert before["candidates"] > 0.9 * len(CLIENTS)
    assert after["candidates"] <= len(KIN) + 5


def test_stored_band_values_can_rebuild_the_buckets(listed: Space, open_stores: Stores) -> None:
    """Band values are the minhashes of the filtered supports, and buckets follow them."""
    assert_banded(open_stores, listed, dict(CLIENTS))


def test_every_write_counts_at_once(listed: Space, open_stores: Stores) -> None:
    """The next query reflects new, replaced, removed and relabelled models."""
    rng = np.random.default_rng(5)
    lsh(listed)
    close = {"new": kin_of(rng, BASE), "far03": kin_of(rng, BASE, 220)}
    listed.put_all(close)
    listed.put("kin1", CLIENTS["far01"])
    listed.http.delete(listed.path("models", "kin2"))
    ok(listed.http.patch(listed.path("models", "kin3"), json={"tags": ["t"]}))
    now = {name: s for name, s in {**CLIENTS, **close}.items() if name != "kin2"}
    now["kin1"] = CLIENTS["far01"]
    near = {name: now[name] for name in ("kin0", "kin3", "new", "far03")}
    answer = listed.neighbors("base", method="lsh", min_similarity=0.6)
    assert true_neighbors(BASE, near) == ranking(answer)
    assert_banded(open_stores, listed, dict(now))


def test_a_second_list_replaces_the_first(listed: Space, open_stores: Stores) -> None:
    """Another share gives another version with other indices; nothing of the first remains."""
    lsh(listed)
    made = open_stores.lists.make(open_stores.space(listed.name), share=0.68)
    assert made is not None
    shown = listed.show()["stop_list"]
    assert (2, 0.68) == (shown["version"], shown["share"])
    assert common(CLIENTS, 0.68) == open_stores.stop_list(listed.name)
    assert 0 < shown["size"] < len(COMMON)
    assert {2} == open_stores.versions(listed.name)
    assert_banded(open_stores, listed, dict(CLIENTS))


def test_dropping_goes_back_to_all_indices(listed: Space, open_stores: Stores) -> None:
    """Nothing of the list remains, the collision curve holds again, and versions continue."""
    dropped = open_stores.lists.drop(open_stores.space(listed.name))
    assert dropped is not None
    assert listed.show()["stop_list"] is None
    assert set() == open_stores.versions(listed.name)
    answer = lsh(listed)
    assert recall_at(0.6, BANDING) == answer["recall"]
    assert true_neighbors(BASE, KIN) == ranking(answer)
    assert answer["candidates"] > 0.9 * len(CLIENTS)
    assert open_stores.lists.drop(open_stores.space(listed.name)) is None
    made = open_stores.lists.make(open_stores.space(listed.name))
    assert made is not None
    assert 4 == made.version


def test_nothing_common_is_no_list(
    http: httpx.Client, client: modelkin.Client, open_stores: Stores
) -> None:
    """If no index is in half of the supports, there is no list, and an earlier one is dropped."""
    rng = np.random.default_rng(2)
    space = filled(http, client, {f"m{i}": random_support(rng, M, 60) for i in range(12)})
    record = open_stores.space(space.name)
    assert open_stores.lists.make(record, share=0.1) is not None
    assert open_stores.lists.make(record) is None
    assert space.show()["stop_list"] is None
    assert "lsh" == lsh(space, "m0")["method"]


def test_recall_is_measured(listed: Space) -> None:
    """Where there are pairs, the space and its answers report the recall within .1.

    Elsewhere it is unknown.
    """
    shown = listed.show()["banding"]["recall"]
    assert [None, None] == [shown["0.3"], shown["0.9"]]
    rest = {name: left(support, COMMON) for name, support in CLIENTS.items()}
    found = [
        collision_probability(jaccard(rest["base"], rest[name]), BANDING)  # type: ignore[arg-type]
        for name, support in KIN.items()
        if abs(true_similarity(BASE, support) - 0.7) <= 0.05
    ]
    assert found
    assert pytest.approx(np.mean(found), abs=0.1) == shown["0.7"]
    assert shown["0.7"] == lsh(listed, min_similarity=0.7)["recall"]
    assert lsh(listed, min_similarity=0.95)["recall"] is None


def test_auto_goes_by_the_measured_recall(
    http: httpx.Client, client: modelkin.Client, open_stores: Stores
) -> None:
    """In a large space buckets answer if the measured recall is high enough, else a scan."""
    m, rng = 1 << 30, np.random.default_rng(1)
    pool, groups = np.arange(60), [rng.choice(m, 40, replace=False) for _ in range(40)]
    supports = {}
    for i in range(205):
        own = np.concatenate([pool, groups[i % 40], rng.choice(m, 5, replace=False)])
        supports[f"m{i:03d}"] = Support.from_indices(np.unique(own), m)
    space = filled(http, client, supports)
    open_stores.lists.make(open_stores.space(space.name))
    for least, method in ((0.95, "lsh"), (0.55, "scan"), (0.75, "scan")):
        answer = settled(lambda least=least: space.neighbors("m000", min_similarity=least))
        assert method == answer["method"]


@pytest.fixture
def mixed(clients: Space, open_stores: Stores) -> Space:
    """A space with a list, a kin that sent only a signature, and one of common indices alone."""
    clients.put_signature("signed", kin_of(np.random.default_rng(1), BASE).signature())
    clients.put("ordinary", ordinary())
    open_stores.lists.make(open_stores.space(clients.name))
    return clients


def ordinary() -> Support:
    """A support that lies wholly in the stop-list."""
    return Support.from_indices(COMMON[::2], M)


def test_unbanded_models_are_found(mixed: Space, open_stores: Stores) -> None:
    """Every query compares signature-only models and supports that lie wholly in the list."""
    assert_banded(open_stores, mixed, {**CLIENTS, "signed": None, "ordinary": ordinary()})
    mixed.put_signature("later", kin_of(np.random.default_rng(2), BASE).signature())
    mixed.put("commoner", Support.from_indices(COMMON[::3], M))
    answer = mixed.neighbors("base", method="lsh", k=50)
    assert ("lsh", False) == (answer["method"], answer["degraded"])
    assert {*KIN, "signed", "later", "ordinary", "commoner"} <= {n for n, _ in ranking(answer)}


@pytest.mark.parametrize("model", ["signed", "ordinary"])
def test_an_unbanded_query_uses_a_scan(mixed: Space, model: str) -> None:
    """The query shares no bucket with any model, so a scan answers, which is not degraded."""
    lsh(mixed)
    answer = mixed.neighbors(model, method="lsh", k=50)
    assert ("scan", False, None) == (answer["method"], answer["degraded"], answer["recall"])
    assert len(CLIENTS) + 1 == len(answer["items"])


def test_a_support_in_the_body_uses_its_filtered_support(mixed: Space) -> None:
    """A support in the body finds its kin by buckets, a signature by scan."""
    query = kin_of(np.random.default_rng(9), BASE)
    answer = settled(lambda: mixed.find(query.to_bytes(), method="lsh", min_similarity=0.6))
    assert "lsh" == answer["method"]
    near = {n: s for n, s in CLIENTS.items() if true_similarity(query, s) >= 0.6}
    exact = [(n, s) for n, s in ranking(answer) if n in CLIENTS]
    assert true_neighbors(query, near) == exact
    signature = query.signature().to_bytes()
    answer = mixed.find(signature, "application/vnd.modelkin.signature", method="lsh")
    assert ("scan", False) == (answer["method"], answer["degraded"])


def test_too_many_unbanded_models_are_scanned(
    client: modelkin.Client, http: httpx.Client, open_stores: Stores
) -> None:
    """With more than a thousand of them a scan answers, which leaves no model out."""
    few = {name: s for name, s in CLIENTS.items() if name not in ("kin1", "kin2", "kin3")}
    space = filled(http, client, few)
    rng = np.random.default_rng(3)
    signed = (
        modelkin.Signature.from_values(
            rng.integers(0, 1 << 32, 256, np.uint32), num_parameters=M, support_size=600
        )
        for _ in range(1001)
    )
    client.put_many(space.name, (BulkItem(f"s{i}", each) for i, each in enumerate(signed)))
    open_stores.lists.make(open_stores.space(space.name))
    answer = space.neighbors("base", method="lsh")
    assert ("scan", False) == (answer["method"], answer["degraded"])
    http.delete(space.path("models", "s7"))
    assert "lsh" == lsh(space)["method"]


def test_a_damaged_support_is_still_found(
    clients: Space, server: Server, open_stores: Stores
) -> None:
    """A model whose file cannot be read is unbanded, and does not prevent a list."""
    space = open_stores.space(clients.name)
    before = blob_files(server.blobs)
    clients.put("broken", kin_of(np.random.default_rng(4), BASE))
    [file] = blob_files(server.blobs) - before
    file.write_bytes(b"")
    assert open_stores.lists.make(space) is not None
    assert open_stores.banded(clients.name)["broken"] is None
    answer = clients.neighbors("base", method="lsh", min_similarity=0.6)
    assert "broken" in {name for name, _ in ranking(answer)}


def test_other_spaces_are_left_alone(
    clients: Space, http: httpx.Client, client: modelkin.Client, open_stores: Stores
) -> None:
    """Neither the counts, nor the buckets, nor the answers of another space change."""
    other = filled(http, client, CLIENTS)
    before = lsh(other), other.show(), open_stores.space(other.name)
    open_stores.lists.make(open_stores.space(clients.name))
    assert before == (lsh(other), other.show(), open_stores.space(other.name))
    assert {None} == set(open_stores.banded(other.name).values())


def test_the_same_models_have_the_same_list_elsewhere(
    clients: Space, http: httpx.Client, client: modelkin.Client, open_stores: Stores
) -> None:
    """The list depends on the space alone, not on the rest of the database."""
    twin = filled(http, client, CLIENTS, banding={"bands": BANDING.bands, "rows": BANDING.rows})
    made = [open_stores.lists.make(open_stores.space(s.name)) for s in (clients, twin)]
    moment = made[0].computed_at  # type: ignore[union-attr]
    assert made[0] == replace(made[1], computed_at=moment)  # type: ignore[type-var]
    assert open_stores.stop_list(clients.name) == open_stores.stop_list(twin.name)


@pytest.mark.parametrize("share", [0.0, -0.5, 1.01, float("nan"), float("inf")])
def test_a_share_out_of_range_is_refused(clients: Space, open_stores: Stores, share: float) -> None:
    """A share is above 0 and at most 1; no version was begun."""
    with pytest.raises(InvalidParameter, match="share must be above 0"):
        open_stores.lists.make(open_stores.space(clients.name), share=share)
    assert clients.show()["stop_list"] is None


def test_a_space_without_supports_has_nothing_to_count(space: Space, open_stores: Stores) -> None:
    """Neither an empty space nor one of signatures alone can have a stop-list."""
    for _ in range(2):
        with pytest.raises(SupportMissing, match="holds no support"):
            open_stores.lists.make(open_stores.space(space.name))
        space.put_signature("s", BASE.signature())


def test_deleting_a_model_or_a_space_deletes_its_band_values(
    listed: Space, open_stores: Stores
) -> None:
    """No row of them remains."""
    space = open_stores.space(listed.name)

    def rows(table: type[BandedSignatureRow | StopListRow]) -> int:
        with open_stores.database.reading() as session:
            of_space = select(table.version).where(table.space_id == space.id)
            return len(session.scalars(of_space).all())

    assert (len(CLIENTS), 1) == (rows(BandedSignatureRow), rows(StopListRow))
    listed.http.delete(listed.path("models", "kin0"))
    assert len(CLIENTS) - 1 == rows(BandedSignatureRow)
    listed.http.delete(f"/v1/spaces/{listed.name}")
    assert (0, 0) == (rows(BandedSignatureRow), rows(StopListRow))
