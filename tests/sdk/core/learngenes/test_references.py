"""References: to a commit or a version of the owner's hub, and to nothing that moves."""

from __future__ import annotations

from typing import Any

import pytest

from modelkin.core.learngenes.references import (
    HubFile,
    MlflowFile,
    Reference,
    reference_from_json,
    reference_to_json,
)
from modelkin.errors import InvalidParameter

COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB = {"kind": "huggingface", "url": "https://huggingface.co", "repo": "org/start",
       "revision": COMMIT, "file": "genes/3.safetensors"}  # fmt: skip
MLFLOW = {"kind": "mlflow", "url": "http://mlflow.lan:5000", "model": "ward start",
          "version": "12", "path": "gene.safetensors"}  # fmt: skip
HTTPS = {"kind": "https", "url": "https://files.example/gene.safetensors?v=3"}


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        (HUB, f"https://huggingface.co/org/start/resolve/{COMMIT}/genes/3.safetensors"),
        (
            MLFLOW,
            "http://mlflow.lan:5000/model-versions/get-artifact?name=ward+start&version=12"
            "&path=gene.safetensors",
        ),
        (HTTPS, HTTPS["url"]),
    ],
)
def test_a_reference_knows_its_address(fields: dict[str, Any], address: str) -> None:
    """JSON becomes a reference and back, and says where the file is."""
    reference = reference_from_json(fields)
    assert (fields, address) == (reference_to_json(reference), reference.address)


@pytest.mark.parametrize(
    "reference",
    [
        HubFile(repo="start", revision=COMMIT, file="a b/c#.safetensors"),
        MlflowFile(url="https://m.example/base/", model="m&n", version="1", path="a/b"),
    ],
)
def test_names_are_encoded(reference: Reference) -> None:
    """What a name holds stays a part of the path or of the query."""
    assert "#" not in reference.address
    assert " " not in reference.address
    assert 1 == reference.address.count("name=") or "resolve" in reference.address


@pytest.mark.parametrize(
    ("base", "changed", "field"),
    [
        (HUB, {"revision": "main"}, "revision"),
        (HUB, {"revision": COMMIT[:12]}, "revision"),
        (HUB, {"revision": COMMIT.upper()}, "revision"),
        (HUB, {"revision": 5}, "revision"),
        (HUB, {"repo": "../../etc"}, "repo"),
        (HUB, {"repo": "org/.."}, "repo"),
        (HUB, {"repo": "a/b/c"}, "repo"),
        (HUB, {"file": "../secret"}, "file"),
        (HUB, {"file": "/etc/passwd"}, "file"),
        (HUB, {"file": ""}, "file"),
        (HUB, {"url": "https://user:secret@huggingface.co"}, "url"),
        (HUB, {"url": "file:///etc"}, "url"),
        (HUB, {"url": "https://"}, "url"),
        (HUB, {"url": "https://h.example/?q=1"}, "url"),
        (MLFLOW, {"version": "latest"}, "version"),
        (MLFLOW, {"version": "0"}, "version"),
        (MLFLOW, {"version": 3}, "version"),
        (MLFLOW, {"model": "a\nb"}, "model"),
        (MLFLOW, {"path": "a/../b"}, "path"),
        (HTTPS, {"url": "http://files.example/gene"}, "url"),
        (HTTPS, {"url": "file:///gene"}, "url"),
        (HTTPS, {"url": "https://h.example/#part"}, "url"),
        (HTTPS, {"url": "https://token@h.example/"}, "url"),
        (HTTPS, {"url": "https://h.example:port/"}, "url"),
        (HTTPS, {"url": "https://h.example/\u00e9"}, "url"),
        (HTTPS, {"url": "https://h.example/" + "x" * 1000}, "url"),
        (HTTPS, {"url": None}, "url"),
        (HTTPS, {"kind": "file"}, "kind"),
        (HTTPS, {"kind": ["https"]}, "kind"),
        (HTTPS, {"repo": "org/start"}, "repo"),
    ],
)
def test_what_moves_or_leads_elsewhere_is_refused(
    base: dict[str, Any], changed: dict[str, Any], field: str
) -> None:
    """Branches, aliases, credentials, other schemes and paths upward; the error names the field."""
    with pytest.raises(InvalidParameter, match=f"reference.*{field}") as caught:
        reference_from_json({**base, **changed})
    assert "secret@" not in str(caught.value)
    assert "token@" not in str(caught.value)


@pytest.mark.parametrize("fields", [None, "main", [], {}, {"kind": "https"}])
def test_other_values_are_no_references(fields: Any) -> None:
    """Neither is what lacks a field."""
    with pytest.raises(InvalidParameter):
        reference_from_json(fields)


def test_of_a_hub_the_address_is_known() -> None:
    """A reference to huggingface.co needs no url."""
    without = {name: value for name, value in HUB.items() if name != "url"}
    assert reference_from_json(HUB) == reference_from_json(without)
