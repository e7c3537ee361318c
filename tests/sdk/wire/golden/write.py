"""Writes the golden files of new formats: ``python tests/sdk/wire/golden/write.py``.

It never touches a file that exists. Released files stay readable: if one no longer decodes, the
decoder is wrong, not the file.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from datetime import UTC, datetime
from typing import Any

import numpy as np

from modelkin import wire
from modelkin.core.catalogues.catalogue import Base, Catalogue
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.octaves import last_octave, octave_sizes
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.support import Support
from tests.sdk.wire.fingerprints import drawn as drawn_fingerprint
from tests.sdk.wire.fingerprints import fields_of

HERE = pathlib.Path(__file__).parent


def drawn(num_parameters: int, k: int) -> Support:
    indices = np.random.default_rng(k).integers(0, num_parameters, k, dtype=np.uint64)
    return Support.from_indices(np.unique(indices), num_parameters)


def supports() -> dict[str, tuple[Support, str]]:
    """Name to support and media type; the names say how many low bytes each gap gives away."""
    rows = (np.arange(0, 1600, 100)[:, None] + np.array([3, 4, 5, 50, 98])).ravel()
    runs = np.r_[0:300, 70_000:70_040, 131_071]
    wide_runs = np.r_[2**32 - 2 : 2**32 + 3, 7_999_999_999]
    return {
        "support-smallest.mksp": (Support.from_indices([0], 1), wire.SUPPORT),
        "support-32bit-w0.mksp": (drawn(4_000, 400), wire.SUPPORT),
        "support-32bit-rows.mksp": (Support.from_indices(rows, 1_600), wire.SUPPORT),
        "support-32bit-escapes.mksp": (drawn(15_000, 60), wire.SUPPORT),
        "support-32bit-w1.mksp": (drawn(1_000_000, 60), wire.SUPPORT),
        "support-32bit-w2.mksp": (drawn(1_000_000_000, 100), wire.SUPPORT),
        "support-64bit-w2.mksp": (drawn(8_000_000_000, 500), wire.SUPPORT),
        "support-64bit-w3.mksp": (drawn(8_000_000_000, 40), wire.SUPPORT),
        "support-largest.mksp": (Support.from_indices([0, 2**63 - 2], 2**63 - 1), wire.SUPPORT),
        "support-32bit.roaring": (Support.from_indices(runs, 200_000), wire.ROARING),
        "support-64bit.roaring": (Support.from_indices(wide_runs, 8_000_000_000), wire.ROARING),
        "support-32bit.raw": (drawn(2**32, 20), wire.RAW),
        "support-64bit.raw": (drawn(8_000_000_000, 20), wire.RAW),
    }


def ordered_supports() -> dict[str, Support]:
    """Name to ordered support, with octaves that are full and that are not."""

    def in_order(support: Support) -> Support:
        octaves = np.repeat(np.arange(last_octave(support.k) + 1), octave_sizes(support.k))
        drawn = np.random.default_rng(support.k).permutation(octaves)
        return Support(support.indices, support.num_parameters, octaves=drawn)

    return {
        "ordered-smallest.mksp": Support([0], 1, octaves=[0]),
        "ordered-32bit-w0.mksp": in_order(drawn(4_000, 400)),
        "ordered-32bit-full.mksp": in_order(Support.from_indices(range(0, 2_040, 8), 2_040)),
        "ordered-32bit-w1.mksp": in_order(drawn(1_000_000, 60)),
        "ordered-64bit-w2.mksp": in_order(drawn(8_000_000_000, 500)),
        "ordered-largest.mksp": Support([0, 2**63 - 2], 2**63 - 1, octaves=[1, 0]),
    }


def signatures() -> dict[str, tuple[Signature, Support]]:
    narrow, wide = drawn(4_000, 400), drawn(8_000_000_000, 500)
    return {
        "signature-affine32.mksg": (narrow.signature(num_perm=64), narrow),
        "signature-affine64.mksg": (wide.signature(num_perm=32, seed=2**32 - 1), wide),
    }


def sketches() -> dict[str, tuple[Sketch, Support]]:
    narrow, wide = drawn(4_000, 400), drawn(8_000_000_000, 500)
    return {
        "sketch-part.mksk": (narrow.sketch(1024), narrow),
        "sketch-whole.mksk": (narrow.sketch(4096, seed=7), narrow),
        "sketch-64bit.mksk": (wide.sketch(64, seed=2**32 - 1), wide),
    }


def patches() -> dict[str, tuple[Support, Support]]:
    """Name to the support before and the one after."""
    narrow, wide = drawn(4_000, 400), drawn(8_000_000_000, 500)
    fewer = Support.from_indices(narrow.indices[20:], 4_000)
    more = Support.from_indices(np.union1d(narrow.indices[5:], np.arange(20)), 4_000)
    moved = np.union1d(wide.indices[1::2], wide.indices[:90:9] + np.uint64(2**32))
    return {
        "delta-nothing.mkdl": (narrow, narrow),
        "delta-removed.mkdl": (narrow, fewer),
        "delta-added.mkdl": (fewer, narrow),
        "delta-both.mkdl": (narrow, more),
        "delta-64bit.mkdl": (wide, Support.from_indices(moved, 8_000_000_000)),
    }


def fingerprints() -> dict[str, Fingerprint]:
    """Name to fingerprint: with numbers of tensors of no byte, one and two."""
    return {
        "fingerprint-one.mkfp": drawn_fingerprint(13, tensors=1, lines=5),
        "fingerprint-whole.mkfp": drawn_fingerprint(3),
        "fingerprint-sampled.mkfp": drawn_fingerprint(7, tensors=257, lines=2, scale=4, signed=0.0),
    }


def catalogues() -> dict[str, Catalogue]:
    """Name to catalogue: of one base of which little is known, and of two that share keys."""
    whole = drawn_fingerprint(3)
    known = Base(
        "org/known",
        "https://hub.test/org/known",
        "0123456789abcdef",
        "mit",
        datetime(2024, 5, 1, 12, 30, tzinfo=UTC),
        ("org/base",),
        "finetune",
        9_007_199_254_740_993,
    )
    return {
        "catalogue-one.mkct": Catalogue.of([(Base("base"), drawn_fingerprint(13, tensors=1))]),
        "catalogue-known.mkct": Catalogue.of([(known, whole), (Base("org/base"), whole.at(2))]),
    }


def write(name: str, data: bytes, **expected: Any) -> dict[str, Any]:
    path = HERE / name
    if not path.exists():
        path.write_bytes(data)
    return {"file": name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), **expected}


def entry(name: str, support: Support, media_type: str) -> dict[str, Any]:
    """The entry of a support's file, which is written if it is new."""
    return write(
        name,
        wire.dump_support(support, media_type),
        media_type=media_type,
        num_parameters=support.num_parameters,
        digest=support.digest,
        **wire.support_to_json(support),
    )


def main() -> None:
    entries = [entry(name, *expected) for name, expected in supports().items()]
    entries += [
        write(
            name,
            wire.encode_signature(signature),
            media_type=wire.SIGNATURE,
            num_parameters=signature.num_parameters,
            digest=support.digest,
            indices=support.indices.tolist(),
            signature=wire.signature_to_json(signature),
        )
        for name, (signature, support) in signatures().items()
    ]
    entries += [
        write(
            name,
            wire.encode_sketch(sketch),
            media_type=wire.SKETCH,
            num_parameters=sketch.num_parameters,
            digest=support.digest,
            indices=support.indices.tolist(),
            sketch={"size": sketch.size, "seed": sketch.seed, "words": sketch.words.tolist()},
        )
        for name, (sketch, support) in sketches().items()
    ]
    entries += [
        write(
            name,
            wire.encode_patch(before, after),
            media_type=wire.PATCH,
            num_parameters=after.num_parameters,
            digest=after.digest,
            indices=after.indices.tolist(),
            before=before.indices.tolist(),
        )
        for name, (before, after) in patches().items()
    ]
    entries += [
        write(
            name,
            wire.encode_fingerprint(fingerprint),
            media_type=wire.FINGERPRINT,
            digest=fingerprint.digest,
            fingerprint=fields_of(fingerprint),
        )
        for name, fingerprint in fingerprints().items()
    ]
    entries += [
        write(
            name,
            wire.encode_catalogue(catalogue),
            media_type=wire.CATALOGUE,
            digest=catalogue.digest,
            catalogue=[base.to_json() for base in catalogue.values()],
        )
        for name, catalogue in catalogues().items()
    ]
    entries += [entry(name, each, wire.SUPPORT) for name, each in ordered_supports().items()]
    manifest = HERE / "manifest.json"
    known = {entry["file"]: entry for entry in json.loads(manifest.read_text())}
    made = {entry["file"]: entry for entry in entries}
    if any(known.get(name, entry) != entry for name, entry in made.items()):
        raise SystemExit(f"{manifest} knows other files: a new version has a folder of its own")
    lines = ",\n".join(json.dumps(entry) for entry in (known | made).values())
    manifest.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
