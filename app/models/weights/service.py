"""The use cases of weights: state those of a model, and find the models that have the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from app.infra.db.database import Reader, Writer
from app.infra.db.pagination import decode_cursor, page_of
from app.infra.errors import Conflict, WeightsNotFound
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories import models
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.models.weights import repository
from app.models.weights.events import MAX_COPIES, weights_repeated
from app.models.weights.wording import difference
from app.tenancy.auth.records import Tenant
from app.webhooks.outbox import Outbox
from modelkin.core.weights import Weights
from modelkin.errors import InvalidParameter
from modelkin.types.models import DuplicateModel, DuplicateWeights, StatedWeights
from modelkin.types.paging import Page

__all__ = ["WeightsService"]

_MAX_MODELS: Final = 100
"""Models with the same weights that an answer lists."""
_KEPT_DIGITS: Final = 32
"""Digits that are kept of the digest of a tensor: two that are equal by chance do not occur."""


class WeightsService:
    """Digests of the weights that supports were made from.

    Who reads a file states them: the hub's sync, or a client for the file that it pushed.

    Args:
        outbox: gets an event where a model has the weights of another.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def state(
        self,
        session: Writer,
        space: SpaceRecord,
        name: str,
        weights: Weights,
        *,
        revision: int | None = None,
        stated_by: Literal["hub", "client"],
    ) -> StatedWeights:
        """Store the weights of a model's present support, and announce models with the same.

        Args:
            revision: the revision whose support was made from them; None for the present one.
            stated_by: ``"hub"`` where the service read the file itself.

        Raises:
            ModelNotFound: there is no such model.
            Conflict: the model has another revision now.
        """
        space = spaces.lock_space(session, space)
        model = models.get_model(session, space, name)
        if revision is not None and revision != model.revision:
            raise Conflict(
                f"model {name!r} is at revision {model.revision}, and these weights are those of "
                f"revision {revision}: state those of its present support"
            )
        known = repository.find_weights(session, model)
        stated = StatedWeights(
            digest=weights.digest,
            tensors={name: digest[:_KEPT_DIGITS] for name, digest in weights.tensors.items()},
            files=weights.files,
            size=weights.size,
            dtypes=weights.dtypes,
            stated_by=stated_by,
            revision=model.revision,
        )
        if known is not None and known.stated_by == "hub" and stated_by == "client":
            return known  # the service has read the file itself
        repository.put_weights(session, model, space.tenant_id, stated)
        if known is None or known.digest != stated.digest:
            self._announce(session, space, model, stated.digest)
        return stated

    def get(self, session: Reader, space: SpaceRecord, name: str) -> StatedWeights:
        """The weights of a model's present support.

        Raises:
            ModelNotFound: there is no such model.
            WeightsNotFound: nobody stated them.
        """
        found = repository.find_weights(session, models.get_model(session, space, name))
        if found is None:
            raise WeightsNotFound(
                f"nobody stated the weights of model {name!r}: a hub's sync and `modelkin push` "
                f"do so for the files that they read"
            )
        return found

    def duplicates(
        self,
        session: Reader,
        tenant: Tenant,
        space: SpaceRecord | None = None,
        *,
        limit: int,
        cursor: str | None = None,
    ) -> Page[DuplicateWeights]:
        """List the weights that several models have, of a space or of all, in a fixed order.

        Args:
            space: only weights that a model of this space has; the others may be in any space.
        """
        after = None if cursor is None else _digest_of(cursor)
        space_id = None if space is None else space.id
        found = repository.repeated_digests(session, tenant.id, space_id, after, limit + 1)
        groups = [self._group(session, tenant.id, digest) for digest in found[:limit]]
        return page_of(groups, len(found) > limit, lambda group: group.digest)

    def copies(
        self, session: Reader, space: SpaceRecord, model: ModelRecord
    ) -> DuplicateWeights | None:
        """The models with the weights of one, and itself; None if there is none, or none known."""
        own = repository.find_weights(session, model)
        if own is None:
            return None
        group = self._group(session, space.tenant_id, own.digest)
        if group.truncated and all((m.space, m.model) != (space.name, model.name) for m in group):
            [itself] = repository.same_weights(session, space.tenant_id, own.digest, 1, of=model)
            *first, _ = group.items
            group = replace(group, items=(*first, _compared(itself, first[0])))
        return group if len({each.model for each in group.items}) > 1 else None

    def copied(self, session: Reader, space: SpaceRecord, names: list[str]) -> frozenset[str]:
        """Those of a space's models whose weights another model has, too."""
        return repository.copied_names(session, space.tenant_id, space.id, names)

    def _group(self, session: Reader, tenant_id: int, digest: str) -> DuplicateWeights:
        """All models with these weights, and how their files differ from the first one's."""
        found = repository.same_weights(session, tenant_id, digest, _MAX_MODELS + 1)
        first, *others = found[:_MAX_MODELS]
        return DuplicateWeights(
            digest=digest,
            items=(first, *(_compared(each, first) for each in others)),
            truncated=len(found) > _MAX_MODELS,
        )

    def _announce(
        self, session: Writer, space: SpaceRecord, model: ModelRecord, digest: str
    ) -> None:
        others = repository.same_weights(
            session, space.tenant_id, digest, MAX_COPIES + 1, but=model.name
        )
        if others:
            weights_repeated(self._outbox, session, space, model, digest, others)


def _compared(copy: DuplicateModel, first: DuplicateModel) -> DuplicateModel:
    """A model with a word about its files; a model under one name in two spaces is no copy."""
    return copy if copy.model == first.model else replace(copy, says=difference(copy, first))


def _digest_of(cursor: str) -> str:
    text = decode_cursor(cursor)
    digits = text.removeprefix("sha256:")
    if len(digits) != 64 or not all(digit in "0123456789abcdef" for digit in digits):
        raise InvalidParameter("this is no cursor of duplicates", field="cursor")
    return text
