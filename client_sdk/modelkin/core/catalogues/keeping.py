"""What a catalogue keeps of a fingerprint: so little that a thousand bases take 60 MB."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.core.codecs.catalogue import MAX_FINDING_KEYS
from modelkin.core.fingerprints.arrays import kept
from modelkin.core.fingerprints.fingerprint import Fingerprint

__all__ = ["USUAL_BYTES", "finding_keys", "kept_of"]

USUAL_BYTES: Final = 47_000
"""What is kept of a base at most; with 12 bytes for each of 1,023 finding keys, and its row and
text, this is 60,000."""
_ENOUGH: Final = 2_048
"""Keys that are kept before signatures are left out."""
_LEAST: Final = 512
"""Keys that are always kept."""


def kept_of(fingerprint: Fingerprint) -> tuple[Fingerprint, bytes]:
    """What is kept of a fingerprint, and its bytes.

    Half of the keys go, and half again, while 2,048 stay; then the tensors' signatures, which say
    whether rows stand in their order; then keys down to 512. A fingerprint of so many tensors that
    their names alone take more is kept like this.
    """
    found = _coarser(fingerprint, _ENOUGH)
    if found[1] is not None and len(found[1]) > USUAL_BYTES:
        tensors = tuple(replace(each, signature=None) for each in fingerprint.tensors)
        unsigned = replace(fingerprint, tensors=tensors)
        found = _coarser(unsigned, _ENOUGH)
        if len(found[1]) > USUAL_BYTES:
            found = _coarser(unsigned, _LEAST)
    return found


def _coarser(fingerprint: Fingerprint, least: int) -> tuple[Fingerprint, bytes]:
    """The finest that fits, of those that have so many keys or more."""
    data = fingerprint.to_bytes()
    while len(data) > USUAL_BYTES:
        coarser = fingerprint.at(2 * fingerprint.scale)
        if coarser.distinct.size < least:
            break
        fingerprint, data = coarser, coarser.to_bytes()
    return fingerprint, data


def finding_keys(fingerprint: Fingerprint) -> npt.NDArray[np.uint64]:
    """The coarse end of its keys, by which it is found: each once, ascending, 1,023 at most."""
    keys, scale = fingerprint.distinct, fingerprint.scale
    while keys.size > MAX_FINDING_KEYS:
        scale *= 2
        keys = keys[: kept(keys, scale)]
    return keys
