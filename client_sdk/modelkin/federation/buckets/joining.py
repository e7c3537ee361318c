"""The rules of joining: for the party that joins, and for the leader that reads its statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modelkin.errors import InvalidParameter
from modelkin.federation.layouts import MOST_EXACT
from modelkin.federation.shards.fixed_point import least_power
from modelkin.federation.shards.public_keys import check_public_key
from modelkin.federation.shards.roster import Party

__all__ = ["party_of", "why_not"]


def why_not(terms: Mapping[str, Any], name: str, said: Mapping[str, Any]) -> str | None:
    """Why a party cannot take part with this statement; None if it can.

    Args:
        terms: the merge's.
        name: the party's.
        said: its key, and of a member its examples and largest magnitude.
    """
    try:
        check_public_key(party_of(name, said).public_key)
        if party_of(name, said).neutral != (name in terms["neutral"]):
            return "it is a member with values, or else neutral, as the merge says, and not both"
        if name in terms["neutral"]:
            return None
        least_power(said["peak"])
        examples = said["examples"]
        if terms["members"][name] is None and not (
            type(examples) is int and 1 <= examples <= MOST_EXACT
        ):
            return f"its examples are {examples!r}, not a whole number from 1 to 2^53"
    except InvalidParameter as error:
        return str(error)
    except (KeyError, TypeError, ValueError) as error:
        return f"its statement cannot be read: {error!r}"
    return None


def party_of(name: str, said: Mapping[str, Any]) -> Party:
    """The party of a statement.

    Raises:
        KeyError, TypeError, ValueError: the statement is none.
    """
    willing, neutral = said["may_aggregate"], said["neutral"]
    if type(willing) is not bool or type(neutral) is not bool:
        raise ValueError("may_aggregate and neutral are true or false")
    return Party(name, bytes.fromhex(said["public_key"]), willing, neutral)
