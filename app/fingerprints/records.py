"""Records of fingerprints: plain frozen values, safe to hand to any thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from app.infra.preconditions import Precondition

__all__ = [
    "MAX_BYTES",
    "MAX_TENSORS",
    "NO_FACTS",
    "SCHEME",
    "Facts",
    "Feed",
    "FingerprintPut",
    "FingerprintRecord",
    "PreparedFingerprint",
    "StatedBy",
    "Stored",
]

StatedBy = Literal["hub", "client"]
"""Who made a fingerprint: the service from a file of a hub, or a client."""

SCHEME: Final = "lines1"
"""The scheme of keys that this version of the SDK makes and reads, and no other."""
MAX_BYTES: Final = 4 << 20
"""The most bytes of a payload: those of real checkpoints have some 200,000."""
MAX_TENSORS: Final = 20_000
"""The most tensors of a fingerprint: more take seconds to compare."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Declared statements beside the weights, all unchecked.

    Attributes:
        base_models: the names of the models that it is said to be made from.
        base_relation: what it is said to be of them.
        license: its licence, as a hub writes it.
        published_at: when the model was published.
        file_bytes: the bytes of the files that the fingerprint was made from.
    """

    base_models: tuple[str, ...] = ()
    base_relation: str | None = None
    license: str | None = None
    published_at: datetime | None = None
    file_bytes: int | None = None


NO_FACTS: Final = Facts()


@dataclass(frozen=True, slots=True)
class FingerprintRecord:
    """The fingerprint of a model name, without its keys.

    Attributes:
        revision: 1 for the first of its name; each other content has the next.
        scale: a power of two; of the distinct keys one in so many is kept.
        digest: ``sha256:`` and 64 hexadecimal digits, equal for equal fingerprints alone.
        tensors: the number of its tensors; equal ones are one.
        keys: the number of its sampled keys.
        lines: the distinct lines of each length in the whole checkpoint.
        parameters: the number of values of its tensors.
        size: the bytes of its payload.
        source_id: the source that it came by, which may be gone; None for a client's.
        hub_revision: the hub's revision of the file.
        version: that of the tenant's feed with its last change.
    """

    id: int
    tenant_id: int
    name: str
    revision: int
    scheme: str
    scale: int
    digest: str
    stated_by: StatedBy
    tensors: int
    keys: int
    lines: Mapping[int, int]
    parameters: int
    size: int
    facts: Facts
    source_id: str | None
    hub_revision: str | None
    version: int
    created_at: datetime
    changed_at: datetime

    @property
    def descent(self) -> tuple[object, ...]:
        """What is stated of where and when it comes from."""
        return self.facts.base_models, self.facts.published_at

    @property
    def version_tag(self) -> str:
        """A tag that no other state of any fingerprint has."""
        return f"{self.id:x}-{self.version:x}"


@dataclass(frozen=True, slots=True)
class PreparedFingerprint:
    """A fingerprint that was decoded and checked, ready to be stored.

    Attributes:
        data: the payload in the native format.
        finding_scale: the scale of its finding keys.
        finding_keys: the keys that it is found by, see :func:`finding_keys.coarse_end`.
    """

    data: bytes
    scale: int
    digest: str
    tensors: int
    keys: int
    lines: Mapping[int, int]
    parameters: int
    finding_scale: int
    finding_keys: npt.NDArray[np.uint64] = field(repr=False)


@dataclass(frozen=True, slots=True)
class FingerprintPut:
    """A fingerprint to store under a name, with the statements about it."""

    name: str
    content: PreparedFingerprint
    stated_by: StatedBy
    facts: Facts = NO_FACTS
    source_id: str | None = None
    hub_revision: str | None = None
    precondition: Precondition | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored fingerprint, and the effect of the put.

    Attributes:
        created: whether its name had none before.
        changed: whether its keys are others than before; statements alone do not count.
        restated: whether the service has read itself what a client stated before.
        redeclared: whether its declared bases or its date of publication are others than before.
        is_written: whether anything is other than before, be it a statement alone.
    """

    record: FingerprintRecord
    created: bool
    changed: bool
    restated: bool = False
    redeclared: bool = False
    is_written: bool = True


@dataclass(frozen=True, slots=True)
class Feed:
    """The state of a tenant's feed.

    Attributes:
        version: the version of the last change; 0 before the first.
        compacted_version: the version up to which tombstones may be gone.
        fingerprints: how many fingerprints there are.
        bytes: the bytes of their payloads.
    """

    version: int = 0
    compacted_version: int = 0
    fingerprints: int = 0
    bytes: int = 0
