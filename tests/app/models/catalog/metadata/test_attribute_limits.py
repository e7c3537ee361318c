"""How large the attributes of a model may be, and the refusal of larger ones."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pydantic import ValidationError

from app.infra.http.requests.json_reading import parse_strictly
from app.models.catalog.schemas import ModelUpdate
from modelkin import Support
from tests.support.http_space import Space, assert_problem, ok

KIB = 1 << 10


def deep(levels: int) -> dict[str, Any]:
    """Attributes of so many levels."""
    inner: Any = 1
    for _ in range(levels - 1):
        inner = [inner]
    return {"a": inner}


LARGEST = {"text": "é" * ((16 * KIB - len('{"text":""}')) // 2)}
TOO_LARGE = {"text": LARGEST["text"] + "é"}


@pytest.mark.parametrize("attributes", [LARGEST, deep(8), {}])
def test_small_attributes_are_stored(space: Space, attributes: dict[str, Any]) -> None:
    """16 KiB of JSON, and 8 levels, are not too much."""
    space.put("a", Support.from_indices([1], space.m))
    body = {"attributes": attributes}
    assert attributes == ok(space.http.patch(space.path("models", "a"), json=body))["attributes"]


@pytest.mark.parametrize(
    ("attributes", "says"),
    [(TOO_LARGE, "16384 bytes at most as JSON, these have 16385"), (deep(9), "8 levels at most")],
)
def test_large_attributes_are_refused(space: Space, attributes: dict[str, Any], says: str) -> None:
    """The problem says how large attributes may be, and how large these are."""
    space.put("a", Support.from_indices([1], space.m))
    refused = space.http.patch(space.path("models", "a"), json={"attributes": attributes})
    assert says in assert_problem(refused, 422, "invalid_parameter", "attributes")
    assert {} == space.model("a")["attributes"]


@pytest.mark.parametrize("item", ["0", "1e9", '""'])
def test_attributes_of_a_megabyte_are_refused_by_their_size(item: str) -> None:
    """Their size is compared first: no call is made for any of half a million values."""
    calls_of_refusal(item, size=1 << 15)  # what the first one caches
    assert calls_of_refusal(item, size=1 << 20) == calls_of_refusal(item, size=1 << 15)


def calls_of_refusal(item: str, size: int) -> int:
    """The calls that the interpreter makes to refuse attributes with a list of so many bytes."""
    values = ",".join([item] * (size // (len(item) + 1)))
    document = parse_strictly(f'{{"attributes":{{"values":[{values}]}}}}'.encode())
    calls = 0

    def count(_frame: Any, event: str, _function: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    try:
        sys.setprofile(count)
        with pytest.raises(ValidationError, match="16384 bytes at most"):
            ModelUpdate.model_validate(document)
    finally:
        sys.setprofile(None)
    return calls
