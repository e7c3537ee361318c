"""Another run goes on as if it had never ended: what was learned of clients, and the same rules."""

from __future__ import annotations

from typing import Any

import pytest

from modelkin.errors import InvalidParameter
from modelkin.integrations.federation.federation_state import FederationState
from modelkin.integrations.federation.kin_robust import KinRobust
from tests.sdk.integrations.federation.test_clustered_rounds import (
    EVERYONE,
    Federation,
    initial,
    trained,
)

LIMITS = KinRobust(share=0.5, min_members=4)


def turned(federation: Federation, node: int) -> dict[int, Any]:
    """A client's update the wrong way round, of what it is about to be sent."""
    start = federation.got[-1][node] if federation.got else initial()
    return {node: {"arrays": {n: 2 * start[n] - v for n, v in trained(start, node).items()}}}


def resumed(before: Federation, server_round: int, **rules: Any) -> Federation:
    """Another run, which goes on after this round."""
    after = Federation(**rules)
    FederationState.of(before.rounds, server_round).restore(after.rounds)
    after.got += before.got
    return after


def verdicts(federation: Federation) -> tuple[dict[int, float], dict[int, str]]:
    assert federation.rounds.clusters is not None
    return dict(federation.rounds.clusters.weights), dict(federation.rounds.clusters.weighted_down)


@pytest.mark.parametrize("ended", [1, 2, 3])
def test_a_resumed_run_judges_as_one_that_was_not_interrupted(ended: int) -> None:
    """After any round, to the bit; the attacker of the first rounds is out while it behaves."""
    federation, found = Federation(robust=LIMITS), list[Any]()
    whole, expected = Federation(robust=LIMITS), list[Any]()
    for number in range(1, 6):
        for each, noted in ((federation, found), (whole, expected)):
            each.run(EVERYONE, instead=turned(each, 2) if number < 4 else None)
            noted.append(verdicts(each))
        if number == ended:
            federation = resumed(federation, number, robust=LIMITS)
    assert expected == found
    assert {2} == set(found[3][1])
    assert "over 4 rounds" in found[3][1][2]


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        ({"weights": "equal"}, "weights"),
        ({"robust": KinRobust()}, "robust"),
        ({"n_clusters": 2}, "n_clusters"),
        ({"k_max": 0.1}, "k_max"),
        ({"min_members": 2}, "min_members"),
    ],
)
def test_other_rules_are_refused(rules: dict[str, Any], field: str) -> None:
    """With both values, and what to do: the clusters of the run before are made by its own."""
    before = Federation()
    before.run(EVERYONE)
    with pytest.raises(InvalidParameter, match=f"had {field}=.* give the same") as refused:
        resumed(before, 1, **rules)
    assert field == refused.value.field
