"""The part of the client that asks which models the tensors of a checkpoint come from."""

from __future__ import annotations

from collections.abc import Iterable

from modelkin.client._async.connection import AsyncConnection
from modelkin.client._protocol import anatomies
from modelkin.client._protocol.anatomies import Subject
from modelkin.types.anatomies.anatomy import ModelAnatomy, TensorPairs
from modelkin.types.anatomies.relatives import Relatives

__all__ = ["AsyncAnatomies"]


class AsyncAnatomies:
    """The half of :class:`modelkin.AsyncClient` that compares lines, whatever the layouts."""

    _connection: AsyncConnection

    async def anatomy(self, subject: Subject, *, exclude: Iterable[str] = ()) -> ModelAnatomy:
        """Finds the stored models that the tensors of a checkpoint come from.

        Equal lines mean a common origin: a base, a checkpoint, or the same random seed. That there
        are none proves nothing.

        Args:
            subject: the name of a model whose fingerprint is stored, which is no parent of its own;
                or a ``Fingerprint``, which is not stored.
            exclude: names of models that are left out.

        Raises:
            ApiError: ``fingerprint_not_found``.
        """
        return await self._connection.run(anatomies.anatomy(subject, exclude))

    async def relatives(
        self, subject: Subject, *, k: int = 10, exclude: Iterable[str] = ()
    ) -> Relatives:
        """Lists the stored models with lines in common with one, the least likely by chance first.

        Args:
            subject: as for :meth:`anatomy`.
            k: the number of models, 1 to 100.
            exclude: names of models that are left out.

        Raises:
            ApiError: ``fingerprint_not_found``.
        """
        return await self._connection.run(anatomies.relatives(subject, k, exclude))

    async def tensor_pairs(self, model: str, other: str) -> TensorPairs:
        """Compares two stored models tensor by tensor, whatever their layouts.

        Args:
            model: the name of the one.
            other: that of the other: its tensors are the sources.

        Raises:
            ApiError: ``fingerprint_not_found``.
        """
        return await self._connection.run(anatomies.tensor_pairs(model, other))
