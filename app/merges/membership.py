"""Members of a merge and their weights, settled at its creation by the service's own answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.infra.db.database import Reader
from app.infra.deadlines import Deadline
from app.kinship.clustering.service import ClusteringService
from app.kinship.donors.request import DonorRequest
from app.kinship.donors.service import DonorService
from app.merges.request import MAX_MEMBERS, MergeRequest
from app.models.catalog.reader import ModelReader
from app.models.catalog.repositories import models
from app.models.spaces.records import SpaceRecord
from modelkin.errors import InvalidParameter
from modelkin.federation.layouts import MOST_EXACT

__all__ = ["Membership", "Settlement"]


@dataclass(frozen=True, slots=True)
class Settlement:
    """The awaited members and their weights; None where members bring their examples."""

    members: tuple[str, ...]
    weights: Mapping[str, float] | None


class Membership:
    """Finds the members of merges.

    Args:
        reader: finds the model that asks for donors.
        donors: ranks donors, with their weights.
        clusterings: knows clusters.
    """

    def __init__(
        self, reader: ModelReader, donors: DonorService, clusterings: ClusteringService
    ) -> None:
        self._reader = reader
        self._donors = donors
        self._clusterings = clusterings

    def settle(
        self, session: Reader, space: SpaceRecord, request: MergeRequest, deadline: Deadline
    ) -> Settlement:
        """Settle the members and weights of a request, as they are now.

        Raises:
            InvalidParameter: a weight is for a model that is no member, or out of range.
            ModelNotFound: a named model, or the model whose donors are sought, does not exist.
            ClusteringNotFound: there is no such clustering, or it has no such cluster.
        """
        if request.donors_of is not None:
            return self._of_donors(session, space, request, deadline)
        if request.clustering is not None:
            members = self._of_cluster(session, space, request)
        else:
            members = tuple(sorted(set(request.members or ())))
            models.get_models(session, space, members[:MAX_MEMBERS])
        return Settlement(members, _weights(request, members))

    def _of_donors(
        self, session: Reader, space: SpaceRecord, request: MergeRequest, deadline: Deadline
    ) -> Settlement:
        assert request.donors_of is not None
        subject = self._reader.stored_subject(session, space, request.donors_of)
        found = self._donors.donors(session, space, subject, DonorRequest(k=request.k), deadline)
        donors = {donor.model: donor.weight for donor in found.items if donor.weight > 0}
        members = tuple(sorted(donors))
        if request.weighting == "donors":
            return Settlement(members, donors)
        return Settlement(members, _weights(request, members))

    def _of_cluster(
        self, session: Reader, space: SpaceRecord, request: MergeRequest
    ) -> tuple[str, ...]:
        assert request.clustering is not None
        clustering = self._clusterings.get(session, space, request.clustering)
        content = self._clusterings.content(session, clustering)
        named = zip(content.models, content.labels, strict=True)
        members = {name for name, label in named if label == request.cluster}
        if not members or request.cluster == -1:
            raise InvalidParameter(
                f"clustering {clustering.id} has no cluster {request.cluster}", field="cluster"
            )
        return tuple(sorted(models.find_models(session, space, sorted(members))))


def _weights(request: MergeRequest, members: tuple[str, ...]) -> Mapping[str, float] | None:
    """The weights that do not wait for the members.

    Raises:
        InvalidParameter: they are of others than the members, or out of range.
    """
    given = request.weighting
    if given == "examples":
        return None
    if given == "equal":
        return dict.fromkeys(members, 1.0)
    assert not isinstance(given, str)  # donors have been settled
    if set(given) != set(members):
        raise InvalidParameter("weights name each member once, and no other", field="weights")
    for name, weight in given.items():
        if not 0 < weight <= MOST_EXACT:
            raise InvalidParameter(
                f"the weight of {name!r} must be above 0 and at most 2^53, not {weight}",
                field="weights",
            )
    return dict(given)
