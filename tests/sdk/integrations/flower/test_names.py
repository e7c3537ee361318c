"""Clients of Flower that say what they are called, and how many clusters a strategy is given."""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp.strategy import FedAvg

import modelkin
import modelkin.torch
from modelkin.errors import InvalidInput
from modelkin.integrations.federation.client_names import ClientNames
from modelkin.integrations.flower import ClusteredStrategy, DataMod, SupportMod
from tests.sdk.integrations.flower.federation import LocalGrid, app, mlp

NODES = range(1, 7)
NAMED = {0: ("ward-1", "ward-3", "ward-5"), 1: ("ward-2", "ward-4", "ward-6")}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.WARNING)


def ward(context: Context) -> str:
    """What a client is called."""
    return f"ward-{context.node_id}"


def kinds(context: Context) -> list[str]:
    """The tags of a client."""
    return ["odd" if context.node_id % 2 else "even"]


def run(strategy: ClusteredStrategy, mod: SupportMod, *outer: Any, rounds: int = 1) -> None:
    """All rounds of six clients in two groups, with more mods before the one."""
    grid = LocalGrid({node: app(mod, *outer) for node in NODES})
    arrays = ArrayRecord(mlp().state_dict())
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=rounds)


@pytest.mark.slow
@pytest.mark.parametrize("send", ["support", "signature"])
def test_clusters_and_the_service_show_names(
    send: str, client: modelkin.Client, space: str
) -> None:
    """In place of ids; tags are the model's, beside the round, and the id is an attribute."""
    strategy = ClusteredStrategy(FedAvg(), client=client, space=space)
    run(strategy, SupportMod(send, name=ward, tags=kinds), rounds=2)
    assert strategy.clusters is not None
    assert strategy.clusters.named == NAMED
    assert strategy.clusters.members == {0: (1, 3, 5), 1: (2, 4, 6)}
    models = {each.model: each for each in client.models.list(space)}
    assert {f"flower/ward-{node}" for node in NODES} == set(models)
    assert ("even", "round-2") == models["flower/ward-4"].tags
    assert {"round": 2, "cluster": 1, "node": "4"} == models["flower/ward-4"].attributes


def test_a_cluster_of_one_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """It trains alone in each of two rounds; the silhouette is in the log of each."""
    caplog.set_level(logging.INFO, "modelkin.integrations")
    run(
        ClusteredStrategy(FedAvg(), per_cluster=True, n_clusters=6), SupportMod(name=ward), rounds=2
    )
    assert 1 == caplog.text.count("is client ward-1 alone, and trains alone")
    assert 2 == caplog.text.count("6 clients in 6 clusters, silhouette none")


def test_the_space_knows_what_was_handed_over(client: modelkin.Client, space: str) -> None:
    """With layout and kind S by chance is known, and so kappa."""
    layout = modelkin.torch.layout_of(mlp())
    strategy = ClusteredStrategy(
        FedAvg(), client=client, space=space, layout=layout, importance="fisher"
    )
    run(strategy, SupportMod())
    made = client.spaces.get(space)
    assert (layout, "fisher") == (made.layout, made.importance.kind)
    assert all(each.kappa is not None for each in client.neighbors(space, "flower/1", k=5))


def test_a_layout_of_another_model_stores_nothing(
    client: modelkin.Client, space: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says what to give; the rounds go on."""
    layout = modelkin.Layout.of([("weight", (3, 4))])
    strategy = ClusteredStrategy(FedAvg(), client=client, space=space, layout=layout)
    run(strategy, SupportMod())
    assert strategy.clusters is not None
    assert "the layout has 12 parameters" in caplog.text


def test_layout_and_importance_are_of_supports() -> None:
    """A federation by data has neither."""
    with pytest.raises(InvalidInput, match="by='data'"):
        ClusteredStrategy(FedAvg(), by="data", importance="fisher")


def test_a_client_without_a_name_is_its_node(caplog: pytest.LogCaptureFixture) -> None:
    """Where its configuration has none, its log says so, and the others keep theirs."""

    def configured(context: Context) -> str:
        return {1: "first"}[context.node_id]

    strategy = ClusteredStrategy(FedAvg())
    run(strategy, SupportMod(name=configured))
    assert strategy.clusters is not None
    assert {0: ("3", "5", "first"), 1: ("2", "4", "6")} == strategy.clusters.named
    assert "no name is sent: KeyError: 2" in caplog.text


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ("a/b", "has no '/'"),
        ("..", "segment"),
        ("12345678901234567890", "not a number"),
        ("n" * 65, "at most 64 bytes"),
        ("", "empty"),
        ("a\nb", "U\\+000A|character"),
        (7, "str|7"),
    ],
)
def test_a_bad_name_does_not_count(
    sent: object, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A client cannot name itself into another folder, nor after another's id."""
    names = ClientNames()
    names.note(3, {"name": sent, "tags": ["ok"]}, {3})
    assert ("3", {3: ("ok",)}) == (names.of(3), names.tags)
    assert "the name of node 3 does not count: " in caplog.text
    assert re.search(why, caplog.text)


@pytest.mark.parametrize("sent", ["north", ["a"] * 3 + [7], [f"t{i}" for i in range(21)], None])
def test_bad_tags_do_not_count(sent: object, caplog: pytest.LogCaptureFixture) -> None:
    """The name beside them does."""
    names = ClientNames()
    names.note(3, {"name": "ward", "tags": sent}, {3})
    assert ("ward", {}) == (names.of(3), names.tags)
    assert "the tags of node 3 do not count: " in caplog.text


def test_no_client_takes_the_name_of_another(caplog: pytest.LogCaptureFixture) -> None:
    """Only once that one is gone: a node that starts again has a new id, and its old name."""
    names = ClientNames()
    names.note(1, {"name": "ward"}, {1, 2})
    names.note(2, {"name": "ward"}, {1, 2})
    assert "one string names all nodes of an app alike: give name=lambda context:" in caplog.text
    assert ("ward", "2") == (names.of(1), names.of(2))
    names.note(2, {"name": "ward"}, {2})
    assert ("1", "ward") == (names.of(1), names.of(2))


def test_a_forged_record_ends_no_round(caplog: pytest.LogCaptureFixture) -> None:
    """A name of another type, from a client without the mod's checks."""

    def forge(message: Message, context: Context, call_next: Any) -> Message:
        answer: Message = call_next(message, context)
        if answer.content.config_records:
            record = answer.content.config_records["modelkin"]
            answer.content["modelkin"] = ConfigRecord({**record, "name": 7, "tags": [1.5]})
        return answer

    strategy = ClusteredStrategy(FedAvg())
    run(strategy, SupportMod(), forge)
    assert strategy.clusters is not None
    assert {0: ("1", "3", "5"), 1: ("2", "4", "6")} == strategy.clusters.named
    assert "the name of node 1 does not count" in caplog.text


@pytest.mark.parametrize(
    "wrong", [{"name": "a/b"}, {"name": 7}, {"tags": "north"}, {"tags": ["a" * 101]}]
)
@pytest.mark.parametrize("mod", [SupportMod, lambda **how: DataMod(lambda context: None, **how)])  # type: ignore[arg-type, return-value]
def test_a_name_for_all_is_checked_at_once(mod: Any, wrong: dict[str, Any]) -> None:
    """Before any message."""
    with pytest.raises(InvalidInput):
        mod(**wrong)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
def test_there_are_as_many_clusters_as_asked_for(count: int) -> None:
    """Or as many as there are clients; in all rounds."""
    strategy = ClusteredStrategy(FedAvg(), n_clusters=count)
    run(strategy, SupportMod(), rounds=2)
    assert strategy.clusters is not None
    assert min(count, 6) == len(strategy.clusters.members)
    if count == 2:
        assert strategy.clusters.members == {0: (1, 3, 5), 1: (2, 4, 6)}


def test_clusters_that_differ_by_a_distance_stay_apart() -> None:
    """The two groups differ more than their members do among themselves."""
    strategy = ClusteredStrategy(FedAvg())
    run(strategy, SupportMod())
    assert strategy.clusters is not None
    apart = 1 - strategy.clusters.similarity
    odd = strategy.clusters.clusters == strategy.clusters.clusters[0]
    within, between = apart[np.ix_(odd, odd)].max(), apart[np.ix_(odd, ~odd)].mean()
    assert within < between
    for far, clusters in (((within + between) / 2, 2), (1.0, 1), (1e-9, 6)):
        strategy = ClusteredStrategy(FedAvg(), distance_threshold=float(far))
        run(strategy, SupportMod())
        assert strategy.clusters is not None
        assert clusters == len(strategy.clusters.members)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"n_clusters": 0}, "n_clusters must be"),
        ({"n_clusters": 2.0}, "n_clusters must be"),
        ({"n_clusters": True}, "n_clusters must be"),
        ({"distance_threshold": 0.0}, "distance_threshold must be"),
        ({"distance_threshold": 1.5}, "distance_threshold must be"),
        ({"distance_threshold": float("nan")}, "distance_threshold must be"),
        ({"n_clusters": 3, "distance_threshold": 0.5}, "not both"),
    ],
)
def test_a_division_that_cannot_be_is_refused_at_once(wrong: dict[str, Any], why: str) -> None:
    """Before any message."""
    with pytest.raises(InvalidInput, match=why):
        ClusteredStrategy(FedAvg(), **wrong)
