"""Rules of weights: what each gives, and what they say of clients that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from modelkin import Support
from modelkin.errors import InvalidParameter
from modelkin.integrations.federation.clustered_rounds import (
    ClusteredRounds,
    ClusterRules,
    Reply,
)
from modelkin.integrations.federation.messages import SupportMessage
from modelkin.integrations.federation.node_weights import RoundMembers, check_weights, node_weights

MODEL = {"w": np.zeros(60, np.float32)}
HELD = {1: range(10), 2: range(10), 3: range(5, 15), 4: range(30, 40)}


def known(**how: Any) -> RoundMembers[int]:
    """What is known of four clients, of whom the second holds what the first does."""
    contents = {node: Support.from_indices(list(own), 60) for node, own in HELD.items()}
    return RoundMembers(dict.fromkeys(HELD, MODEL), dict.fromkeys(HELD, 7), contents, **how)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("examples", [7.0, 7.0, 7.0, 7.0]),
        ("equal", [1.0, 1.0, 1.0, 1.0]),
        ("cover", [5 / 12, 5 / 12, 2 / 3, 1.0]),
    ],
)
def test_each_rule_gives_its_weights(rule: str, expected: list[float]) -> None:
    """Cover of ten indices: five of two holders and five of three, and so on."""
    found = node_weights(rule)(list(HELD), known())
    assert found.values == pytest.approx(dict(zip(HELD, expected, strict=True)))
    assert sum(found.shares.values()) == pytest.approx(1)
    assert sum(found.scaled.values()) == pytest.approx(4)
    assert not found.down


def test_weights_are_of_those_in_the_mean() -> None:
    """Of the first and the fourth alone both hold what the other does not."""
    assert {1: 1.0, 4: 1.0} == node_weights("cover")([1, 4], known()).values


@pytest.mark.parametrize("claim", [0, -3, float("nan"), 1e300, "many", True, None])
def test_no_claim_beside_the_examples_rule_counts(claim: object) -> None:
    """By examples such a client is left out with a reason; by its support nothing changes."""
    claims = RoundMembers(known().models, {**known().examples, 2: claim}, known().contents)
    by_examples = node_weights("examples")(list(HELD), claims)
    assert 0.0 == by_examples.values[2]
    assert {2} == by_examples.down.keys()
    for rule in ("equal", "cover", "rarity"):
        expected = node_weights(rule)(list(HELD), known())
        assert expected.values == node_weights(rule)(list(HELD), claims).values


def test_clients_without_supports_have_the_least_weight() -> None:
    """With a reason; if nobody sent one, all weigh the same."""
    some = RoundMembers(known().models, {}, {n: c for n, c in known().contents.items() if n != 4})
    found = node_weights("cover")(list(HELD), some)
    assert found.values[4] == min(found.values.values())
    assert "it sent no support" in found.down[4]
    nobody = node_weights("rarity")(list(HELD), RoundMembers(known().models))
    assert {1.0} == set(nobody.values.values())
    assert HELD.keys() == nobody.down.keys()


def test_rules_that_cannot_be_are_refused() -> None:
    """Unknown names, and supports where clients say what their data are."""
    for wrong in ("samples", "Cover", None, ["cover"]):
        with pytest.raises(InvalidParameter, match="weights must be one of"):
            node_weights(wrong)
    with pytest.raises(InvalidParameter, match="by='data' asks for none"):
        check_weights("cover", "data")


def test_rounds_without_an_engine_weigh_by_supports() -> None:
    """A client whose support is of another model is averaged with the least weight."""
    rounds = ClusteredRounds(MODEL, ClusterRules(weights="cover", n_clusters=1))
    rounds.begin(1, {node: f"site-{node}" for node in (*HELD, 5)}, lambda _: {})
    supports = {**known().contents, 5: Support.from_indices([3], 50)}
    replies = {
        node: Reply(
            {"w": np.full(60, node, np.float32)},
            examples=10**node,
            support=SupportMessage(own, 10 if node < 5 else 1).to_values(),  # type: ignore[arg-type]
        )
        for node, own in supports.items()
    }
    for node in replies:
        rounds.model_for(node)
    found = rounds.finish(1, replies)
    assert found is not None
    shares = node_weights("cover")(list(HELD), known()).shares
    assert found.weights == pytest.approx(shares)
    (cluster,) = rounds.cluster_arrays.values()
    assert cluster["w"] == pytest.approx(sum(n * share for n, share in shares.items()))
    assert "it sent no support" in found.weighted_down[5]
