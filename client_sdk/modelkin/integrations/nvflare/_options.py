"""Checks of the options of ``ClusteredFedAvg``, which a job's configuration has as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from modelkin.errors import InvalidParameter
from modelkin.integrations.federation.kin_robust import KinRobust

__all__ = ["check_number", "limits_of"]


def check_number(name: str, value: object, least: int) -> None:
    """Raise :class:`InvalidParameter` for an option that is no whole number, or too small a one."""
    if type(value) is not int or value < least:
        raise InvalidParameter(
            f"{name} must be a whole number, {least} or more, not {value!r}", field=name
        )


def limits_of(robust: bool | Mapping[str, Any]) -> KinRobust | None:
    """The limits of updates that count, None where all do; also by name.

    Raises:
        InvalidParameter: they are none.
    """
    if not isinstance(robust, Mapping):
        return KinRobust.of(robust)
    names = [each.name for each in fields(KinRobust)]
    for name in robust:
        if name not in names:
            raise InvalidParameter(
                f"robust has no limit {name!r}: its limits are {', '.join(names)}", field="robust"
            )
    return KinRobust(**robust)
