"""Support sizes: the policy of a space, and the K that its clients agree on.

Overlaps compare best if supports are equally large, but each client's importance ends at another
K. So each client computes its K* and reports it, and all use the median. The service never cuts
or grows a support, because only the client knows the order of its indices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import cast

from app.infra.db.database import Reader, Writer
from app.models.spaces.origins import NOTHING_STATED, StatedOrigin, require_same_if_stated
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces, support_sizes
from app.tenancy.quotas.service import QuotaService
from modelkin.core.selection.rule import LEAST_SHARE, SelectionRule
from modelkin.errors import InvalidParameter, SpaceMismatch
from modelkin.types.spaces import FREE, SupportSize, SupportSizePolicy
from modelkin.types.vocabulary import SupportSizePolicyName

__all__ = ["POLICIES", "SupportSizeRequest", "SupportSizeService"]

POLICIES = ("free", "fixed", "agreed")


@dataclass(frozen=True, slots=True)
class SupportSizeRequest:
    """The requested policy of a new space.

    Attributes:
        policy: the policy, one of :data:`POLICIES`.
        k: the K of the policy ``fixed``.
        fraction: the same K as a share of M, rounded as ``select_support`` does.
    """

    policy: str
    k: int | None = None
    fraction: float | None = None

    def resolve(self, num_parameters: int) -> SupportSizePolicy:
        """Return the policy with its K for a space of M parameters.

        Raises:
            InvalidParameter: the policy is unknown; it is fixed and has no K, or is not and has
                one; or K is out of range.
        """
        if self.policy not in POLICIES:
            raise InvalidParameter(
                f"policy must be one of {', '.join(POLICIES)}, not {self.policy!r}",
                field="support_size.policy",
            )
        given = [n for n in ("k", "fraction") if getattr(self, n) is not None]
        if self.policy != "fixed":
            if given:
                raise InvalidParameter(
                    f"{given[0]} is for the policy fixed; leave it out where K is {self.policy}",
                    field=f"support_size.{given[0]}",
                )
            return (
                SupportSizePolicy(cast(SupportSizePolicyName, self.policy))
                if self.policy != "free"
                else FREE
            )
        if len(given) != 1:
            raise InvalidParameter(
                "the policy fixed takes either k or fraction", field="support_size.k"
            )
        try:
            rule = SelectionRule.of(num_parameters, k=self.k, fraction=self.fraction)
        except InvalidParameter as error:
            raise InvalidParameter(str(error), field=f"support_size.{error.field}") from None
        return SupportSizePolicy("fixed", rule.k)


class SupportSizeService:
    """The use cases by which the clients of a space agree on one K."""

    def __init__(self, quotas: QuotaService) -> None:
        self._quotas = quotas

    def current(self, session: Reader, space: SpaceRecord) -> SupportSize:
        """The present K of the space."""
        policy = space.support_size
        if policy.policy != "agreed":
            return SupportSize(policy.policy, policy.k)
        median, reports = support_sizes.lower_median(session, space)
        k = None if median is None else max(median, -(-space.num_parameters // LEAST_SHARE))
        return SupportSize(policy.policy, k, reports)

    def report(
        self,
        session: Writer,
        space: SpaceRecord,
        *,
        k_star: int,
        client: str,
        num_parameters: int | None = None,
        origin: StatedOrigin = NOTHING_STATED,
    ) -> SupportSize:
        """Take a client's K* and return the K to use.

        Only the policy ``agreed`` stores anything; with ``free``, the answer is the client's own
        K*. The K* of a support that the space would refuse does not count: it would move the K of
        all other clients.

        Args:
            k_star: the client's result of Algorithm 1, 1 to M.
            client: the client's name; a later report replaces an earlier one. All clients without a
                name, ``""``, count as one.
            num_parameters: M of the client's importance; None where it does not state that.
            origin: the client's other statements about it.

        Raises:
            SpaceMismatch: M, the importance, the layout or the key is not the space's.
            InvalidParameter: K* is out of its range.
            QuotaExceeded: the client is new, and the tenant's quota of reporters is used up.
        """
        _require_same_size(space, num_parameters)
        require_same_if_stated(space, origin)
        if not 1 <= k_star <= space.num_parameters:
            raise InvalidParameter(
                f"k_star must be 1 to {space.num_parameters}, the parameters of space "
                f"{space.name!r}, not {k_star}",
                field="k_star",
            )
        if space.support_size.policy == "free":
            return SupportSize("free", k_star)
        if space.support_size.policy == "agreed":
            space = spaces.lock_space(session, space)
            support_sizes.put_report(
                session,
                space,
                reporter=client,
                k_star=k_star,
                require_room=partial(self._require_room, session, space.tenant_id),
            )
        return self.current(session, space)

    def _require_room(self, session: Writer, tenant_id: int) -> None:
        count = partial(support_sizes.count_reporters, session, tenant_id)
        self._quotas.require(session, tenant_id, "reporters", count)


def _require_same_size(space: SpaceRecord, num_parameters: int | None) -> None:
    if num_parameters is not None and num_parameters != space.num_parameters:
        raise SpaceMismatch(
            f"the importance has {num_parameters} parameters, the models of space {space.name!r} "
            f"have {space.num_parameters}: report to a space of its own"
        )
