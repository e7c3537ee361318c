"""Stored supports: their bytes become a support only if they are the ones that a row names.

Every support is read by the key of its row, and a store may answer with another one: a file that
was exchanged, an older version, a damaged one. The digest of the row decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.infra.storage.blobs import DamagedBlob
from app.models.spaces.records import SpaceRecord
from modelkin.core.packed import PackedSupport
from modelkin.errors import InvalidSupport

__all__ = ["SupportDecoder"]


@dataclass(slots=True)
class SupportDecoder:
    """Decodes the support of a row, for :meth:`BlobStore.open_verified`.

    Attributes:
        space: the space of the row.
        support_size: its K.
        digest: its digest, which covers each index and octave.
    """

    space: SpaceRecord
    support_size: int
    digest: str | None

    def __call__(self, data: memoryview, /, *, verified: bool = False) -> PackedSupport:
        """Return the support of the row.

        Args:
            data: the packed form.
            verified: whether these bytes were compared with the digest before.

        Raises:
            DamagedBlob: the bytes are not that support.
        """
        try:
            packed = PackedSupport.from_buffer(data, self.space.num_parameters, self.support_size)
        except InvalidSupport as error:
            raise DamagedBlob(str(error)) from error
        if packed.ordered != self.space.ordered:
            raise DamagedBlob("it is of another order than its space")
        if not verified and packed.digest != self.digest:
            raise DamagedBlob("it has another digest than its row")
        return packed
