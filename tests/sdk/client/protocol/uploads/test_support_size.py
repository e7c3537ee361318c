"""How a client asks for the size of its supports: what it sends, and what it does with the answer.

That importances end in the service at the size agreed is shown in ``test_clients_alike``.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
import pytest
import torch

import modelkin
from modelkin import SmallSupportWarning, SupportSize, SupportSizePolicy
from modelkin.errors import ApiError, InvalidImportance, InvalidInput, InvalidName, InvalidParameter

IMPORTANCE = np.exp(-np.arange(1000, dtype=np.float32) / 20)
K_STAR = modelkin.select_support(IMPORTANCE).k


def size(k: int | None, policy: str = "agreed", reports: int = 3) -> httpx.Response:
    return httpx.Response(200, json={"policy": policy, "k": k, "reports": reports})


def body(request: httpx.Request) -> Any:
    return json.loads(request.content)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("agreed", {"policy": "agreed"}),
        ("free", {"policy": "free"}),
        (500, {"policy": "fixed", "k": 500}),
        (np.int64(500), {"policy": "fixed", "k": 500}),
        (0.1, {"policy": "fixed", "fraction": 0.1}),
        (SupportSizePolicy("fixed", 7), {"policy": "fixed", "k": 7}),
        (SupportSizePolicy("agreed"), {"policy": "agreed"}),
    ],
)
def test_a_policy_is_sent(given: Any, sent: Any, wire: Any, space_json: dict[str, Any]) -> None:
    """A name, a count, a share or a policy as it was answered say what is asked of sizes."""
    client = wire.client(httpx.Response(200, json=space_json))
    client.ensure_space("digits", num_parameters=1000, support_size=given)
    assert sent == body(wire.requests[0])["support_size"]


@pytest.mark.parametrize("wrong", ["fixed", "median", True, [5], "500", np.arange(3)])
def test_what_is_no_policy_is_never_sent(wrong: Any, wire: Any) -> None:
    """What could only be guessed at is an error at the call."""
    client = wire.client(httpx.Response(500))
    with pytest.raises(InvalidParameter, match="support_size must be"):
        client.ensure_space("digits", num_parameters=1000, support_size=wrong)
    assert [] == wire.requests


def test_a_policy_is_read(wire: Any, space_json: dict[str, Any]) -> None:
    """A space answers its policy; one of a service without policies is free."""
    client = wire.client(httpx.Response(200, json=space_json))
    assert SupportSizePolicy("free") == client.spaces.get("digits").support_size
    space_json["support_size"] = {"policy": "fixed", "k": 9}
    client = wire.client(httpx.Response(200, json=space_json))
    assert SupportSizePolicy("fixed", 9) == client.spaces.get("digits").support_size


@pytest.mark.parametrize(
    "importance", [IMPORTANCE, torch.from_numpy(IMPORTANCE), K_STAR, np.uint32(K_STAR)]
)
def test_K_star_alone_is_told(importance: Any, wire: Any) -> None:
    """Of an array or a tensor only K* and M leave, of a K* only itself, and the model's name."""
    stated = {"num_parameters": 1000} if hasattr(importance, "shape") and importance.shape else {}
    client = wire.client(size(40))
    assert SupportSize("agreed", 40, 3) == client.spaces.report_support_size(
        "digits", importance, client="org/a"
    )
    assert {"k_star": K_STAR, "client": "org/a"} | stated == body(wire.requests[0])
    assert "POST /v1/spaces/digits/support-size" == f"{wire.requests[0].method} {wire.target}"


def test_coverage_chooses_K_star(wire: Any) -> None:
    """The options of Algorithm 1 are those of select_support."""
    client = wire.client(size(40))
    client.spaces.report_support_size("digits", IMPORTANCE, coverage=0.99, k_max=50)
    expected = modelkin.select_support(IMPORTANCE, coverage=0.99, k_max=50).k
    assert {"k_star": expected, "num_parameters": 1000} == body(wire.requests[0])


def test_a_report_is_sent_again(wire: Any) -> None:
    """A second report changes nothing, so a lost answer is requested again."""
    client = wire.client(httpx.Response(503, json={"code": "unavailable"}), size(5))
    assert 5 == client.spaces.report_support_size("digits", 9).k
    assert 2 == len(wire.requests)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((IMPORTANCE * np.nan,), InvalidImportance),
        ((np.zeros(9, np.float32),), InvalidImportance),
        ((True,), InvalidInput),
        (("800",), InvalidInput),
    ],
)
def test_what_has_no_K_star_is_never_sent(arguments: Any, error: Any, wire: Any) -> None:
    """An importance without a support is an error here."""
    client = wire.client(size(5))
    with pytest.raises(error):
        client.spaces.report_support_size("digits", *arguments)
    assert [] == wire.requests


def test_a_count_has_no_coverage(wire: Any) -> None:
    """Options that would be ignored are refused, and so is an invalid name."""
    client = wire.client(size(5))
    with pytest.raises(InvalidParameter, match="not of a count"):
        client.spaces.report_support_size("digits", 9, coverage=0.9)
    with pytest.raises(InvalidName):
        client.spaces.report_support_size("digits", 9, client="..")
    assert [] == wire.requests


def stored(wire: Any) -> modelkin.Support:
    """The support in the last request."""
    return modelkin.Support.from_bytes(wire.requests[-1].content)


@pytest.mark.parametrize("k", [5, K_STAR, 100, None])
def test_an_importance_is_stored_at_the_size_answered(
    k: int | None, wire: Any, model_json: dict[str, Any], space_json: dict[str, Any]
) -> None:
    """Smaller or larger than K*, exactly K of the most important; without a K, K*."""
    space = httpx.Response(200, json=space_json)
    client = wire.client(space, size(k), httpx.Response(200, json=model_json))
    client.put_importance("digits", "org/a", IMPORTANCE)
    stated = {"k_star": K_STAR, "client": "org/a", "num_parameters": 1000}
    assert stated == body(wire.requests[1])
    assert modelkin.select_support(IMPORTANCE, k=k or K_STAR) == stored(wire)


def test_fewer_positive_entries_are_a_smaller_support(
    wire: Any, model_json: dict[str, Any], space_json: dict[str, Any]
) -> None:
    """What is not important is never stored to fill up K."""
    importance = np.where(np.arange(1000) < 30, IMPORTANCE, 0)
    space = httpx.Response(200, json=space_json)
    client = wire.client(space, size(100), httpx.Response(200, json=model_json))
    with pytest.warns(SmallSupportWarning, match="only 30 of 1000"):
        client.put_importance("digits", "org/a", importance)
    assert list(range(30)) == stored(wire).indices.tolist()


def test_a_support_is_no_importance(wire: Any) -> None:
    """The error names the method that stores one, and nothing is sent."""
    client = wire.client(size(5))
    with pytest.raises(InvalidImportance, match="store it with put_support"):
        client.put_importance("digits", "org/a", modelkin.Support([1], 1000))
    assert [] == wire.requests


def test_a_refusal_stores_nothing(wire: Any) -> None:
    """Where the space does not answer a size, no support is sent."""
    client = wire.client(httpx.Response(404, json={"code": "space_not_found", "detail": "none"}))
    with pytest.raises(ApiError, match="space_not_found"):
        client.put_importance("digits", "org/a", IMPORTANCE)
    assert 1 == len(wire.requests)


@pytest.mark.parametrize(
    "answer", [{"policy": "agreed", "k": 5}, {"policy": "agreed", "k": "5"}, []]
)
def test_a_size_of_another_form_is_told(answer: Any, wire: Any) -> None:
    """What is not a size is an error that names the request."""
    client = wire.client(httpx.Response(200, json=answer))
    with pytest.raises(modelkin.ModelkinError, match="support-size in a form"):
        client.spaces.support_size("digits")
