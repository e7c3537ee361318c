"""A service of another version is said to be one: once, clearly, and never as an error."""

from __future__ import annotations

import warnings
from typing import Any

import httpx
import pytest

import modelkin
from modelkin.errors import ApiError
from modelkin.types.spaces import SpaceInfo


def answer(space_json: dict[str, Any], version: str | None) -> httpx.Response:
    """A space, from a service that says it is of this version."""
    headers = {} if version is None else {"Modelkin-Version": version}
    return httpx.Response(200, json=space_json, headers=headers)


@pytest.mark.parametrize("version", ["0.2.0", "0.2.99", "0.2", "0.2.0rc1", "0.2.dev3+local", None])
def test_the_same_release_says_nothing(
    version: str | None, wire: Any, space_json: dict[str, Any]
) -> None:
    """Patches, candidates and services without a version header go without a warning."""
    assert "digits" == wire.client(answer(space_json, version)).spaces.get("digits").name


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        ("0.3.0", "pip install 'modelkin==0.3.*'"),
        ("1.0.3", "pip install 'modelkin==1.0.*'"),
        ("0.10", "pip install 'modelkin==0.10.*'"),
        ("0.0.9", "upgrade the service, or install the modelkin of its version"),
        ("unknown", "upgrade the service, or install the modelkin of its version"),
    ],
)
def test_another_release_is_said(
    version: str, remedy: str, wire: Any, space_json: dict[str, Any]
) -> None:
    """Both versions, the address and what to do stand in one warning at the caller's own line."""
    client = wire.client(answer(space_json, version))
    with pytest.warns(modelkin.ModelkinVersionWarning) as said:
        client.spaces.get("digits")
    text = str(said[0].message)
    assert (
        f"the service at http://kin.test is modelkin {version}, this SDK is {modelkin.__version__}"
        in text
    )
    assert text.endswith(remedy)
    assert said[0].filename.startswith(__file__.rpartition("/sdk/")[0])


def test_it_is_said_once(wire: Any, space_json: dict[str, Any]) -> None:
    """The second answer of the same service is not worth a second warning."""
    client = wire.client(answer(space_json, "9.9.9"))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found: list[SpaceInfo] = [client.spaces.get("digits") for _ in range(3)]
    assert (3, 1) == (len(found), len(said))


def test_a_refusal_is_warned_of_too(wire: Any) -> None:
    """Where a newer service refuses, the likely reason is said beside the refusal."""
    refusal = httpx.Response(404, json={"code": "no"}, headers={"Modelkin-Version": "9.9.9"})
    with pytest.warns(modelkin.ModelkinVersionWarning), pytest.raises(ApiError, match="404 no"):
        wire.client(refusal).spaces.get("digits")


def test_ready_looks_at_the_version(wire: Any) -> None:
    """The first thing asked of a service may well be whether it is there."""
    ready = httpx.Response(200, json={}, headers={"Modelkin-Version": "9.9.9"})
    with pytest.warns(modelkin.ModelkinVersionWarning):
        assert wire.client(ready).ready()


def test_what_does_not_print_is_not_printed(wire: Any, space_json: dict[str, Any]) -> None:
    """A header that would move a terminal's cursor is shown without what moves it."""
    client = wire.client(answer(space_json, "9\x1b[2J" + "x" * 4000))
    with pytest.warns(modelkin.ModelkinVersionWarning) as said:
        client.spaces.get("digits")
    assert str(said[0].message).isprintable()
    assert len(str(said[0].message)) < 500
