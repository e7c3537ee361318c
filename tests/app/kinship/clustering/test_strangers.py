"""Newcomers that are as near to a space's models as chance makes them: they are in no cluster."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from modelkin import Client, Layout, Signature, Support, select_support
from tests.support.servers.server_process import Server

LAYOUT = Layout.of([("embed.weight", (400, 20)), ("head.weight", (20, 100))])
M, K = LAYOUT.num_parameters, 1900
GROUPS = 3


@pytest.fixture(scope="module")
def client(sqlite_server: Server) -> Iterator[Client]:
    """Of a service that carries out its jobs; the spaces are of these tests."""
    with Client(sqlite_server.url) as opened:
        yield opened


def importance(rng: np.random.Generator, group: int | None) -> npt.NDArray[np.float32]:
    """Of a group: its parameters matter. Of none: pure noise, alike in all tensors."""
    values = rng.lognormal(size=M)
    if group is not None:
        own = np.random.default_rng(100 + group).permutation(M)[:K]
        values[own] *= 6.0
    return values.astype(np.float32)


def select(values: npt.NDArray[np.float32], *, with_layout: bool) -> Support:
    """K of M, which chance alone makes similar by K / M = 0.19."""
    return select_support(values, k=K, layout=LAYOUT if with_layout else None)


@pytest.mark.slow
@pytest.mark.parametrize("sends", ["support", "signature"])
@pytest.mark.parametrize("with_layout", [True, False])
def test_noise_is_assigned_nowhere_and_kin_to_their_group(
    client: Client, with_layout: bool, sends: str
) -> None:
    """With a layout and without: 10 of pure noise are in no cluster, 9 of the groups in theirs."""
    space = f"strangers-groups-{with_layout}-{sends}".lower()
    how = {"layout": LAYOUT} if with_layout else {"num_parameters": M}
    client.ensure_space(space, **how)
    rng = np.random.default_rng(8)
    for at in range(18):
        own = select(importance(rng, at % GROUPS), with_layout=with_layout)
        client.put_support(space, f"m{at:02}", own)
    client.clusterings.create(space, algorithm="agglomerative", n_clusters=GROUPS)
    labels = client.clusterings.get(space).labels
    assert GROUPS == len(set(labels.values()))

    def sent(group: int | None) -> Support | Signature:
        own = select(importance(rng, group), with_layout=with_layout)
        return own if sends == "support" else own.signature(num_perm=256)

    for _ in range(10):
        stranger = client.clusterings.assign(space, sent(None))
        assert (-1, 0.0, None) == (stranger.cluster, stranger.share, stranger.exemplar)
        assert "as near as chance" in (stranger.reason or "")
        assert 10 == len(stranger.votes)
        assert stranger.votes[0].similarity > 0.1
        knows = with_layout and sends == "support"
        kappas = [vote.kappa for vote in stranger.votes]
        assert all(kappa is not None and kappa < 0.1 for kappa in kappas) == knows
        assert (stranger.no_p is None) == knows == (stranger.log10_p == 0.0)
    for at in range(9):
        newcomer = client.clusterings.assign(space, sent(at % GROUPS))
        assert labels[f"m{at % GROUPS:02}"] == newcomer.cluster
        assert newcomer.share > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("sends", ["support", "signature"])
def test_a_small_cluster_keeps_its_newcomers_and_noise_is_in_none(
    client: Client, sends: str
) -> None:
    """Of 7, 7 and 3 models, two groups are near: kin are placed; what is much less near is not."""
    space, rng = f"strangers-unequal-{sends}", np.random.default_rng(3)
    client.ensure_space(space, num_parameters=M)
    shared, *rest = np.split(np.random.default_rng(4).permutation(M)[: 6 * 500], 6)
    bases = [  # 0 and 2 have half in common
        np.concatenate([shared, rest[0]]),
        np.concatenate([rest[1], rest[2]]),
        np.concatenate([shared, rest[3]]),
    ]

    def drawn(base: npt.NDArray[np.int64], kept: int) -> Support:
        own = rng.choice(base, kept, replace=False)
        others = rng.choice(np.setdiff1d(np.arange(M), own), 1000 - kept, replace=False)
        return Support.from_indices(np.sort(np.concatenate([own, others])), M)

    def sent(base: npt.NDArray[np.int64], kept: int) -> Support | Signature:
        own = drawn(base, kept)
        return own if sends == "support" else own.signature(num_perm=256)

    groups = [0] * 7 + [1] * 7 + [2] * 3
    for at, group in enumerate(groups):
        client.put_support(space, f"m{at:02}", drawn(bases[group], 900))
    client.clusterings.create(space, algorithm="agglomerative", n_clusters=3)
    labels = client.clusterings.get(space).labels
    for at in (0, 7, 14) * 3:
        newcomer = client.clusterings.assign(space, sent(bases[groups[at]], 900))
        assert labels[f"m{at:02}"] == newcomer.cluster
        assert (None, None) == (newcomer.reason, newcomer.note)
        assert newcomer.mean_similarity == pytest.approx(newcomer.within, abs=0.05)
    for at in (0, 7, 14):  # S of 0.63 to the members: nearer to them than to chance, but no kin
        stranger = client.clusterings.assign(space, sent(bases[groups[at]], 700))
        assert labels[f"m{at:02}"] == stranger.cluster
        assert "be of a group that has no cluster" in (stranger.note or "")
    for at in (0, 7, 14):  # S of 0.36, where the members have 0.8 and chance makes 0.1
        stranger = client.clusterings.assign(space, sent(bases[groups[at]], 330))
        assert (-1, 0.0, None) == (stranger.cluster, stranger.share, stranger.exemplar)
        assert stranger.votes[0].similarity > 0.2
        assert "half-way from chance" in (stranger.reason or "")
        assert (stranger.mean_similarity or 1.0) < 0.6 * (stranger.within or 0.0)
