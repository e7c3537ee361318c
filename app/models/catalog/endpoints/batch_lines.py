"""The lines of a batch, each read strictly.

An invalid line becomes a refusal with its reason; it never ends the batch. The service stores the
entries.
"""

from __future__ import annotations

from typing import Final

from app.infra.errors import Unavailable
from app.infra.http.requests.bodies import BodyLimits
from app.infra.http.requests.json_bodies import DECODED_BYTES_PER_BYTE, QUICK_BYTES, JsonReading
from app.infra.http.requests.json_lines import decode_base64
from app.infra.http.requests.memory_budget import Reservation
from app.models.catalog.batches import MAX_PENDING_BYTES, BatchEntry, RefusedEntry
from app.models.catalog.endpoints.line_fields import read_fields
from app.models.catalog.endpoints.payloads import max_indices
from app.models.catalog.schemas import BatchLineIn
from app.models.spaces.origins import stated_origin
from modelkin import wire
from modelkin.core.indices import index_dtype
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.subspaces.subspace import MAX_FEATURES, Subspace
from modelkin.core.support import Support
from modelkin.errors import (
    InvalidParameter,
    InvalidSignature,
    InvalidSubspace,
    InvalidSupport,
    ModelkinError,
    PayloadTooLarge,
    UnsupportedMediaType,
)

__all__ = ["ENCODED", "LineReader"]

ENCODED: Final = tuple(name for name in wire.SUPPORT_TYPES if name != wire.JSON)
"""The media types of a support in base64; indices as JSON would be text within text."""

_MAX_SUPPORT_BYTES: Final = 16 << 20
"""Bytes of indices of one line: hardly any model has more in a line of a megabyte."""
_RESERVED_BYTES: Final = MAX_PENDING_BYTES + 3 * _MAX_SUPPORT_BYTES
"""Memory for pending supports, and for one support while it is decoded and packed."""


class LineReader:
    """Reads lines into entries; together they decode to no more than a single body may.

    Args:
        limits: the limits of a body; a line has that of a JSON body.
        num_parameters: M of the space.
        longest: the most bytes of a line.
        hold: the reservation of memory, taken once, at the first support or long line.
        reading: the reader of JSON.
        max_columns: the most columns of a data subspace.
    """

    def __init__(
        self,
        limits: BodyLimits,
        num_parameters: int,
        longest: int,
        hold: Reservation,
        reading: JsonReading,
        *,
        max_columns: int = MAX_FEATURES,
    ) -> None:
        self._max_line_bytes = limits.max_json_bytes
        self._num_parameters = num_parameters
        self._max_columns = max_columns
        self._remaining_indices = max_indices(limits, num_parameters)
        self._most = _MAX_SUPPORT_BYTES // index_dtype(num_parameters).itemsize
        self._needed = _RESERVED_BYTES + DECODED_BYTES_PER_BYTE * longest
        self._hold: Reservation | None = hold
        self._reading = reading

    def read(self, line: memoryview) -> BatchEntry | RefusedEntry:
        """The entry of a line, or its refusal.

        Raises:
            Unavailable: there is no memory or no turn for it now; no later line has a chance.
        """
        model: str | None = None
        try:
            if len(line) > QUICK_BYTES:
                self._reserve()
            if len(line) > self._max_line_bytes:
                raise _too_long(self._max_line_bytes, len(line))
            with self._reading(len(line)) as run:
                model, fields = run(read_fields, bytes(line))
            if isinstance(fields, ModelkinError):
                raise fields
            origin = stated_origin(fields.importance, fields.base, fields.layout, fields.blinding)
            content = self._content(fields)
            sketch = self._sketch(fields)
            return BatchEntry(
                fields.model,
                content,
                fields.tags,
                fields.attributes,
                fields.source,
                fields.base_model,
                sketch,
                origin,
            )
        except Unavailable:
            raise
        except ModelkinError as error:
            return RefusedEntry(model, error)

    def _reserve(self) -> None:
        if self._hold is not None:
            self._hold.take(self._needed)
            self._hold = None

    def _content(self, fields: BatchLineIn) -> Support | Signature | Subspace:
        contents = fields.signature, fields.support, fields.subspace
        if sum(content is not None for content in contents) != 1:
            raise InvalidParameter("a line has a signature, a support or a subspace: one of them")
        if fields.subspace is not None:
            data = decode_base64(fields.subspace, "subspace", InvalidSubspace)
            return Subspace.from_bytes(data, max_columns=self._max_columns)
        if fields.signature is not None:
            if fields.media_type is not None:
                raise InvalidParameter(
                    "media_type is that of a support: a signature is JSON here", field="media_type"
                )
            return wire.signature_from_json(fields.signature, self._num_parameters)
        return self._support(fields.support or "", fields.media_type or wire.SUPPORT)

    def _sketch(self, fields: BatchLineIn) -> Sketch | None:
        if fields.sketch is None:
            return None
        if fields.signature is None:
            raise InvalidParameter(
                "a sketch goes with a signature: of a support it is made here", field="sketch"
            )
        data = decode_base64(fields.sketch, "sketch", InvalidSignature)
        return wire.decode_sketch(data, num_parameters=self._num_parameters)

    def _support(self, text: str, media_type: str) -> Support:
        if media_type not in ENCODED:
            raise UnsupportedMediaType(f"media_type must be one of {', '.join(ENCODED)}")
        data = decode_base64(text, "support", InvalidSupport)
        self._reserve()
        most = min(self._most, self._remaining_indices)
        try:
            support = wire.load_support(data, media_type, self._num_parameters, most)
        except PayloadTooLarge as error:
            what = "by itself, to PUT .../supports" if most == self._most else "in another batch"
            raise PayloadTooLarge(f"{error}: send it {what}") from None
        self._remaining_indices -= support.k
        return support


def _too_long(limit: int, size: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"a line may have {limit} bytes at most, this has {size}: "
        f"send a large support by itself, to PUT .../supports"
    )
