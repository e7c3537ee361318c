"""Calls about the K of a space: its policy, the present K, and the reports of clients."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import msgspec

from modelkin._validation import check_model_name
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call
from modelkin.client._protocol.calls.decoding import decode
from modelkin.client._transport.messages import Response
from modelkin.core.support import Support
from modelkin.errors import InvalidImportance, InvalidParameter
from modelkin.selection import select_support
from modelkin.types.spaces import SupportSize, SupportSizePolicy
from modelkin.types.vocabulary import SupportSizePolicyName

__all__ = ["get", "k_star_of", "policy_json", "refuse_support", "report"]


def get(space: str) -> Call[SupportSize]:
    """Reads the present K of a space."""
    return Call(requests.get(f"{requests.space_path(space)}/support-size"), _read)


def report(
    space: str, k_star: int, client: str | None, support: Support | None = None
) -> Call[SupportSize]:
    """Reports the K* of a client.

    Args:
        space: the space's name.
        k_star: the client's K*.
        client: the client's name.
        support: a support that the client is going to store, of any size. The service compares its
            M, importance and layout with the space's, and counts only what it would store.
    """
    body: dict[str, Any] = {"k_star": k_star}
    if client is not None:
        body["client"] = check_model_name(client, field="client")
    if support is not None:
        body |= {"num_parameters": support.num_parameters, **requests.origin_fields(support)}
    # A report replaces the previous one of the same client, and so may be sent twice.
    path = f"{requests.space_path(space)}/support-size"
    return Call(requests.post(path, body), _read)


def policy_json(support_size: Any) -> dict[str, Any]:
    """The JSON of a ``support_size=`` argument of ``ensure_space``.

    Raises:
        InvalidParameter: the value is not the name of a policy, a K or a share.
    """
    if isinstance(support_size, SupportSizePolicy):
        asked: dict[str, Any] = {"policy": support_size.policy}
        return asked if support_size.k is None else {**asked, "k": support_size.k}
    if isinstance(support_size, str) and support_size in {"free", "agreed"}:
        return {"policy": support_size}
    if isinstance(support_size, float):
        return {"policy": "fixed", "fraction": support_size}
    k = _count(support_size)
    if k is None:
        raise InvalidParameter(
            f"support_size must be 'free', 'agreed', K as an int or a share of M as a float, not "
            f"{support_size!r}",
            field="support_size",
        )
    return {"policy": "fixed", "k": k}


def refuse_support(importance: Any) -> None:
    """Raise :class:`InvalidImportance` for a support in place of an importance."""
    if isinstance(importance, Support):
        raise InvalidImportance(
            "this is a support, which is selected already: store it with put_support",
            field="importance",
        )


def k_star_of(
    importance: Any, coverage: float | None, k_max: float | None, how: Mapping[str, Any]
) -> tuple[int, Support | None]:
    """The K* of an importance and its support, or a given K* itself.

    Args:
        importance: what ``select_support`` takes, or how many indices its coverage chose.
        coverage: the share of all importance that K* entries hold, 0 to 1.
        k_max: the cap of K*.
        how: the other keywords of ``select_support``.

    Raises:
        InvalidParameter: coverage or ``k_max`` is given beside a K*; or ``select_support`` refuses.
    """
    k = _count(importance)
    if k is None:
        support = select_support(importance, coverage=coverage, k_max=k_max, **how)
        return support.k, support
    if coverage is not None or k_max is not None:
        raise InvalidParameter("coverage and k_max choose the K* of an importance, not of a count")
    return k, None


def _count(value: Any) -> int | None:
    """A count as an int, from an integer of any library; None for flags and arrays."""
    if isinstance(value, bool) or hasattr(value, "__len__"):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


class _Answer(msgspec.Struct):
    """A ``SupportSize`` on the wire, which always has the number of reports."""

    policy: SupportSizePolicyName
    reports: int
    k: int | None = None


def _read(response: Response) -> SupportSize:
    body = decode(response, _Answer)
    return SupportSize(body.policy, body.k, body.reports)
