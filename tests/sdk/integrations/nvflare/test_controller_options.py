"""Options of NVFlare's controller and of its sites, refused where they are written."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("nvflare", reason="NVFlare has an environment of its own: `make nvflare`")

from modelkin.errors import InvalidInput, InvalidParameter
from modelkin.integrations.nvflare import ClusterClient, ClusteredFedAvg


@pytest.mark.parametrize(
    "rules",
    [
        {"num_rounds": 0},
        {"patience": 0},
        {"timeout": -1},
        {"timeout": None},
        {"num_clients": 0},
        {"num_clients": "3"},
        {"initial": "initial.safetensors", "before": "modelkin"},
        {"by": "names"},
        {"weights": "size"},
        {"robust": "yes"},
        {"robust": {"least": 2.0}},
        {"robust": {"most": 0.5}},
        {"separation": 2.0},
        {"shared": [3]},
        {"k_max": 20},
        {"min_members": 0},
    ],
)
def test_arguments_out_of_their_range_are_refused(rules: dict[str, Any]) -> None:
    """When the job is made, before it is sent anywhere."""
    with pytest.raises(InvalidInput):
        ClusteredFedAvg(**({} if "before" in rules else {"initial": "weights"}) | rules)


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ({"shared": "body.*"}, r"^shared is one string: give .* shared=\['body\.\*'\]"),
        ({"shards": 3}, "^shards must be a dictionary.* not 3"),
        ({"shards": {"agregators": 3}}, "^shards has no setting 'agregators': .*aggregators"),
        ({"shards": {"one_in": 3}}, "^shards needs the number of aggregators"),
        ({"shards": {"aggregators": 3, "masks": "own"}}, "^masks must be 'one', not 'own'"),
        ({"robust": {"leest": 1}}, "^robust has no limit 'leest': its limits are share, least"),
        ({"num_clients": "half"}, "^num_clients must be a whole number, 1 or more, not 'half'"),
        ({"separation": "x"}, "^separation must be 0 to 1, not 'x'"),
        ({"forget_after": 0, "by": "data"}, "^forget_after must be a number of rounds, 1 or more"),
        ({"patience": 30}, "^patience is for by='data' and for shards"),
        ({"initial": ""}, "^nothing to begin with: give initial="),
    ],
)
def test_what_is_refused_is_named_as_the_reader_wrote_it(rules: dict[str, Any], why: str) -> None:
    """An option by its own name, when the job is made."""
    with pytest.raises(InvalidParameter, match=why):
        ClusteredFedAvg(**({"initial": "initial.safetensors"} | rules))


def test_weights_may_be_a_persistors() -> None:
    """Where its id is given; the other options have no need of it."""
    assert ClusteredFedAvg(persistor_id="persistor").rules == ClusteredFedAvg(initial="w").rules
    ClusteredFedAvg(initial="w", by="data", patience=30)
    ClusteredFedAvg(initial="w", shards={"aggregators": 3}, patience=30)


@pytest.mark.parametrize(
    "how",
    [
        {"send": "all"},
        {"subspace": 3},
        {"beta": 1.0},
        {"tags": 3},
        {"private": "head.*"},
        {"k_max": 20},
    ],
)
def test_arguments_of_a_client_are_checked(how: dict[str, Any]) -> None:
    """When the script starts."""
    with pytest.raises(InvalidInput):
        ClusterClient(**how)
