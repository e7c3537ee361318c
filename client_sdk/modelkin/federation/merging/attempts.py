"""Attempts of a merge: who is left out in the second one, and when there is none."""

from __future__ import annotations

from collections.abc import Mapping

from modelkin.federation.shards.plan import MAX_ATTEMPT

__all__ = ["failure_without", "named"]


def failure_without(
    reasons: Mapping[str, str], *, attempt: int, left: int, min_members: int
) -> str | None:
    """Say why a merge fails where some members are left out; None if the others begin again.

    Args:
        reasons: why each of them is left out, by name.
        attempt: the number of the attempt that they spoilt, from 0.
        left: the number of the other members.
        min_members: fewer are not averaged.
    """
    if attempt >= MAX_ATTEMPT:
        return f"in the second attempt, {named(reasons)}"
    if left < min_members:
        return f"{left} members are left, and min_members is {min_members}: {named(reasons)}"
    return None


def named(reasons: Mapping[str, str]) -> str:
    """Reasons in one line, in the order of the names."""
    return "; ".join(f"{name}: {why}" for name, why in sorted(reasons.items()))
