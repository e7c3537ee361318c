"""Labels of clusterings as pages read them: each clustering is decoded once."""

from __future__ import annotations

from app.infra.db.database import Database
from app.kinship.clustering.labels import LabelCache
from app.kinship.clustering.request import ClusteringRequest
from modelkin.core.clustering.clustering import NOISE
from tests.support.app.space import AppSpace


def clusters_of(number: int) -> ClusteringRequest:
    """The request for so many clusters."""
    return ClusteringRequest("agglomerative", {"n_clusters": number})


def test_labels_are_decoded_once(kin: AppSpace) -> None:
    """A clustering that was read is not read again; a newer one has its own labels."""
    cache = LabelCache()
    for number in (3, 5):
        expected = kin.cluster(clusters_of(number))
        record = kin.clusterings()[0]
        with kin.services[Database].reading() as session:
            found = cache.labels(session, record)
            assert found is cache.labels(session, record)
        assert expected == found.of
        clusters = set(expected.values()) | {NOISE}
        counts = {each: list(expected.values()).count(each) for each in clusters}
        assert counts == {each: found.sizes[each] for each in clusters}


def test_the_cache_is_bounded(kin: AppSpace) -> None:
    """The labels read last stay; a clustering with more models than all may have is not kept."""
    kin.cluster(clusters_of(3))
    kin.cluster(clusters_of(5))
    second, first = kin.clusterings()
    one, none = LabelCache(max_models=20), LabelCache(max_models=17)
    with kin.services[Database].reading() as session:
        before = one.labels(session, first)
        assert one.labels(session, second) is one.labels(session, second)
        assert one.labels(session, first) is not before
        assert none.labels(session, first) is not none.labels(session, first)
