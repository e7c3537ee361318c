"""Files of released versions: they always decode, and new files are equal to them."""

from __future__ import annotations

import hashlib
import json
import pathlib
from typing import Any

import datasketch
import pytest
import zstandard

from modelkin import wire
from modelkin.core.catalogues.catalogue import Catalogue
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from tests.sdk.wire.fingerprints import fields_of

GOLDEN = pathlib.Path(__file__).parent / "golden"
OTHERS = {"signature", "sketch", "before", "subspace", "fingerprint", "catalogue"}
ENTRIES = json.loads((GOLDEN / "manifest.json").read_text())
SUPPORTS = [entry for entry in ENTRIES if not OTHERS & entry.keys()]
NATIVE = [entry for entry in SUPPORTS if entry["media_type"] == wire.SUPPORT]
SIGNATURES = [entry for entry in ENTRIES if "signature" in entry]
PATCHES = [entry for entry in ENTRIES if "before" in entry]
SUBSPACES = [entry for entry in ENTRIES if "subspace" in entry]
FINGERPRINTS = [entry for entry in ENTRIES if "fingerprint" in entry]
CATALOGUES = [entry for entry in ENTRIES if "catalogue" in entry]
SKETCHES = [entry for entry in ENTRIES if "sketch" in entry]


def name_of(entry: dict[str, Any]) -> str:
    return str(entry["file"])


def bytes_of(entry: dict[str, Any]) -> bytes:
    return (GOLDEN / name_of(entry)).read_bytes()


def support_of(entry: dict[str, Any]) -> Support:
    octaves, gaps = entry.get("octaves"), entry.get("gaps", ())
    m = entry["num_parameters"]
    return Support.from_indices(entry["indices"], m, octaves=octaves, gaps=gaps)


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_the_files_are_untouched(entry: dict[str, Any]) -> None:
    """A golden file is what was released; a format that needs other bytes needs another version."""
    assert entry["sha256"] == hashlib.sha256(bytes_of(entry)).hexdigest()


@pytest.mark.parametrize("entry", SUPPORTS, ids=name_of)
def test_golden_supports_decode(entry: dict[str, Any]) -> None:
    """Every released support decodes to its indices and its digest."""
    support = wire.load_support(bytes_of(entry), entry["media_type"], entry["num_parameters"])
    assert entry["indices"] == support.indices.tolist()
    shown = wire.support_to_json(support)
    assert (entry.get("octaves"), entry.get("gaps")) == (shown.get("octaves"), shown.get("gaps"))
    assert entry["digest"] == support.digest
    assert entry["digest"] == support_of(entry).digest


@pytest.mark.parametrize("entry", NATIVE, ids=name_of)
def test_encoding_keeps_header_and_stream(entry: dict[str, Any]) -> None:
    """Today's encoder writes the same header and the same gap stream; zstd's bytes may differ."""
    golden, written = bytes_of(entry), wire.encode_support(support_of(entry))
    gaps = entry.get("gaps", [])
    begin = 56 + (4 + 16 * len(gaps) if gaps else 0)
    assert golden[:begin] == written[:begin]
    assert zstandard.decompress(golden[begin:-4]) == zstandard.decompress(written[begin:-4])


@pytest.mark.parametrize("entry", SUPPORTS, ids=name_of)
def test_other_formats_are_written_as_before(entry: dict[str, Any]) -> None:
    """Raw bytes are reproduced exactly, a Roaring bitmap as the same set."""
    written = wire.dump_support(support_of(entry), entry["media_type"])
    if entry["media_type"] == wire.RAW:
        assert bytes_of(entry) == written
    decoded = wire.load_support(written, entry["media_type"], entry["num_parameters"])
    assert support_of(entry) == decoded


@pytest.mark.parametrize("entry", SIGNATURES, ids=name_of)
def test_golden_signatures(entry: dict[str, Any]) -> None:
    """Every released signature decodes to its values, and is written byte for byte again."""
    signature = wire.decode_signature(bytes_of(entry), num_parameters=entry["num_parameters"])
    assert entry["signature"] == wire.signature_to_json(signature)
    assert bytes_of(entry) == wire.encode_signature(signature)


@pytest.mark.parametrize("entry", SIGNATURES, ids=name_of)
def test_golden_signatures_are_what_signing_makes(entry: dict[str, Any]) -> None:
    """The released values are what signing the indices still makes."""
    expected = entry["signature"]
    made = support_of(entry).signature(expected["num_perm"], expected["seed"], expected["scheme"])
    assert expected["values"] == made.values.tolist()


@pytest.mark.parametrize("entry", SKETCHES, ids=name_of)
def test_golden_sketches(entry: dict[str, Any]) -> None:
    """Every released sketch decodes to its words, which are what sketching the indices makes."""
    sketch = wire.decode_sketch(bytes_of(entry), num_parameters=entry["num_parameters"])
    expected = entry["sketch"]
    assert expected["words"] == sketch.words.tolist()
    assert sketch == support_of(entry).sketch(expected["size"], expected["seed"])
    assert bytes_of(entry) == wire.encode_sketch(sketch)


@pytest.mark.parametrize("entry", SUBSPACES, ids=name_of)
def test_golden_subspaces(entry: dict[str, Any]) -> None:
    """Every released subspace decodes to its values, and is written byte for byte again."""
    subspace = Subspace.from_bytes(bytes_of(entry))
    assert entry["subspace"] == wire.subspace_to_json(subspace)
    assert entry["digest"] == subspace.digest
    assert bytes_of(entry) == subspace.to_bytes(entry["dtype"])
    assert subspace == wire.subspace_from_json(entry["subspace"])


@pytest.mark.parametrize("entry", FINGERPRINTS, ids=name_of)
def test_golden_fingerprints(entry: dict[str, Any]) -> None:
    """Every released fingerprint decodes to its values, and is written with the same header, digest
    and columns; zstd's bytes may differ.
    """
    golden = bytes_of(entry)
    fingerprint = wire.decode_fingerprint(golden)
    assert entry["fingerprint"] == fields_of(fingerprint)
    assert entry["digest"] == fingerprint.digest
    written = wire.encode_fingerprint(fingerprint)
    assert golden[:68] == written[:68]
    assert zstandard.decompress(golden[68:-4]) == zstandard.decompress(written[68:-4])


@pytest.mark.parametrize("entry", CATALOGUES, ids=name_of)
def test_golden_catalogues(entry: dict[str, Any]) -> None:
    """Every released catalogue decodes to its bases, and its head is what is made of them again;
    zstd's bytes of their fingerprints may differ.
    """
    golden = bytes_of(entry)
    catalogue = wire.decode_catalogue(golden)
    assert entry["catalogue"] == [base.to_json() for base in catalogue.values()]
    assert entry["digest"] == catalogue.digest
    assert golden == wire.encode_catalogue(catalogue)
    made = Catalogue.of((base, catalogue.fingerprint(name)) for name, base in catalogue.items())
    assert catalogue.keys() == made.keys()
    for name, base in catalogue.items():
        assert (base.digest, base.parameters) == (made[name].digest, made[name].parameters)


@pytest.mark.parametrize("entry", PATCHES, ids=name_of)
def test_golden_patches(entry: dict[str, Any]) -> None:
    """Every released patch makes its support of the one before; header and streams are written as
    they were, zstd's bytes may differ.
    """
    before, golden = support_of({**entry, "indices": entry["before"]}), bytes_of(entry)
    after = wire.decode_patch(golden, before).apply(before)
    assert (entry["digest"], support_of(entry)) == (after.digest, after)
    written = wire.encode_patch(before, after)
    assert golden[:112] == written[:112]
    assert zstandard.decompress(golden[112:-4]) == zstandard.decompress(written[112:-4])


@pytest.mark.parametrize("entry", SIGNATURES, ids=name_of)
def test_golden_signatures_are_datasketchs(entry: dict[str, Any]) -> None:
    """The released values are what datasketch computes of the indices by its public API."""
    expected = entry["signature"]
    minhash = datasketch.MinHash(
        num_perm=expected["num_perm"],
        seed=expected["seed"],
        scheme=expected["scheme"],
        hashfunc=lambda index: index,
    )
    for index in entry["indices"]:
        minhash.update(index)
    assert expected["values"] == minhash.hashvalues.tolist()
